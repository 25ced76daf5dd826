package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// hold keeps constants in registers, as many of them as there are beside so many busy ones: processors load no more
// registers in a cycle than they multiply.
func (f *frame) hold(busy int, names ...string) {
	f.held = map[string]reg.VecVirtual{}
	for _, name := range names[:max(0, min(len(names), f.registers-busy))] {
		f.held[name] = f.vec()
		f.VMOVDQU(f.consts[name], f.held[name])
	}
}

// constant returns a constant that may be held.
func (f *frame) constant(name string) operand.Op {
	if v, ok := f.held[name]; ok {
		return v
	}
	return f.consts[name]
}

// A column is a register of outputs of each row.
type column struct {
	at     int                          // from the first register of a row on
	scales func() (d, m reg.VecVirtual) // m is nil without minima
	sum    func(r int)                  // makes row r's sum that of its outputs' integers; nil: it is
}

// scale turns the integers' sums of each row's columns into outputs and adds these; minima are added if plus is set,
// and else subtracted. What a row has for all columns is read once if registers suffice.
func (f *frame) scale(sums [][]reg.VecVirtual, minima, plus bool, cols ...column) {
	busy := len(f.held) + len(sums)*len(sums[0]) + 2*len(f.outputs) + len(cols) + 1
	if minima {
		busy += len(cols) + 1
	}
	if busy > f.registers && len(cols) > 1 {
		for i := range cols {
			one := make([][]reg.VecVirtual, len(sums))
			for r := range sums {
				one[r] = sums[r][i:][:1]
			}
			f.scale(one, minima, plus, cols[i])
		}
		return
	}
	d, m := make([]reg.VecVirtual, len(cols)), make([]reg.VecVirtual, len(cols))
	for i, c := range cols {
		d[i], m[i] = c.scales()
	}
	with, bcst := f.VFNMADD231PS, f.VFNMADD231PS_BCST
	if plus {
		with, bcst = f.VFMADD231PS, f.VFMADD231PS_BCST
	}
	for r := range sums {
		var s, all reg.VecVirtual
		if minima && !f.wide() {
			all = f.vec()
			f.VBROADCASTSS(f.arow(r, q8ASum), all)
		}
		for i, c := range cols {
			if c.sum != nil {
				c.sum(r)
			}
			v := sums[r][i]
			f.VCVTDQ2PS(v, v)
			f.VMULPS(d[i], v, v)
			switch {
			case all != nil:
				with(all, m[i], v)
			case minima:
				bcst(f.arow(r, q8ASum), m[i], v)
			}
			if f.outputs != nil {
				f.VFMADD231PS_BCST(f.arow(r, q8AScale), v, f.outputs[r][c.at])
				continue
			}
			if s == nil {
				s = f.vec()
				f.VBROADCASTSS(f.arow(r, q8AScale), s)
			}
			o := f.crow(r, 4*f.width*c.at)
			f.VFMADD213PS(o, s, v)
			f.VMOVUPS(v, o)
		}
	}
}
