// Package share divides the rows of a pass among prompts.
package share

// A Part is what a prompt wants of a pass's rows, and what it gets.
type Part struct {
	Left int // rows that it could use
	Rows int // rows that it gets
}

// Rows divides rows among prompts. A quarter goes to the shortest first, so that a short prompt
// does not wait for a long one; the rest in their order, so that a long one does not wait for
// ever either.
func Rows(prompts []Part, rows int) {
	short := (rows + 3) / 4
	for short > 0 {
		best := -1
		for i := range prompts {
			if p := &prompts[i]; p.Rows == 0 && p.Left > 0 && (best < 0 || p.Left < prompts[best].Left) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		p := &prompts[best]
		p.Rows = min(p.Left, short)
		short -= p.Rows
		rows -= p.Rows
	}
	for i := range prompts {
		p := &prompts[i]
		n := min(p.Left-p.Rows, rows)
		p.Rows += n
		rows -= n
	}
}
