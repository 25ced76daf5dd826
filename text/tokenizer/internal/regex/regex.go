// Package regex finds the matches of the regular expressions in tokenizer.json files, in time and
// memory proportional to the text, whatever the pattern: an untrusted pattern cannot stall the
// reader of a text.
//
// The dialect is the part of Ruby's (Oniguruma) that tokenizers use: sets, categories of Unicode,
// alternatives, greedy and lazy repetitions, ignored case, and looking ahead and behind. A pattern
// that this package would read differently is refused. Package regexp cannot serve, because it has
// no lookaround and nearly every tokenizer looks ahead.
//
// Matching is backtracking that tries no instruction twice at the same place: what failed there
// once fails always, since groups do not capture.
package regex

import (
	"fmt"
	"math"
	"sync"
	"unicode/utf8"

	"talf/internal/limits"
)

// A Pattern is a compiled regular expression. It is safe for concurrent use.
type Pattern struct {
	expr  string
	prog  []inst
	start int32
	rows  int32
	// plain are the rows of instructions outside lookarounds.
	plain []int32
	lead  [256]bool // what a match may begin with
	empty bool      // a match may be empty
	free  sync.Pool // of *matcher
}

// Compile reads a pattern. Errors name it and what is wrong.
func Compile(expr string) (*Pattern, error) {
	p := &Pattern{expr: expr}
	n, err := parse(expr)
	if err == nil {
		c := compiler{}
		p.start = c.emit(n, c.add(inst{op: opMatch}))
		p.prog, err = c.prog, c.err
	}
	if err != nil {
		return nil, fmt.Errorf("regex %.200q: %w", expr, err)
	}
	p.rows = rows(p.prog, p.start)
	for i := range p.prog {
		if in := &p.prog[i]; in.row >= 0 && in.won < 0 {
			p.plain = append(p.plain, in.row)
		}
	}
	p.leads(p.start, make([]bool, len(p.prog)))
	return p, nil
}

// leads fills in lead and empty: what matches from an instruction may begin with.
func (p *Pattern) leads(at int32, seen []bool) {
	for !seen[at] {
		seen[at] = true
		in := &p.prog[at]
		switch in.op {
		case opMatch:
			p.empty = true
			return
		case opSet:
			in.set.lead(&p.lead)
			return
		case opSplit:
			p.leads(in.alt, seen)
		}
		at = in.next // assertions are not looked at
	}
}

// String returns the pattern as it was compiled.
func (p *Pattern) String() string { return p.expr }

// Each calls f with the ends of each match in s: the leftmost, and of several there the one that
// backtracking finds first; then the next after it. The work and the memory are charged to m. An
// error means that m ran out.
func (p *Pattern) Each(s string, m *limits.Meter, f func(start, end int)) error {
	if len(s) > math.MaxInt32 {
		return fmt.Errorf("a text of %d bytes: %w", len(s), limits.ErrTooLarge)
	}
	x, _ := p.free.Get().(*matcher)
	if x == nil {
		x = &matcher{}
	}
	defer p.free.Put(x)
	x.begin(p, s, m)
	defer x.end()
	for at := 0; at <= len(s); {
		if !p.empty {
			for at < len(s) && !p.lead[s[at]] {
				at++
			}
			if at == len(s) {
				break
			}
		}
		x.forget(at)
		end, err := x.run(p.start, at)
		if err != nil {
			return err
		}
		if end < 0 {
			at += x.width(at)
			continue
		}
		f(at, end)
		if end > at {
			x.again(end)
			at = end
		} else {
			at += x.width(at)
		}
	}
	return nil
}

// job is a way not yet tried.
type job struct {
	pc, at int32
	path   int32 // length of matcher.path there
}

type place struct{ won, at int32 }

// matcher is the memory of one search.
type matcher struct {
	*Pattern
	s     string
	meter *limits.Meter
	steps int     // not yet charged
	todo  []job   // a stack
	path  []place // how a lookaround's program came to where it is
	// How many elements todo and path may have; the first are not charged.
	paidTodo, paidPath int
	// pages are bits by row and place; each covers 1<<shift places and is there once one of
	// them is tried.
	pages [][]uint64
	spare [][]uint64
	shift uint
	low   int // first page that may be in use
}

const (
	pageShift  = 12
	unpaid     = 1 << 10 // elements of todo and path that are not charged
	jobBytes   = 12
	placeBytes = 8
	someSteps  = 1 << 12
)

func (x *matcher) begin(p *Pattern, s string, m *limits.Meter) {
	x.Pattern, x.s, x.meter = p, s, m
	shift := uint(6)
	for shift < pageShift && len(s)>>shift > 0 {
		shift++
	}
	if shift != x.shift {
		x.shift, x.spare = shift, nil
	}
	n := len(s)>>shift + 1
	if cap(x.pages) < n {
		x.pages = make([][]uint64, n)
	}
	x.pages = x.pages[:n]
	x.low, x.steps = 0, 0
	x.todo, x.path = x.todo[:0], x.path[:0]
	x.paidTodo, x.paidPath = unpaid, unpaid
}

// end makes x ready for another text.
func (x *matcher) end() {
	x.drop(len(x.pages))
	if len(x.spare) > 2 {
		x.spare = x.spare[:2]
	}
	if cap(x.todo) > unpaid || cap(x.path) > unpaid {
		x.todo, x.path = nil, nil
	}
	if cap(x.pages) > unpaid {
		x.pages = nil
	}
	x.meter.Free(jobBytes*(x.paidTodo-unpaid) + placeBytes*(x.paidPath-unpaid))
	x.s, x.meter = "", nil
}

// forget drops the pages before a place: later matches start after them.
func (x *matcher) forget(at int) {
	if at >= x.pageEnd() {
		x.drop(at >> x.shift)
	}
}

func (x *matcher) pageEnd() int { return (x.low + 1) << x.shift }

func (x *matcher) drop(to int) {
	for ; x.low < to; x.low++ {
		if page := x.pages[x.low]; page != nil {
			clear(page)
			x.spare = append(x.spare, page)
			x.pages[x.low] = nil
			x.meter.Free(8 * len(page))
		}
	}
}

// page returns the page of a place.
func (x *matcher) page(at int32) ([]uint64, error) {
	i := int(at) >> x.shift
	if page := x.pages[i]; page != nil {
		return page, nil
	}
	n := int(x.rows) << x.shift / 64
	if err := x.meter.Alloc(8 * n); err != nil {
		return nil, err
	}
	if i < x.low {
		x.low = i // a look behind
	}
	var page []uint64
	if k := len(x.spare); k > 0 {
		page, x.spare = x.spare[k-1], x.spare[:k-1]
	} else {
		page = make([]uint64, n)
	}
	x.pages[i] = page
	return page, nil
}

// bit returns where the bit of a row and a place is in its page.
func (x *matcher) bit(row, at int32) (word int, mask uint64) {
	i := uint(row)<<x.shift | uint(at)&(1<<x.shift-1)
	return int(i / 64), 1 << (i % 64)
}

// again lets the next search try all instructions at the place where a match ended. They were
// tried there without having failed.
func (x *matcher) again(at int) {
	page := x.pages[at>>x.shift]
	if page == nil {
		return
	}
	for _, row := range x.plain {
		w, mask := x.bit(row, int32(at))
		page[w] &^= mask
	}
}

// pay charges one more element of a stack of n if fewer are paid.
func (x *matcher) pay(n int, paid *int, size int) error {
	if n < *paid {
		return nil
	}
	if err := x.meter.Alloc(size * *paid); err != nil {
		return err
	}
	*paid *= 2
	return nil
}

// width returns the number of bytes of the character at a place.
func (x *matcher) width(at int) int {
	_, w := utf8.DecodeRuneInString(x.s[at:])
	return max(w, 1)
}

// run returns the end of the match from pc and at, or -1.
func (x *matcher) run(pc int32, from int) (int, error) {
	base, path := len(x.todo), len(x.path)
	x.todo = append(x.todo, job{pc, int32(from), int32(path)})
	for len(x.todo) > base {
		j := x.todo[len(x.todo)-1]
		x.todo = x.todo[:len(x.todo)-1]
		x.path = x.path[:j.path]
		end, err := x.try(j.pc, j.at)
		if err != nil {
			return 0, err
		}
		if end < 0 {
			continue
		}
		for _, p := range x.path[path:] {
			w, mask := x.bit(p.won, p.at)
			x.pages[p.at>>x.shift][w] |= mask
		}
		x.todo, x.path = x.todo[:base], x.path[:path]
		return end, nil
	}
	x.path = x.path[:path]
	return -1, nil
}

// try follows one way until it fails (-1) or matches. It leaves the others in todo.
func (x *matcher) try(pc, at int32) (int, error) {
	s := x.s
	for {
		if x.steps++; x.steps == someSteps {
			if err := x.meter.Step(someSteps); err != nil {
				return 0, err
			}
			x.steps = 0
		}
		in := &x.prog[pc]
		if in.row >= 0 {
			page, err := x.page(at)
			if err != nil {
				return 0, err
			}
			w, mask := x.bit(in.row, at)
			if page[w]&mask != 0 {
				if in.won >= 0 {
					if w, mask := x.bit(in.won, at); page[w]&mask != 0 {
						return int(at), nil
					}
				}
				return -1, nil
			}
			page[w] |= mask
			if in.won >= 0 {
				if err := x.pay(len(x.path), &x.paidPath, placeBytes); err != nil {
					return 0, err
				}
				x.path = append(x.path, place{in.won, at})
			}
		}
		switch in.op {
		case opMatch:
			return int(at), nil
		case opSet:
			if int(at) == len(s) {
				return -1, nil
			}
			r, w := rune(s[at]), 1
			if r >= utf8.RuneSelf {
				r, w = utf8.DecodeRuneInString(s[at:])
			}
			if !in.set.has(r) {
				return -1, nil
			}
			at += int32(w)
		case opSplit:
			if err := x.pay(len(x.todo), &x.paidTodo, jobBytes); err != nil {
				return 0, err
			}
			x.todo = append(x.todo, job{in.alt, at, int32(len(x.path))})
		default:
			ok, err := x.holds(in, at)
			if err != nil {
				return 0, err
			}
			if !ok {
				return -1, nil
			}
		}
		pc = in.next
	}
}

// holds reports whether an assertion holds at a place.
func (x *matcher) holds(in *inst, at int32) (bool, error) {
	switch in.op {
	case opLineStart:
		return at == 0 || x.s[at-1] == '\n', nil
	case opLineEnd:
		return int(at) == len(x.s) || x.s[at] == '\n', nil
	case opWordEdge, opNotWordEdge:
		before, _ := utf8.DecodeLastRuneInString(x.s[:at])
		after, _ := utf8.DecodeRuneInString(x.s[at:])
		edge := (at > 0 && isWord(before)) != (int(at) < len(x.s) && isWord(after))
		return edge == (in.op == opWordEdge), nil
	}
	from := int(at)
	for range in.wide {
		if from == 0 {
			return in.op == opNotLook, nil
		}
		_, w := utf8.DecodeLastRuneInString(x.s[:from])
		from -= w
	}
	end, err := x.run(in.alt, from)
	return end >= 0 == (in.op == opLook), err
}
