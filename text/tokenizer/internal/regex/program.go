package regex

import "fmt"

type op uint8

const (
	opMatch     op = iota
	opSet          // one character, then next
	opSplit        // next, and if that fails, alt
	opLook         // go on with next if the program at alt matches here or, behind, wide characters before
	opNotLook      // … if it does not
	opLineStart    // the assertions: go on with next
	opLineEnd
	opWordEdge
	opNotWordEdge
)

// inst is an instruction. There are no loops that consume nothing, because the parser refuses
// them.
type inst struct {
	op        op
	next, alt int32
	wide      int32 // of opLook and opNotLook: characters to step back
	// row is the row of the table of tried places, if several ways lead here, or -1: each way
	// to other instructions comes from one that is in the table, so they are tried once too.
	row int32
	// won is the row of places from which the end of a lookaround's program is reached, or -1.
	won int32
	set *set
}

type compiler struct {
	prog []inst
	err  error
}

func (c *compiler) add(in inst) int32 {
	if len(c.prog) == maxProgram {
		if c.err == nil {
			c.err = fmt.Errorf("more than %d steps with its repetitions written out", maxProgram)
		}
		return 0
	}
	c.prog = append(c.prog, in)
	return int32(len(c.prog) - 1)
}

// emit adds the instructions that match n and go on at next, and returns their first.
func (c *compiler) emit(n node, next int32) int32 {
	if c.err != nil {
		return 0
	}
	switch n := n.(type) {
	case one:
		return c.add(inst{op: opSet, set: n.set, next: next})
	case assert:
		return c.add(inst{op: n.kind, next: next})
	case all:
		for i := len(n.parts) - 1; i >= 0; i-- {
			next = c.emit(n.parts[i], next)
		}
		return next
	case either:
		at := c.emit(n.parts[len(n.parts)-1], next)
		for i := len(n.parts) - 2; i >= 0; i-- {
			at = c.add(inst{op: opSplit, next: c.emit(n.parts[i], next), alt: at})
		}
		return at
	case repeat:
		return c.repeat(n, next)
	case look:
		return c.look(n, next)
	}
	return next
}

func (c *compiler) split(body, next int32, lazy bool) inst {
	if lazy {
		body, next = next, body
	}
	return inst{op: opSplit, next: body, alt: next}
}

func (c *compiler) repeat(n repeat, next int32) int32 {
	at, copies := next, n.min
	if n.max < 0 {
		at = c.add(inst{})
		body := c.emit(n.part, at)
		c.prog[at] = c.split(body, next, n.lazy)
		if copies > 0 {
			at = body
			copies--
		}
	} else {
		for range n.max - n.min {
			if c.err != nil {
				return 0
			}
			at = c.add(c.split(c.emit(n.part, at), next, n.lazy))
		}
	}
	for range copies {
		if c.err != nil {
			return 0
		}
		at = c.emit(n.part, at)
	}
	return at
}

func (c *compiler) look(n look, next int32) int32 {
	if e, ok := n.part.(either); ok && n.behind {
		// Each alternative has a width of its own.
		at := int32(-1)
		for i := len(e.parts) - 1; i >= 0; i-- {
			l := look{e.parts[i], n.negate, true}
			switch {
			case n.negate:
				next = c.look(l, next) // none may match
			case at < 0:
				at = c.look(l, next)
			default:
				at = c.add(inst{op: opSplit, next: c.look(l, next), alt: at})
			}
		}
		if n.negate {
			return next
		}
		return at
	}
	in := inst{op: opLook, next: next}
	if n.negate {
		in.op = opNotLook
	}
	if n.behind {
		lo, hi, bounded := width(n.part)
		if lo != hi || !bounded || hi > maxProgram {
			if c.err == nil {
				c.err = unsupported("a look behind of variable width")
			}
			return 0
		}
		in.wide = int32(lo)
	}
	in.alt = c.emit(n.part, c.add(inst{op: opMatch}))
	return c.add(in)
}

// rows fills in row and won, and returns how many there are.
func rows(prog []inst, start int32) (n int32) {
	ways := make([]int, len(prog))
	inside := make([]bool, len(prog)) // of a lookaround
	seen := make([]bool, len(prog))
	ways[start]++
	todo := []int32{start}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		in := &prog[at]
		to := []int32{in.next, in.alt}
		switch in.op {
		case opMatch:
			continue
		case opSplit:
		case opLook, opNotLook:
			inside[in.alt] = true
		default:
			to = to[:1]
		}
		for _, t := range to {
			ways[t]++
			inside[t] = inside[t] || inside[at]
			todo = append(todo, t)
		}
	}
	for i := range prog {
		in := &prog[i]
		in.row, in.won = -1, -1
		if ways[i] > 1 {
			in.row = n
			n++
			if inside[i] {
				in.won = n
				n++
			}
		}
	}
	return n
}
