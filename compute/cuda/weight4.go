//go:build gpu && linux && cgo

package cuda

import (
	"encoding/binary"

	"talf/compute"
)

// Weights as Q4 keep the integers and scales of blocks of three kinds, and pack others as Q8, which has Q5_0, IQ4_NL and
// most of MXFP4 exactly. kernels/four.cu describes the layouts.

// fours are the bytes of a unit of a group, and of the scales that eight units share.
var fours = [...]struct{ unit, shared int }{
	compute.KeptQ4_0: {fourScales + group*unit/2, 0},
	compute.KeptQ4_K: {fourScales + group*unit/2, 4 * group},
	compute.KeptQ6_K: {fourScales + group*unit/4*3, 2 * group},
}

// fourScales is the bytes of a unit's scales, which come before its integers.
const fourScales = 2 * group

// packRuns packs parts as Q4: those in blocks that it keeps by their integers, each kind by itself, others as Q8. All
// sum their inputs as the whole would: products with the integers of blocks have the bits that they have in Q8.
func (d *device) packRuns(w *weight, parts []compute.Matrix) (compute.Weight, error) {
	var begin []int // indices of parts
	for i := range parts {
		if i == 0 || keptOf(&parts[i]) != keptOf(&parts[i-1]) {
			begin = append(begin, i)
		}
	}
	for i, from := range begin {
		to := len(parts)
		if i+1 < len(begin) {
			to = begin[i+1]
		}
		run := &weight{dev: d, in: w.in, splits: w.splits}
		run.t, run.kind = formatOf(compute.Q4, keptOf(&parts[from]))
		if n := len(w.runs); n > 0 {
			run.first = w.runs[n-1].first + w.runs[n-1].out
		}
		for _, m := range parts[from:to] {
			run.out += m.Rows
		}
		if _, err := d.pack(run, parts[from:to]); err != nil {
			return nil, err
		}
		w.runs = append(w.runs, run)
		w.use.rows = max(w.use.rows, run.use.rows)
	}
	if len(w.runs) == 1 {
		return w.runs[0], nil
	}
	return w, nil
}

// keeps reports whether there is a layout for blocks of a kind.
func keeps(k compute.Kept) bool { return k != compute.NotKept && int(k) < len(fours) }

// keptOf returns the kind of blocks that Q4 keeps of a matrix.
func keptOf(m *compute.Matrix) compute.Kept {
	if m.Type == compute.Blocks && keeps(m.Block.Kept()) {
		return m.Block.Kept()
	}
	return compute.NotKept
}

// formatOf returns the layout of a weight of a type: as Q4, of one in blocks of a kind.
func formatOf(as compute.DType, kept compute.Kept) (compute.DType, compute.Kept) {
	switch {
	case as != compute.Q4:
		return as, compute.NotKept
	case !keeps(kept):
		return compute.Q8, compute.NotKept
	}
	return compute.Q4, kept
}

// four reports whether a weight was packed as Q4, or may have been.
func (w *weight) four() bool { return w.t == compute.Q4 || w.t == compute.Q8 }

// four packs group g of a weight as Q4.
func (p *packing) four(g int, data []byte) {
	w := p.w
	f := &fours[w.kind]
	clear(data)
	ints, scales := make([]byte, w.in), make([]byte, w.in/8)
	for j := range group {
		m, r := p.part(g*group + j)
		if m == nil {
			break
		}
		m.Block.Integers(ints, scales, m.Row(r, 0, w.in))
		for u := range w.units() {
			shared, to := data[u/8*(8*f.unit+f.shared):], data[u*f.unit+(u/8+1)*f.shared:]
			fourInts(to[fourScales:], j, ints[u*unit:][:unit], w.kind == compute.KeptQ6_K)
			// Of the outputs g, g+8, g+16 and g+24, the first two are one tile's, and then come the other's.
			at, row := j%8*2+j/16, j%16/8
			own, u8 := to[at*4:][:4], u%8
			switch w.kind {
			case compute.KeptQ4_0:
				copy(own[2*row:][:2], scales[2*u:])
			case compute.KeptQ4_K:
				s := scales[u/8*20:][:20] // as compute.Kept has them
				own[row], own[2+row] = s[4+u8], s[12+u8]
				copy(shared[at*8+row*4:][:4], s)
			default:
				s := scales[u/8*18:][:18]
				own[row], own[2+row] = s[2+2*u8]+128, s[3+2*u8]+128
				copy(shared[at*4+row*2:][:2], s)
			}
		}
	}
	p.done(g*group, min((g+1)*group, w.out))
}

// fourInts packs the integers q of output j of a unit. A fragment's register is a pair of integers in the halves of a
// word, where it takes four or six bits; there are eight in a unit.
func fourInts(to []byte, j int, q []byte, six bool) {
	or := func(at int, v uint32) {
		binary.LittleEndian.PutUint32(to[at:], binary.LittleEndian.Uint32(to[at:])|v)
	}
	for k, v := range q {
		f := fragment(j, k)
		lane, i, side, v := f/8, k/16*4+f%8/2, f%2*16, uint32(v)
		word, last := lane*16+j/16*8, 512+lane*8+j/16*4
		switch {
		case !six:
			or(word+i/4*4, v<<(side+i%4*4))
		case i < 4:
			or(word+i/2*4, v<<(side+i%2*6))
		case i < 6:
			or(last, v<<(side+i%2*6))
		default:
			or(word+i%2*4, v&15<<(side+12))
			or(last, v>>4<<(side+2*i))
		}
	}
}
