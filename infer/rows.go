package infer

// promptRows returns how many rows of prompts a pass takes beside draft trees of so many nodes.
func (e *Engine) promptRows(trees int) int {
	c := &e.Config
	switch {
	case c.PassRows == 0:
		return int(^uint(0) >> 1)
	case trees == 0:
		return max(c.PassRows, c.PrefillChunk) // nobody waits for the next token
	}
	return max(c.PassRows-trees, (c.PassRows+7)/8)
}

// A rowsPart is what a prompt wants of a pass's rows, and what it gets.
type rowsPart struct {
	left int // rows that it could use
	rows int // rows that it gets
}

// shareRows divides rows among prompts. A quarter goes to the shortest first, so that a short prompt
// does not wait for a long one; the rest in their order, so that a long one does not wait for
// ever either.
func shareRows(prompts []rowsPart, rows int) {
	short := (rows + 3) / 4
	for short > 0 {
		best := -1
		for i := range prompts {
			if p := &prompts[i]; p.rows == 0 && p.left > 0 && (best < 0 || p.left < prompts[best].left) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		p := &prompts[best]
		p.rows = min(p.left, short)
		short -= p.rows
		rows -= p.rows
	}
	for i := range prompts {
		p := &prompts[i]
		n := min(p.left-p.rows, rows)
		p.rows += n
		rows -= n
	}
}
