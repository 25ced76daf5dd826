//go:build gpu && linux && cgo

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"

	"talf/compute"
	"talf/internal/mapped"
)

// Weights are stored in groups of 32 outputs and units of 32 inputs. kernels.cu
// describes the layout.
const (
	group = 32
	unit  = 32
)

// A weight is a matrix in the layout of its type. As Q4 it keeps the integers of one kind of blocks, or it is a stack
// of several runs, each of consecutive outputs in one layout: Q4 of a kind, or Q8.
type weight struct {
	dev     *device
	t       compute.DType
	kind    compute.Kept // of Q4 that is no stack
	out, in int
	splits  int // parts of the inputs that different blocks sum
	mem     *block
	use     layout    // the kernels; of a stack, rows alone
	first   int       // the output of a stack that its own first one is
	runs    []*weight // of a stack; this weight's mem is nil
}

func (w *weight) Out() int { return w.out }
func (w *weight) In() int  { return w.in }

// Bytes returns the memory that a product reads.
func (w *weight) Bytes() int {
	n := 0
	for _, r := range w.all() {
		n += int(r.mem.size)
	}
	return n
}

// all returns the runs of a stack, or the weight itself.
func (w *weight) all() []*weight {
	if w.runs != nil {
		return w.runs
	}
	return []*weight{w}
}

// like reports whether each output of two weights of one size is in the same layout.
func (w *weight) like(o *weight) bool {
	return w.t == o.t && w.kind == o.kind && slices.EqualFunc(w.runs, o.runs, func(a, b *weight) bool { return a.out == b.out && a.like(b) })
}

func (w *weight) groups() int { return (w.out + group - 1) / group }
func (w *weight) units() int  { return (w.in + unit - 1) / unit }

// groupBytes returns the bytes of a group without scales, and of its scales.
func (w *weight) groupBytes() (data, scales int) {
	switch n := w.units(); w.t {
	case compute.F32:
		return n * group * unit * 4, 0
	case compute.BF16:
		return n * group * unit * 2, 0
	case compute.Q4:
		f := &fours[w.kind]
		return n*f.unit + n/8*f.shared, 0
	default:
		return n * group * unit, n * group * 2
	}
}

// splitsOf returns how many blocks share the inputs of an output: enough to occupy 132
// multiprocessors twice, while each of a block's 8 warps keeps 4 units. It depends only on the
// weight's shape, because the order of sums must.
func splitsOf(groups, units int) int {
	s := 1
	for groups*s < 264 && 2*s*8*4 <= units {
		s *= 2
	}
	return s
}

func (d *device) weightOf(op string, w compute.Weight) *weight {
	p, ok := w.(*weight)
	if !ok || p.dev != d {
		panic("cuda: " + op + ": a weight of another device")
	}
	return p
}

// Pack packs parts, stacked, as F32, BF16, Q8 or Q4, a few groups at a time.
func (d *device) Pack(as compute.DType, parts ...compute.Matrix) (compute.Weight, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("cuda: pack: no matrix")
	}
	w := &weight{dev: d, t: as, in: parts[0].Cols}
	for i, m := range parts {
		if m.Rows < 1 || m.Cols < 1 || m.Cols != w.in {
			return nil, fmt.Errorf("cuda: pack: part %d is [%d][%d], the first [%d][%d]", i, m.Rows, m.Cols, parts[0].Rows, w.in)
		}
		size := m.Type.Size()
		switch m.Type {
		case compute.F32, compute.F16, compute.BF16:
		case compute.Blocks:
			if err := m.CheckBlocks(); err != nil {
				return nil, fmt.Errorf("cuda: pack: part %d: %w", i, err)
			}
			w.out += m.Rows
			continue
		case compute.Q8:
			size = 1
			if n := m.Rows * blocksOf(m.Cols) * 2; len(m.Scales) != n {
				return nil, fmt.Errorf("cuda: pack: part %d has %d bytes of scales, want %d for Q8 [%d][%d]", i, len(m.Scales), n, m.Rows, m.Cols)
			}
		default:
			return nil, fmt.Errorf("cuda: pack: part %d is %v, want F32, F16, BF16, Q8 or blocks", i, m.Type)
		}
		if n, err := elements([]int{m.Rows, m.Cols}); err != nil || len(m.Data) != n*size {
			return nil, fmt.Errorf("cuda: pack: part %d has %d bytes, want %d for %v [%d][%d]",
				i, len(m.Data), n*size, m.Type, m.Rows, m.Cols)
		}
		w.out += m.Rows
	}
	if as != compute.F32 && as != compute.BF16 && as != compute.Q8 && as != compute.Q4 {
		return nil, fmt.Errorf("cuda: pack as %v: want F32, BF16, Q8 or Q4", as)
	}
	w.splits = splitsOf(w.groups(), w.units())
	if as == compute.Q4 {
		return d.packRuns(w, parts)
	}
	if _, err := d.pack(w, parts); err != nil {
		return nil, err
	}
	return w, nil
}

// pack fills a weight whose sizes and layout are set.
func (d *device) pack(w *weight, parts []compute.Matrix) (*weight, error) {
	w.use = w.layout()
	data, scales := w.groupBytes()
	var err error
	w.mem, err = d.alloc(fmt.Sprintf("weights %v [%d][%d]", w.t, w.out, w.in), int64(w.groups())*int64(data+scales), false)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	p := &packing{w: w, parts: parts}
	const piece = 32 << 20
	step := max(1, min(w.groups(), piece/(data+scales)))
	p.data, p.scales = make([]byte, step*data), make([]byte, step*scales)
	for g := 0; g < w.groups(); g += step {
		n := min(step, w.groups()-g)
		p.run(g, n)
		if err := p.ended.Load(); err != nil {
			return nil, *err
		}
		err := d.upload(w.mem.ptr+uint64(g*data), p.data[:n*data])
		if err == nil {
			err = d.upload(w.mem.ptr+uint64(w.groups()*data+g*scales), p.scales[:n*scales])
		}
		if err != nil {
			return nil, fmt.Errorf("cuda: pack [%d][%d]: %w", w.out, w.in, err)
		}
	}
	return w, nil
}

// A packing is a piece of a weight on its way to the device.
type packing struct {
	w            *weight
	parts        []compute.Matrix
	data, scales []byte
	ended        atomic.Pointer[error] // of a part's Done
}

// run packs n groups from the g-th on.
func (p *packing) run(g, n int) {
	data, scales := p.w.groupBytes()
	var next atomic.Int64
	var all mapped.Group
	for range min(n, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			row := make([]float32, p.w.units()*unit)
			for {
				i := int(next.Add(1)) - 1
				if i >= n || p.ended.Load() != nil {
					return
				}
				p.group(g+i, p.data[i*data:][:data], p.scales[i*scales:][:scales], row)
			}
		})
	}
	all.Wait()
}

// group packs one group. row has room for a row of whole units.
func (p *packing) group(g int, data, scales []byte, row []float32) {
	w := p.w
	if w.t == compute.Q4 {
		p.four(g, data)
		return
	}
	for j := range group {
		m, r := p.part(g*group + j)
		clear(row)
		exact := m != nil && m.Type == compute.Q8 // q8 as stored
		var ints, halves []byte
		if w.t == compute.Q8 && m != nil && m.Type == compute.Blocks {
			ints, halves = make([]byte, w.in), make([]byte, 2*blocksOf(w.in))
			if exact = m.Block.Q8(ints, halves, m.Row(r, 0, w.in)); exact {
				m, r = &compute.Matrix{Rows: 1, Cols: w.in, Type: compute.Q8, Data: ints, Scales: halves}, 0
			}
		}
		if m != nil && (w.t != compute.Q8 || !exact) {
			decode(row[:w.in], m, r)
		}
		switch w.t {
		case compute.F32:
			for k, v := range row {
				binary.LittleEndian.PutUint32(data[((k/4*group+j)*4+k%4)*4:], math.Float32bits(v))
			}
		case compute.BF16:
			for k, v := range row {
				binary.LittleEndian.PutUint16(data[((j/16*w.units()*2+k/16)*256+fragment(j, k))*2:], bfloat(v))
			}
		default:
			for u := range w.units() {
				var q [unit]int8
				var h uint16
				if exact {
					h = stored(q[:], m, r, u)
				} else {
					// The padding after the row's end is zero and does not affect its scale.
					h = quantise(q[:], row[u*unit:][:unit])
				}
				p.q8(data, scales, j, u, &q, h)
			}
		}
	}
	p.done(g*group, min((g+1)*group, w.out))
}

// q8 packs one unit of output j of a group: integers and their scale.
func (p *packing) q8(data, scales []byte, j, u int, q *[unit]int8, h uint16) {
	at := j/16*p.w.units() + u
	for k, v := range q {
		f := fragment(j, k)
		data[at*512+f/8*16+k/16*8+f%8/4*4+f%2*2+f%4/2] = byte(int(v) + 128)
	}
	binary.LittleEndian.PutUint16(scales[(at*16+j%8*2+j%16/8)*2:], h)
}

// stored copies unit u of a row of Q8 unchanged and returns its scale.
func stored(q []int8, m *compute.Matrix, row, u int) uint16 {
	src := m.Data[row*m.Cols:][:m.Cols][u*unit:]
	for k := range min(unit, len(src)) {
		q[k] = int8(src[k])
	}
	return binary.LittleEndian.Uint16(m.Scales[(row*blocksOf(m.Cols)+u)*2:])
}

// fragment returns the index of element (o,k) of a tile of 16 outputs and 16 inputs in
// its fragments, 8 elements per lane.
func fragment(o, k int) int {
	return (o%8*4+k%8/2)*8 + (k%16/8*2+o%16/8)*2 + k%2
}

// part returns the matrix that output o comes from and its row there, or nil past the
// last output.
func (p *packing) part(o int) (*compute.Matrix, int) {
	for i := range p.parts {
		if m := &p.parts[i]; o < m.Rows {
			return m, o
		}
		o -= p.parts[i].Rows
	}
	return nil, 0
}

// done reports rows [lo,hi) of the stack as packed to the matrices that have them.
func (p *packing) done(lo, hi int) {
	for i := range p.parts {
		m := &p.parts[i]
		if from, to := max(lo, 0), min(hi, m.Rows); from < to && m.Done != nil {
			size := len(m.Data) / m.Rows
			if err := m.Done(from*size, to*size); err != nil {
				p.ended.CompareAndSwap(nil, &err)
			}
		}
		lo, hi = lo-m.Rows, hi-m.Rows
	}
}
