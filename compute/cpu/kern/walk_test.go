//go:build (amd64 || arm64) && !purego

package kern

import "testing"

// Together, the calls of a walk prefetch every line that is read after the current chunk: the
// next chunk of b, however long it is, or, after the last one, the first chunk of what the caller
// names. A call asks for no more lines than it reads: from a short last chunk the calls reach no
// further into a long first one.
func TestTurnsAskForAllThatComesNext(t *testing.T) {
	for _, c := range []struct{ most, halves, chunk, step, part int }{
		{6, 1, chunkF32, 4 * Panel, partK},
		{6, 2, chunkF32, 4 * Panel, partK},
		{14, 1, chunkF32, 4 * Panel, partK},
		{14, 1, chunkBF16, 2 * Panel, partK},
		{12, 1, chunkQ8, Q8BlockLen, 1},
		{8, 1, chunkQ8, Q8BlockLen, 1},
		{12, 1, chunkQ4, Q4BlockLen, 1},
	} {
		for rows := 1; rows <= 64; rows++ {
			for halves := 1; halves <= 6; halves++ {
				for _, next := range []int{0, 1 << 20, -1 << 20} {
					w := newWalk(rows, c.most, c.halves, halves*c.chunk/2, c.chunk, c.step, c.part)
					w.next = next
					asked, seen, calls := map[int]bool{}, 0, 0
					for u := w.start(); u.rows > 0; w.advance(&u) {
						for h := range c.halves {
							ahead, pace := w.ahead(&u, h)
							at := u.i*c.step + int(ahead)
							for range u.n / c.part {
								for l := range c.part * c.step / line {
									asked[at+l*line] = true
								}
								at += int(pace)
							}
							calls++
						}
						if u.r0+u.rows < rows {
							continue
						}
						seen += u.n
						want := seen * c.step
						switch {
						case seen == w.steps && next != 0:
							want = next
						case w.turns == 1: // b continues for its whole length
							want = aheadOne
						}
						n := u.n // what one call reads, it asks for
						if w.turns > 1 {
							if n = min(w.chunk, w.steps-seen); n == 0 {
								n = min(w.chunk, w.steps, w.turns*u.n)
							}
						}
						for o := 0; o < n*c.step; o += line {
							if !asked[want+o] {
								t.Fatalf("%+v, %d rows, %d half chunks, next %d: after step %d, byte %d is not prefetched",
									c, rows, halves, next, seen, o)
							}
						}
					}
					if seen != w.steps || calls != w.turns*max(1, (w.steps+w.chunk-1)/w.chunk) {
						t.Fatalf("%+v, %d rows: %d steps of %d in %d calls", c, rows, seen, w.steps, calls)
					}
				}
			}
		}
	}
}
