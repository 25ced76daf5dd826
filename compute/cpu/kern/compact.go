package kern

import (
	"encoding/binary"
	"math"
)

// A Compact is a format in which panels lie in memory as they do in a file, in integers of four or five
// bits. Products of some classes read some of them as they lie. Others are unpacked: a few blocks to memory that stays
// in the first level of the cache, as blocks of q8 or q8m, and multiplied there by all rows (GemmCompact). Its integers
// and scales are those of GGUF's types (ggml-common.h of https://github.com/ggml-org/ggml).
//
// A panel holds its 32 outputs' blocks in ascending k. A block is 32 scales for each part that is shared by
// Block k, if any, and then for each Q8Block k their own scales, 512 bytes of the low four bits of their
// integers, in the order of q4, and, of integers of five bits, 128 bytes of the fifth. Unpacked, integers are
// 32 registers of 32 bytes: bit i%8 of byte t of register i/8 of the fifth bits is that of byte t of register
// i. It is flipped where integers are centred.
//
//	Q5_0    float16 d: d·(q−16)                                                   as q8
//	IQ4_NL  float16 d: d·v[q]                                                     as q8
//	Q4_1    float16 d and m: d·q + m, for q from 0 to 15                          as q8m
//	Q5_1    the same for q from 0 to 31                                           as q8m
//	Q5_K    shared float16 d and dm, bytes sc and mn: (d·sc)·q − dm·mn            as q8m
//	IQ4_XS  shared float16 d, int8 sc: (d·sc)·v[q]                                as q8m without minima
//	MXFP4   bfloat16 d, which has all powers of two that float32 has: d·v[q]      as q8m without minima
type Compact struct {
	Name   string
	Block  int  // consecutive k that share scales
	Len    int  // bytes of Block k of a panel's 32 outputs
	Scales int  // bytes of the scales of Block elements in a row, as PackRows takes them
	Minima bool // unpacked as q8m

	first, own int       // bytes of shared scales, and of those of Q8Block k
	shared     int       // bytes of shared scales of a row, each a float16
	fifth      bool      // integers have five bits
	flip       bool      // they are centred
	values     *[16]int8 // that they stand for, or nil
	scales     func(d, m *[Panel]float32, shared, own []byte)
	unpackAsm  func(dst, src *byte, blocks int) // blocks of Block k; nil: plain Go does
	plainAsm   func(dst, src *byte, blocks int) // for unpackPlain
	// whole returns the product that reads panels as they lie; nil, or it returns nil: there is none, or none that is
	// faster.
	whole func(f *Funcs, rows, planes int) gemmIntegers
}

// The compact formats.
var (
	Q5_0  = compact(Compact{Name: "Q5_0", own: 2 * Panel, fifth: true, flip: true, whole: (*Funcs).wholeQ50})
	IQ4NL = compact(Compact{Name: "IQ4_NL", own: 2 * Panel, values: &levels})
	Q4_1  = compact(Compact{Name: "Q4_1", own: 4 * Panel, scales: scalesDM, whole: (*Funcs).wholeQ41})
	Q5_1  = compact(Compact{Name: "Q5_1", own: 4 * Panel, fifth: true, scales: scalesDM})
	Q5K   = compact(Compact{Name: "Q5_K", shared: 4, first: 4 * Panel, own: 2 * Panel, fifth: true, scales: scalesK})
	IQ4XS = compact(Compact{Name: "IQ4_XS", shared: 2, first: 2 * Panel, own: Panel, values: &levels, scales: scalesXS})
	MXFP4 = compact(Compact{Name: "MXFP4", own: 2 * Panel, values: &fp4, scales: scalesE})
	// Of these only the layout is used.
	q4Layout  = compact(Compact{own: 2 * Panel})
	q4kLayout = compact(Compact{shared: 4, first: 4 * Panel, own: 2 * Panel})

	levels = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	fp4    = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

const (
	// Q8MBlockLen is the bytes of a block of a panel's 32 outputs in q8m.
	Q8MBlockLen = q8mScales + Q8Block*Panel
	// CompactScratch is the bytes that GemmCompact unpacks to.
	CompactScratch = compactChunk * Q8MBlockLen

	q8mScales    = 8 * Panel
	compactChunk = Q4KBlock / Q8Block // blocks of q8 or q8m that are unpacked at once
	q5Bits       = Q8Block * Panel / 8
)

func compact(f Compact) *Compact {
	f.Block = Q8Block
	if f.first > 0 {
		f.Block = Q4KBlock
	}
	f.Len = f.first + f.Block/Q8Block*f.part()
	f.Scales = f.shared + f.Block/Q8Block*f.own/Panel
	f.Minima = f.scales != nil
	f.unpackAsm = unpackAsm(f.Name)
	f.plainAsm = unpackAsm(f.Name + " plain")
	return &f
}

// part returns the bytes of Q8Block k without what they share.
func (f *Compact) part() int {
	n := f.own + q4Ints
	if f.fifth {
		n += q5Bits
	}
	return n
}

// PanelLen returns the bytes of a panel of depth k, a multiple of Block.
func (f *Compact) PanelLen(k int) int { return k / f.Block * f.Len }

// PackRows writes rows of integers q [Panel][k], k a multiple of f.Block, as they are in the file, and their scales
// s [Panel][k/f.Block][f.Scales], the shared ones first, as the panel u. Rows of outputs that there are not are zeros.
func (f *Compact) PackRows(u []byte, k int, q, s []byte) {
	stride := len(s) / Panel
	for at := 0; at < k; at, u, s = at+f.Block, u[f.Len:], s[f.Scales:] {
		for i := 0; i < f.shared; i += 2 {
			scales16(u[i*Panel:], s[i:], stride)
		}
		own := s[f.shared:]
		for p := range f.Block / Q8Block {
			to := u[f.first+p*f.part():][:f.part()]
			for i := range f.own / Panel { // bytes of a row's scales
				switch {
				case f.first > 0: // all scales of a kind follow each other
					scales8(to[i*Panel:], own[i*f.Block/Q8Block+p:], stride)
				case i%2 == 0:
					scales16(to[i*Panel:], own[i:], stride)
				}
			}
			f.packInts(to[f.own:], k, q[at+p*Q8Block:])
		}
	}
}

// scales16 writes a float16 of each output; those of rows are stride bytes apart.
func scales16(to, from []byte, stride int) {
	to = to[:2*Panel]
	for j := range Panel {
		binary.LittleEndian.PutUint16(to[2*j:], binary.LittleEndian.Uint16(from[j*stride:]))
	}
}

// scales8 is scales16 of bytes.
func scales8(to, from []byte, stride int) {
	to = to[:Panel]
	for j := range to {
		to[j] = from[j*stride]
	}
}

// packInts writes the integers of a block, eight of a row at a time: of two groups of four, whose fifth bits lie in the
// same bytes. Rows are k apart.
func (f *Compact) packInts(u []byte, k int, q []byte) {
	const ones, low = 0x0101010101010101, 0x0f0f0f0f0f0f0f0f
	word := func(row []byte, g int) uint64 { return binary.LittleEndian.Uint64(row[4*g:]) }
	for j := range 16 {
		lo, hi, to := q[j*k:][:Q8Block], q[(16+j)*k:][:Q8Block], u[4*j:][:q4Ints-60]
		for g := 0; g < Q8Block/4; g += 2 {
			w := word(lo, g)&low | word(hi, g)&low<<4
			binary.LittleEndian.PutUint32(to[g*64:], uint32(w))
			binary.LittleEndian.PutUint32(to[(g+1)*64:], uint32(w>>32))
		}
	}
	if !f.fifth {
		return
	}
	flip := uint64(0)
	if f.flip {
		flip = 15 * ones
	}
	u = u[q4Ints:][:q5Bits]
	for j := range 8 {
		a, b, c, d := q[j*k:][:Q8Block], q[(8+j)*k:][:Q8Block], q[(16+j)*k:][:Q8Block], q[(24+j)*k:][:Q8Block]
		for g := 0; g < Q8Block/4; g += 2 {
			h := word(a, g)>>4&ones | word(b, g)>>3&(ones<<1) | word(c, g)>>2&(ones<<2) | word(d, g)>>1&(ones<<3)
			h ^= flip
			binary.LittleEndian.PutUint32(u[16*g+4*j:], uint32(h)|uint32(h>>32)<<4)
		}
	}
}

// unpack writes blocks blocks of f.Block k as q8 or q8m.
func (f *Compact) unpack(dst, src []byte, blocks int) {
	_, _ = src[blocks*f.Len-1], dst[blocks*f.Block/Q8Block*f.unpacked()-1]
	if f.unpackAsm != nil && vectors() {
		f.unpackAsm(&dst[0], &src[0], blocks)
		return
	}
	f.unpackGo(dst, src, blocks)
}

// unpackPlain is unpack for integers of five bits that are centred, and writes them plus 16.
func (f *Compact) unpackPlain(dst, src []byte, blocks int) {
	_, _ = src[blocks*f.Len-1], dst[blocks*f.unpacked()-1]
	f.plainAsm(&dst[0], &src[0], blocks)
}

// unpacked returns the bytes of a block of Q8Block k that was unpacked.
func (f *Compact) unpacked() int {
	if f.Minima {
		return Q8MBlockLen
	}
	return Q8BlockLen
}

func (f *Compact) unpackGo(dst, src []byte, blocks int) {
	part := f.part()
	for ; blocks > 0; blocks, src = blocks-1, src[f.Len:] {
		for p := range f.Block / Q8Block {
			from := src[f.first+p*part:][:part]
			if f.Minima {
				var d, m [Panel]float32
				f.scales(&d, &m, src[:f.first], from)
				for j := range d {
					binary.LittleEndian.PutUint32(dst[4*j:], math.Float32bits(d[j]))
					binary.LittleEndian.PutUint32(dst[4*(Panel+j):], math.Float32bits(m[j]))
				}
				dst = dst[q8mScales:]
			} else {
				copy(dst, from[:f.own])
				dst = dst[f.own:]
			}
			f.ints(dst[:Q8Block*Panel], from[f.own:])
			dst = dst[Q8Block*Panel:]
		}
	}
}

// ints writes the int8s of a block, eight at a time.
func (f *Compact) ints(dst, src []byte) {
	const ones, low = 0x0101010101010101, 0x0f0f0f0f0f0f0f0f
	for i := 0; i < q4Ints; i += 8 {
		v := binary.LittleEndian.Uint64(src[i:])
		at := i/64*128 + i%64
		for side, w := range [2]uint64{v & low, v >> 4 & low} {
			if r := at/32 + 2*side; f.fifth {
				h := binary.LittleEndian.Uint64(src[q4Ints+r/8*32+i%32:]) >> (r % 8) & ones
				if f.flip {
					w |= h * 0xf0
				} else {
					w |= h << 4
				}
			}
			to := dst[at+64*side:][:8]
			if f.values == nil {
				binary.LittleEndian.PutUint64(to, w)
				continue
			}
			for t := range to {
				to[t] = byte(f.values[w>>(8*t)&15])
			}
		}
	}
}

// scalesDM are those of d·q + m.
func scalesDM(d, m *[Panel]float32, _, own []byte) {
	FromF16(d[:], own)
	FromF16(m[:], own[2*Panel:])
	for j := range m {
		m[j] = -m[j]
	}
}

// scalesK are those of (d·sc)·q − dm·mn.
func scalesK(d, m *[Panel]float32, shared, own []byte) {
	FromF16(d[:], shared)
	FromF16(m[:], shared[2*Panel:])
	for j := range m {
		d[j] *= float32(own[j])
		m[j] *= float32(own[Panel+j])
	}
}

// scalesXS are those of (d·sc)·v.
func scalesXS(d, _ *[Panel]float32, shared, own []byte) {
	FromF16(d[:], shared)
	for j := range d {
		d[j] *= float32(int8(own[j]))
	}
}

// scalesE are those of d·v.
func scalesE(d, _ *[Panel]float32, _, own []byte) { FromBF16(d[:], own) }

// Unpack gives output j of a panel of depth len(dst), a multiple of f.Block: each element is its exact value
// rounded once.
func (f *Compact) Unpack(dst []float32, u []byte, j int) {
	var block [compactChunk * Q8MBlockLen]byte
	for ; len(dst) > 0; dst, u = dst[f.Block:], u[f.Len:] {
		f.unpack(block[:], u, 1)
		for p := range f.Block / Q8Block {
			b, to := block[p*f.unpacked():][:f.unpacked()], dst[p*Q8Block:][:Q8Block]
			if !f.Minima {
				UnpackQ8(to, b, j)
				continue
			}
			d := math.Float32frombits(binary.LittleEndian.Uint32(b[4*j:]))
			m := math.Float32frombits(binary.LittleEndian.Uint32(b[4*(Panel+j):]))
			for i := range to {
				to[i] = d*float32(int8(b[q8mScales+i/4*4*Panel+4*j+i%4])) - m
			}
		}
	}
}

// GemmCompact multiplies any number of rows of activations, row r being f.QuantA's with planes at a[r·ars], by
// b, a panel of depth k in a compact format, as GemmQ8 does, or as gemmQ8M if it unpacks to q8m. scratch has
// CompactScratch bytes, whose contents do not matter. What b holds beyond the panel is prefetched, as the next panel.
func (f *Funcs) GemmCompact(format *Compact, c []float32, ldc int, a []uint32, ars int, b []byte, rows, k, planes int, scratch []byte) {
	if format.whole != nil {
		if gemm := format.whole(f, rows, planes); gemm != nil {
			gemm(c, ldc, a, ars, b, rows, k/format.Block, planes, false)
			return
		}
	}
	gemm, step := f.unpackedQ8, format.unpacked()
	unpack := format.unpack
	switch five := format.values == nil && planes == 1 && f.unpackedQ5 != nil; {
	case format.Minima && five:
		gemm = f.unpackedQ5M
	case format.Minima:
		gemm = f.unpackedQ8M
	case five:
		gemm, unpack = f.unpackedQ5, format.unpackPlain
	}
	at := 0
	for n := k / Q8Block; ; {
		chunk := min(compactChunk, n-at)
		size := chunk * Q8Block / format.Block * format.Len
		if chunk > 0 {
			unpack(scratch[:CompactScratch], b, chunk*Q8Block/format.Block)
		}
		b = b[size:]
		gemm(c, ldc, a[min(at*Q8ABlockLen, len(a)):], ars, scratch[:chunk*step], rows, chunk, planes, at > 0, b[:min(size, len(b))])
		if at += chunk; at == n {
			return
		}
	}
}

func (f *Funcs) wholeQ41(int, int) gemmIntegers { return f.gemmQ41 }

func (f *Funcs) wholeQ50(rows, planes int) gemmIntegers {
	if rows > f.rowsQ50[planes-1] {
		return nil
	}
	return f.gemmQ50
}

// gemmQ8M multiplies by q8m, which has for each output of a block of Q8Block k a float32 scale D, a float32
// minimum M and an int8 q of each k, where a weight is D·q − M:
//
//	t = Σ a·q; y = fma(−M, float32(Σ a), D·float32(t)); c = fma(y, s, c)
//
// A block of a panel is 32 D, 32 M and the integers as those of q8 lie.
func gemmQ8M(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
	for r := range rows {
		cr, ar := (*[Panel]float32)(c[r*ldc:]), a[r*ars:]
		if !acc {
			*cr = [Panel]float32{}
		}
		for n := range blocks {
			x, u := (*[Q8ABlockLen]uint32)(ar[n*Q8ABlockLen:]), (*[Q8MBlockLen]byte)(b[n*Q8MBlockLen:])
			var sum [Panel]int32
			q8Sums(&sum, x, u[q8mScales:])
			s, all := math.Float32frombits(x[q8AScale]), math.Float32frombits(x[q8ASum])
			for j, v := range sum {
				d, m := math.Float32frombits(binary.LittleEndian.Uint32(u[4*j:])), math.Float32frombits(binary.LittleEndian.Uint32(u[4*(Panel+j):]))
				cr[j] = fma32(fma32(-m, all, float32(d*float32(v))), s, cr[j])
			}
		}
	}
}
