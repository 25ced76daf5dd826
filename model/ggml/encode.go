package ggml

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Encode writes blocks of 4-bit integers, Q4_0 or Q4_K, whose values are near src, whole blocks.
// Scales, minima and integers are chosen in turn: the integers nearest to the elements, then the
// scales of the least squared error for these. A block with an infinity or a NaN has NaN as its
// scale, so that it is found when it is read.
func (t *Type) Encode(dst []byte, src []float32) {
	encode := map[string]func(dst []byte, x []float32){"Q4_0": encodeQ4_0, "Q4_K": encodeQ4_K}[t.Name]
	if encode == nil {
		panic("ggml: Encode of " + t.Name)
	}
	if len(src)%t.Elems != 0 || len(dst) != len(src)/t.Elems*t.Size {
		panic(fmt.Sprintf("ggml: %d elements to %d bytes of %s", len(src), len(dst), t.Name))
	}
	for ; len(src) > 0; dst, src = dst[t.Size:], src[t.Elems:] {
		clear(dst[:t.Size])
		if finite(src[:t.Elems]) {
			encode(dst[:t.Size], src[:t.Elems])
		} else {
			binary.LittleEndian.PutUint16(dst, 0x7e00)
		}
	}
}

func finite(x []float32) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// float16 returns the float16 nearest to x, at most 65504 in magnitude, and its value.
func float16(x float64) (uint16, float64) {
	u := math.Float32bits(float32(min(math.Abs(x), 65504)))
	var h uint16
	if u < 113<<23 { // below 2⁻¹⁴: multiples of 2⁻²⁴
		h = uint16(math.RoundToEven(float64(math.Float32frombits(u)) * (1 << 24)))
	} else {
		h = uint16((u + 0xfff + u>>13&1 - 112<<23) >> 13)
	}
	if math.Signbit(x) {
		h |= 1 << 15
	}
	var b [2]byte
	binary.LittleEndian.PutUint16(b[:], h)
	return h, float64(at16(b[:], 0))
}

// level returns the integer from 0 to 15 nearest to x.
func level(x float64) float64 { return min(max(math.RoundToEven(x), 0), 15) }

// Products are rounded before they are added, here and below: then every processor has the same
// sums, also those that would fuse the two.

// encodeQ4_0 writes d·(q−8). Of 16 levels one more is negative than positive, so both signs of d
// are tried.
func encodeQ4_0(dst []byte, x []float32) {
	var amax float64
	for _, v := range x {
		amax = max(amax, math.Abs(float64(v)))
	}
	best, scale := math.Inf(1), uint16(0)
	for _, sign := range []float64{1, -1} {
		for _, most := range []float64{7, 7.5, 8, 8.5, 9} { // levels that the largest element is worth
			d := sign * amax / most
			for range 3 {
				h, as := float16(d)
				var e, qq, qx float64
				for _, v := range x {
					q := nearest0(float64(v), as)
					off := float64(v) - float64(as*q)
					e += float64(off * off)
					qq += float64(q * q)
					qx += float64(q * float64(v))
				}
				if e < best {
					best, scale = e, h
				}
				if qq == 0 {
					break
				}
				d = qx / qq
			}
		}
	}
	binary.LittleEndian.PutUint16(dst, scale)
	d := float64(at16(dst, 0))
	for i := range 16 {
		dst[2+i] = byte(nearest0(float64(x[i]), d)+8) | byte(nearest0(float64(x[16+i]), d)+8)<<4
	}
}

// nearest0 returns q−8 for an element.
func nearest0(x, d float64) float64 {
	if d == 0 {
		return 0
	}
	return level(x/d+8) - 8
}

// A line is how 32 elements are written: step·q − low.
type line struct{ step, low float64 }

// q returns the integer of an element.
func (l line) q(x float32) float64 {
	if l.step == 0 {
		return 0
	}
	return level((float64(x) + l.low) / l.step)
}

// off returns the squared error of elements.
func (l line) off(x []float32) (e float64) {
	for _, v := range x {
		d := float64(v) - (float64(l.step*l.q(v)) - l.low)
		e += float64(d * d)
	}
	return e
}

// fit returns a line of small squared error. low is not negative.
func fit(x []float32) line {
	lo, hi := 0.0, 0.0
	for _, v := range x {
		lo, hi = min(lo, float64(v)), max(hi, float64(v))
	}
	best := line{0, -lo}
	least, n := best.off(x), float64(len(x))
	for _, levels := range []float64{12.5, 13.5, 14, 14.5, 15, 15.5, 16} {
		l := line{(hi - lo) / levels, -lo}
		for range 3 {
			var sq, sx, qq, qx, e float64
			for _, v := range x {
				q := l.q(v)
				d := float64(v) - (float64(l.step*q) - l.low)
				e += float64(d * d)
				sq += q
				sx += float64(v)
				qq += float64(q * q)
				qx += float64(q * float64(v))
			}
			if e < least {
				least, best = e, l
			}
			det := float64(n*qq) - float64(sq*sq)
			if det <= 0 {
				break
			}
			l.step = (float64(n*qx) - float64(sq*sx)) / det
			if l.low = (float64(l.step*sq) - sx) / n; l.low < 0 {
				l = line{qx / qq, 0}
			}
			if !(l.step > 0) {
				break
			}
		}
	}
	return best
}

// A super is the scales of a block of Q4_K: the line of group g is d·sc[g], dm·mn[g].
type super struct {
	d, dm  uint16
	sc, mn [8]float64
	off    float64 // squared error
}

// scales returns a block's scale and its minima's as numbers.
func (s *super) scales() (d, dm float64) {
	var b [4]byte
	binary.LittleEndian.PutUint16(b[:], s.d)
	binary.LittleEndian.PutUint16(b[2:], s.dm)
	return float64(at16(b[:], 0)), float64(at16(b[:], 2))
}

// encodeQ4_K writes d·sc·q − dm·mn: lines of groups first, then integers sc and mn near them, then
// d and dm again for all integers.
func encodeQ4_K(dst []byte, x []float32) {
	var ideal [8]line
	var step, low float64
	for g := range ideal {
		ideal[g] = fit(x[32*g:][:32])
		step, low = max(step, ideal[g].step), max(low, ideal[g].low)
	}
	best := choose(x, &ideal, step/63, low/63)
	for range 3 {
		d, dm := again(x, &best)
		s := choose(x, &ideal, d, dm)
		if !(s.off < best.off) {
			break
		}
		best = s
	}
	binary.LittleEndian.PutUint16(dst, best.d)
	binary.LittleEndian.PutUint16(dst[2:], best.dm)
	for g := range 4 {
		sc, mn, sc4, mn4 := byte(best.sc[g]), byte(best.mn[g]), byte(best.sc[g+4]), byte(best.mn[g+4])
		dst[4+g], dst[8+g], dst[12+g] = sc|sc4>>4<<6, mn|mn4>>4<<6, sc4&15|mn4<<4
	}
	d, dm := best.scales()
	for g := range 8 {
		l := line{d * best.sc[g], dm * best.mn[g]}
		for i, v := range x[32*g:][:32] {
			dst[16+g/2*32+i] |= byte(l.q(v)) << (g % 2 * 4)
		}
	}
}

// choose returns the integers of scales near the ideal lines for which a block's error is least,
// with d and dm rounded to float16.
func choose(x []float32, ideal *[8]line, d, dm float64) (s super) {
	s.d, d = float16(d)
	s.dm, dm = float16(dm)
	near := func(v, unit float64) float64 {
		if unit == 0 {
			return 0
		}
		return min(max(math.RoundToEven(v/unit), 0), 63)
	}
	for g, l := range ideal {
		group := x[32*g:][:32]
		sc, mn := near(l.step, d), near(l.low, dm)
		least := math.Inf(1)
		for a := max(sc-1, 0); a <= min(sc+1, 63); a++ {
			for b := max(mn-1, 0); b <= min(mn+1, 63); b++ {
				if e := (line{d * a, dm * b}).off(group); e < least {
					least, s.sc[g], s.mn[g] = e, a, b
				}
			}
		}
		s.off += least
	}
	return s
}

// again returns d and dm of the least squared error for all other integers of a block.
func again(x []float32, s *super) (d, dm float64) {
	d, dm = s.scales()
	var uu, uv, vv, ux, vx float64
	for g := range 8 {
		l := line{d * s.sc[g], dm * s.mn[g]}
		for _, x := range x[32*g:][:32] {
			u, v := s.sc[g]*l.q(x), s.mn[g]
			uu += float64(u * u)
			uv += float64(u * v)
			vv += float64(v * v)
			ux += float64(u * float64(x))
			vx += float64(v * float64(x))
		}
	}
	if vv == 0 && uu > 0 {
		return ux / uu, dm
	}
	det := float64(uu*vv) - float64(uv*uv)
	if det <= 0 {
		return d, dm
	}
	a, b := (float64(ux*vv)-float64(uv*vx))/det, (float64(uv*ux)-float64(uu*vx))/det
	if !(a > 0 && b >= 0) {
		return d, dm
	}
	return a, b
}
