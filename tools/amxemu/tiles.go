package main

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	tileCount = 8
	tileRows  = 16
	rowBytes  = 64
)

// memory is what tile loads and stores access. Both move rows of len(row) bytes at addr +
// i·stride and return the first row that could not be moved, len(rows) if all were.
type memory interface {
	read(addr, stride uint64, rows [][]byte) int
	write(addr, stride uint64, rows [][]byte) int
}

// A fault is the reason why an instruction was not executed.
type fault struct {
	kind   faultKind
	addr   uint64 // of a pageFault
	reason string
}

type faultKind uint8

const (
	undefined  faultKind = iota // #UD
	protection                  // #GP
	pageFault                   // #PF
)

func (f *fault) Error() string { return f.reason }

func ud(format string, args ...any) error {
	return &fault{kind: undefined, reason: fmt.Sprintf(format, args...)}
}

// A tile's rows and the bytes of each row are zero beyond its shape.
type tile [tileRows][rowBytes]byte

type shape struct{ rows, cols int } // cols in bytes

// tiles is one thread's state. The zero value is the initial one.
type tiles struct {
	config     [64]byte
	configured bool
	shape      [tileCount]shape
	tile       [tileCount]tile
}

// execute runs i, whose memory operand is at addr with the given row stride.
func (s *tiles) execute(i inst, addr, stride uint64, m memory) error {
	switch i.op {
	case ldTileCfg:
		var c [64]byte
		if m.read(addr, 0, [][]byte{c[:]}) == 0 {
			return &fault{pageFault, addr, fmt.Sprintf("ldtilecfg cannot read %#x", addr)}
		}
		return s.configure(&c)
	case stTileCfg:
		if m.write(addr, 0, [][]byte{s.config[:]}) == 0 {
			return &fault{pageFault, addr, fmt.Sprintf("sttilecfg cannot write %#x", addr)}
		}
		return nil
	case tileRelease:
		*s = tiles{}
		return nil
	}
	if !s.configured {
		return ud("%v without a configuration", i.op)
	}
	switch i.op {
	case tileZero:
		if s.shape[i.t].rows == 0 {
			return ud("tilezero of tile %d, which has no rows", i.t)
		}
		s.tile[i.t] = tile{}
		return nil
	case tileLoad, tileLoadT1, tileStore:
		return s.move(i, addr, stride, m)
	default:
		return s.product(i)
	}
}

// configure is LDTILECFG. A start row other than 0, where an interrupted load would continue, is
// refused, because nothing interrupts a load here.
func (s *tiles) configure(c *[64]byte) error {
	bad := func(format string, args ...any) error {
		return &fault{kind: protection, reason: "ldtilecfg: " + fmt.Sprintf(format, args...)}
	}
	next := tiles{config: *c}
	switch {
	case c[0] == 0:
		*s = tiles{}
		return nil
	case c[0] != 1:
		return bad("palette %d", c[0])
	case c[1] != 0:
		return bad("start row %d", c[1])
	}
	for i, b := range c {
		if reserved := i >= 2 && i < 16 || i >= 32 && i < 48 || i >= 56; reserved && b != 0 {
			return bad("reserved byte %d is %d", i, b)
		}
	}
	for t := range next.shape {
		sh := shape{rows: int(c[48+t]), cols: int(binary.LittleEndian.Uint16(c[16+2*t:]))}
		if sh.rows > tileRows || sh.cols > rowBytes || (sh.rows == 0) != (sh.cols == 0) {
			return bad("tile %d has %d rows of %d bytes", t, sh.rows, sh.cols)
		}
		next.shape[t] = sh
	}
	next.configured = true
	*s = next
	return nil
}

func (s *tiles) move(i inst, addr, stride uint64, m memory) error {
	sh := s.shape[i.t]
	if sh.rows == 0 || sh.cols%4 != 0 {
		return ud("%v of tile %d, which has %d rows of %d bytes", i.op, i.t, sh.rows, sh.cols)
	}
	t := &s.tile[i.t]
	if i.op != tileStore {
		*t = tile{}
	}
	var rows [tileRows][]byte
	for r := range sh.rows {
		rows[r] = t[r][:sh.cols]
	}
	f, verb := m.read, "read"
	if i.op == tileStore {
		f, verb = m.write, "write"
	}
	if r := f(addr, stride, rows[:sh.rows]); r < sh.rows {
		at := addr + uint64(r)*stride
		return &fault{pageFault, at, fmt.Sprintf("%v cannot %s row %d of tile %d at %#x", i.op, verb, r, i.t, at)}
	}
	return nil
}

// product implements every TDP instruction: exception class AMX-E4, then the sums.
func (s *tiles) product(i inst) error {
	c, a, b := s.shape[i.t], s.shape[i.a], s.shape[i.b]
	switch {
	case i.t == i.a || i.t == i.b || i.a == i.b:
		return ud("%v with tiles %d, %d, %d, which must differ", i.op, i.t, i.a, i.b)
	case c.rows == 0 || a.rows == 0 || b.rows == 0:
		return ud("%v with tiles %d, %d, %d, one of which has no rows", i.op, i.t, i.a, i.b)
	case c.cols%4 != 0 || a.cols%4 != 0 || b.cols%4 != 0:
		return ud("%v with rows of %d, %d, %d bytes, which are no whole words", i.op, c.cols, a.cols, b.cols)
	case c.rows != a.rows || c.cols != b.cols || a.cols/4 != b.rows:
		return ud("%v of %d rows of %d bytes by %d rows of %d bytes into %d rows of %d bytes",
			i.op, a.rows, a.cols, b.rows, b.cols, c.rows, c.cols)
	}
	words := func(t int) *[tileRows][rowBytes / 4]uint32 {
		var w [tileRows][rowBytes / 4]uint32
		for r := range w {
			for j := range w[r] {
				w[r][j] = binary.LittleEndian.Uint32(s.tile[t][r][4*j:])
			}
		}
		return &w
	}
	wc, wa, wb := words(i.t), words(i.a), words(i.b)
	sum := bytesProduct(i.op)
	if i.op == tdpBF16PS {
		sum = bf16Product
	}
	for r := range c.rows {
		sum(wc[r][:c.cols/4], wa[r][:a.cols/4], wb)
		for j, w := range wc[r] {
			binary.LittleEndian.PutUint32(s.tile[i.t][r][4*j:], w)
		}
	}
	return nil
}

// bytesProduct adds to c, as int32, the products of a's bytes with those of b.
func bytesProduct(op opcode) func(c, a []uint32, b *[tileRows][rowBytes / 4]uint32) {
	widen := func(w uint32, i int, signed bool) int32 {
		if v := byte(w >> (8 * i)); signed {
			return int32(int8(v))
		} else {
			return int32(v)
		}
	}
	signedA := op == tdpBSSD || op == tdpBSUD
	signedB := op == tdpBSSD || op == tdpBUSD
	return func(c, a []uint32, b *[tileRows][rowBytes / 4]uint32) {
		for k, x := range a {
			for j := range c {
				var sum int32
				for i := range 4 {
					sum += widen(x, i, signedA) * widen(b[k][j], i, signedB)
				}
				c[j] += uint32(sum)
			}
		}
	}
}

// bf16Product is a row of TDPBF16PS: two chains of fused multiply-adds from zero,
// of the low and of the high halves of the words, whose sum is added to c.
func bf16Product(c, a []uint32, b *[tileRows][rowBytes / 4]uint32) {
	var low, high [rowBytes / 4]float32
	for k, x := range a {
		xl, xh := daz(x<<16), daz(x&0xffff0000)
		for j := range c {
			y := b[k][j]
			low[j] = fma(xl, daz(y<<16), low[j])
			high[j] = fma(xh, daz(y&0xffff0000), high[j])
		}
	}
	for j, w := range c {
		c[j] = math.Float32bits(add(daz(w), add(low[j], high[j])))
	}
}

const minNormal = 0x1p-126

// daz returns the float32 with bits u; subnormals become zeros of their sign.
func daz(u uint32) float32 {
	if u&0x7f800000 == 0 {
		u &= 1 << 31
	}
	return math.Float32frombits(u)
}

// fma returns a·b+c rounded once to nearest even. A result that is tiny after rounding with an
// unbounded exponent, as x86 defines tininess, becomes a zero of its sign.
func fma(a, b, c float32) float32 {
	// The product of two bfloat16 is exact. If the float64 sum s is not exact, it is corrected
	// to odd, so that rounding it again is the same as rounding the exact sum.
	p, z := float64(a)*float64(b), float64(c)
	s := p + z
	d := s - p
	e := (p - (s - d)) + (z - d)
	if u := math.Float64bits(s); (e > 0 || e < 0) && u&1 == 0 {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return flush(s)
}

// add returns a+b with the same treatment of tiny results. A float64 sum of two float32, rounded
// again, is correctly rounded.
func add(a, b float32) float32 { return flush(float64(a) + float64(b)) }

// flush rounds s to float32 with 24 bits whatever its exponent, and makes results below the
// normal numbers zero.
func flush(s float64) float32 {
	const half = minNormal * (1 - 0x1p-25) // rounds to minNormal, the even neighbour
	switch t := math.Abs(s); {
	case t < half:
		return float32(math.Copysign(0, s))
	case t < minNormal:
		return float32(math.Copysign(minNormal, s))
	}
	return float32(s)
}
