package main

import (
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// flat is memory of len bytes starting at address 0x1000.
type flat []byte

const flatBase = 0x1000

func (f flat) move(addr, stride uint64, rows [][]byte, write bool) int {
	for i, row := range rows {
		at := addr + uint64(i)*stride - flatBase
		if at > uint64(len(f)) || at+uint64(len(row)) > uint64(len(f)) {
			return i
		}
		if write {
			copy(f[at:], row)
		} else {
			copy(row, f[at:])
		}
	}
	return len(rows)
}

func (f flat) read(addr, stride uint64, rows [][]byte) int { return f.move(addr, stride, rows, false) }

func (f flat) write(addr, stride uint64, rows [][]byte) int { return f.move(addr, stride, rows, true) }

// config returns palette 1 with tile i of shapes[i].
func config(shapes ...shape) *[64]byte {
	c := [64]byte{0: 1}
	for i, s := range shapes {
		binary.LittleEndian.PutUint16(c[16+2*i:], uint16(s.cols))
		c[48+i] = byte(s.rows)
	}
	return &c
}

func mustDo(t *testing.T, s *tiles, i inst, addr, stride uint64, m memory) {
	t.Helper()
	if err := s.execute(i, addr, stride, m); err != nil {
		t.Fatal(err)
	}
}

// Every product, over all shapes, is the sum that its name promises, and adds to the previous
// contents.
func TestIntegerProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		op               opcode
		signedA, signedB bool
	}{{tdpBSSD, true, true}, {tdpBSUD, true, false}, {tdpBUSD, false, true}, {tdpBUUD, false, false}} {
		for range 50 {
			m, n, k := 1+r.IntN(16), 1+r.IntN(16), 1+r.IntN(16)
			var s tiles
			if err := s.configure(config(shape{m, 4 * n}, shape{m, 4 * k}, shape{k, 4 * n})); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				for row := range s.shape[i].rows {
					for j := range s.shape[i].cols {
						s.tile[i][row][j] = byte(r.Uint32())
					}
				}
			}
			before := s
			mustDo(t, &s, inst{op: c.op, t: 0, a: 1, b: 2}, 0, 0, nil)
			val := func(b byte, signed bool) int64 {
				if signed {
					return int64(int8(b))
				}
				return int64(b)
			}
			for row := range tileRows {
				for j := range 16 {
					want := uint32(0)
					if row < m && j < n {
						sum := int64(binary.LittleEndian.Uint32(before.tile[0][row][4*j:]))
						for q := range 4 * k {
							sum += val(before.tile[1][row][q], c.signedA) * val(before.tile[2][q/4][4*j+q%4], c.signedB)
						}
						want = uint32(sum)
					}
					if got := binary.LittleEndian.Uint32(s.tile[0][row][4*j:]); got != want {
						t.Fatalf("%v %dx%dx%d: element %d,%d is %d, want %d", c.op, m, n, k, row, j, got, want)
					}
				}
			}
		}
	}
}

// round returns x rounded to nearest even with 24 bits and any exponent, and then, if that is
// below the normal numbers, a zero of its sign.
func round(x *big.Float, zero float32) float32 {
	if x.Sign() == 0 {
		return zero
	}
	y := new(big.Float).SetPrec(24).SetMode(big.ToNearestEven).Set(x)
	if y.MantExp(nil) < -125 { // |y| < 2⁻¹²⁶
		return float32(math.Copysign(0, float64(y.Sign())))
	}
	f, _ := y.Float32()
	return f
}

func exact(x float32) *big.Float { return new(big.Float).SetPrec(2000).SetFloat64(float64(x)) }

// The arithmetic is that of correctly rounded operations, as in math/big, with tiny results
// flushed after rounding.
func TestFMAIsRoundedOnceAndFlushed(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	bf16 := func(e int) float32 {
		return daz(uint32(r.Uint32()&0x807f)<<16 | uint32(min(max(127+e, 0), 254))<<23)
	}
	hits := 0
	for range 300000 {
		ea, eb := r.IntN(160)-80, r.IntN(160)-80
		if r.IntN(2) == 0 { // around the smallest normal number
			eb = -126 - ea + r.IntN(5) - 2
		}
		a, b := bf16(ea), bf16(eb)
		c := daz(r.Uint32()&0x807fffff | uint32(min(max(127+ea+eb+r.IntN(60)-30, 0), 254))<<23)
		if r.IntN(4) == 0 { // halfway, and slightly off
			c = float32(float64(a) * float64(b) * math.Ldexp(1, r.IntN(26)))
			c = daz(math.Float32bits(c) + uint32(r.IntN(3)))
		}
		if sum := float64(a)*float64(b) + float64(c); math.IsNaN(sum) || math.Abs(sum) > math.MaxFloat32 ||
			math.IsInf(float64(c), 0) {
			continue
		}
		p := new(big.Float).SetPrec(2000).Mul(exact(a), exact(b))
		want := round(new(big.Float).SetPrec(2000).Add(p, exact(c)), float32(float64(a)*float64(b)+float64(c)))
		if got := fma(a, b, c); math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("fma(%x, %x, %x) = %x, want %x", a, b, c, got, want)
		}
		if want == 0 && p.Sign() != 0 || math.Abs(float64(want)) == minNormal {
			hits++
		}
		d := daz(r.Uint32()&0x807fffff | uint32(min(max(127+r.IntN(8)-126, 1), 254))<<23)
		want = round(new(big.Float).SetPrec(2000).Add(exact(c), exact(d)), c+d)
		if got := add(c, d); math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("add(%x, %x) = %x, want %x", c, d, got, want)
		}
	}
	if hits < 1000 {
		t.Errorf("only %d cases at the edge of the normal numbers", hits)
	}
	// 1.9999998·2⁻¹²⁷ is the largest that is flushed; 2⁻¹²⁶·(1−2⁻²⁵) rounds up.
	for s, want := range map[float64]float32{
		0x1.fffffep-127:    0,
		0x1.fffffefffp-127: 0,
		0x1.ffffffp-127:    minNormal,
		-0x1.ffffffp-127:   -minNormal,
		0x1p-126:           minNormal,
	} {
		if got := flush(s); got != want {
			t.Errorf("flush(%x) = %x, want %x", s, got, want)
		}
	}
}

// A product of bfloat16 is two chains and two sums, each rounded.
func TestBF16Product(t *testing.T) {
	var s tiles
	const k = 3
	if err := s.configure(config(shape{1, 4}, shape{1, 4 * k}, shape{k, 4})); err != nil {
		t.Fatal(err)
	}
	put := func(t, row, word int, low, high float32) {
		binary.LittleEndian.PutUint32(s.tile[t][row][4*word:], math.Float32bits(low)>>16|math.Float32bits(high)&0xffff0000)
	}
	run := func(a, b [k][2]float32, c float32) float32 {
		binary.LittleEndian.PutUint32(s.tile[0][0][:], math.Float32bits(c))
		for i := range k {
			put(1, 0, i, a[i][0], a[i][1])
			put(2, i, 0, b[i][0], b[i][1])
		}
		mustDo(t, &s, inst{op: tdpBF16PS, t: 0, a: 1, b: 2}, 0, 0, nil)
		return math.Float32frombits(binary.LittleEndian.Uint32(s.tile[0][0][:]))
	}
	one := [k][2]float32{{1, 1}, {1, 1}, {1, 1}}
	// The low chain loses its 1 to 2²⁵ and the high one keeps it: the order shows.
	if got := run(one, [k][2]float32{{1, 1}, {1 << 25, 0}, {-(1 << 25), 0}}, 0); got != 1 {
		t.Errorf("chains in another order: %v", got)
	}
	// low + high is rounded before c is added: 2²⁴ + 1 = 2²⁴, and then −2²⁴.
	if got := run(one, [k][2]float32{{1 << 24, 1}}, -(1 << 24)); got != 0 {
		t.Errorf("the sum of the chains is not rounded: %v", got)
	}
	// A subnormal factor, accumulator or result is a zero.
	if got := run(one, [k][2]float32{{0x1p-127, 0}}, 0x1p-130); got != 0 {
		t.Errorf("a subnormal survives: %x", got)
	}
	if got := run([k][2]float32{{0x1p-70, 0}}, [k][2]float32{{-0x1p-70, 0}}, 0); got != 0 {
		t.Errorf("a subnormal result survives: %x", got)
	}
	if got := run(one, [k][2]float32{{float32(math.Inf(1)), 0}}, 1); !math.IsInf(float64(got), 1) {
		t.Errorf("an infinity becomes %v", got)
	}
}

func TestMovesAndConfigurations(t *testing.T) {
	mem := make(flat, 4096)
	for i := range mem {
		mem[i] = byte(i * 7)
	}
	var s tiles
	copy(mem[2048:], config(shape{3, 8}, shape{16, 64})[:])
	mustDo(t, &s, inst{op: ldTileCfg}, flatBase+2048, 0, mem)
	for _, op := range []opcode{tileLoad, tileLoadT1} {
		s.tile[0] = tile{15: {63: 1}}
		mustDo(t, &s, inst{op: op, t: 0}, flatBase+1, 100, mem)
		for r := range tileRows {
			for j := range rowBytes {
				want := byte(0)
				if r < 3 && j < 8 {
					want = mem[1+100*r+j]
				}
				if got := s.tile[0][r][j]; got != want {
					t.Fatalf("%v: byte %d,%d is %d, want %d", op, r, j, got, want)
				}
			}
		}
	}
	backwards := int64(-16)
	mustDo(t, &s, inst{op: tileStore, t: 0}, flatBase+3000, uint64(backwards), mem)
	for r := range 3 {
		if got, want := string(mem[3000-16*r:][:8]), string(mem[1+100*r:][:8]); got != want {
			t.Errorf("row %d is stored as %x, want %x", r, got, want)
		}
	}
	mustDo(t, &s, inst{op: stTileCfg}, flatBase+3500, 0, mem)
	if string(mem[3500:3564]) != string(mem[2048:2112]) {
		t.Error("sttilecfg stores another configuration")
	}
	mustDo(t, &s, inst{op: tileZero, t: 0}, 0, 0, nil)
	if s.tile[0] != (tile{}) {
		t.Error("tilezero leaves something")
	}
	s.tile[1][2][3] = 4
	mustDo(t, &s, inst{op: ldTileCfg}, flatBase+2048, 0, mem)
	if s.tile[1] != (tile{}) {
		t.Error("a configuration leaves the tiles as they were")
	}
	mustDo(t, &s, inst{op: tileRelease}, 0, 0, nil)
	if s != (tiles{}) {
		t.Error("tilerelease leaves something")
	}
}

// Everything that the processor refuses is refused.
func TestFaults(t *testing.T) {
	mem := make(flat, 4096)
	good := config(shape{2, 8}, shape{2, 12}, shape{3, 8}, shape{}, shape{2, 6})
	change := func(f func(c *[64]byte)) *[64]byte {
		c := *good
		f(&c)
		return &c
	}
	for _, c := range []struct {
		name   string
		config *[64]byte // nil: none
		i      inst
		addr   uint64
		kind   faultKind
		want   string
	}{
		{"no configuration", nil, inst{op: tileZero}, 0, undefined, "without a configuration"},
		{"palette 2", nil, inst{op: ldTileCfg}, 1, protection, "palette 2"},
		{"start row", change(func(c *[64]byte) { c[1] = 1 }), inst{}, 0, protection, "start row"},
		{"reserved byte", change(func(c *[64]byte) { c[40] = 1 }), inst{}, 0, protection, "reserved byte 40"},
		{"17 rows", change(func(c *[64]byte) { c[48] = 17 }), inst{}, 0, protection, "tile 0 has 17 rows"},
		{"no bytes", change(func(c *[64]byte) { c[16] = 0 }), inst{}, 0, protection, "2 rows of 0 bytes"},
		{"unreadable configuration", nil, inst{op: ldTileCfg}, 5, pageFault, "cannot read"},
		{"empty tile", good, inst{op: tileZero, t: 3}, 0, undefined, "no rows"},
		{"part of a word", good, inst{op: tileLoad, t: 4}, 0, undefined, "rows of 6 bytes"},
		{"load from nowhere", good, inst{op: tileLoad, t: 0}, flatBase + 4096 - 8, pageFault, "row 1 of tile 0 at 0x2000"},
		{"store to nowhere", good, inst{op: tileStore, t: 0}, 16, pageFault, "cannot write row 0"},
		{"same tile", good, inst{op: tdpBSSD, t: 0, a: 1, b: 1}, 0, undefined, "must differ"},
		{"shapes", good, inst{op: tdpBSSD, t: 1, a: 0, b: 2}, 0, undefined, "2 rows of 8 bytes by 3 rows of 8 bytes into 2 rows of 12 bytes"},
		{"unused source", good, inst{op: tdpBF16PS, t: 0, a: 1, b: 3}, 0, undefined, "no rows"},
		{"words of a source", good, inst{op: tdpBF16PS, t: 0, a: 4, b: 2}, 0, undefined, "no whole words"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s tiles
			var err error
			if c.config != nil {
				err = s.configure(c.config)
			}
			if err == nil {
				addr := c.addr
				if c.name == "palette 2" {
					mem[100] = 2
					addr = flatBase + 100
				}
				err = s.execute(c.i, addr, 8, mem)
			}
			var f *fault
			if !errors.As(err, &f) || f.kind != c.kind || !strings.Contains(f.reason, c.want) {
				t.Errorf("%+v, want kind %d with %q", err, c.kind, c.want)
			}
		})
	}
	var s tiles
	if err := s.configure(good); err != nil {
		t.Fatal(err)
	}
	mustDo(t, &s, inst{op: tdpBSSD, t: 0, a: 1, b: 2}, 0, 0, nil) // the matching shapes
}
