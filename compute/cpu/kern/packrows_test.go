package kern

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// Panels are packed here row by row, which says where everything lies.

// packRow writes a row of integers q [len(q)], a multiple of f.Block, as they are in the file, and their
// scales s [len(q)/f.Block][f.Scales], the shared ones first, as output j of the panel u, which was zero there.
func packRow(f *Compact, u []byte, j int, q, s []byte) {
	for ; len(q) > 0; u, q, s = u[f.Len:], q[f.Block:], s[f.Scales:] {
		for i := 0; i < f.shared; i += 2 {
			copy(u[i*Panel+2*j:][:2], s[i:])
		}
		own := s[f.shared:]
		size := 2 // bytes of a scale of Q8Block k
		if f.first > 0 {
			size = 1
		}
		for p := range f.Block / Q8Block {
			to := u[f.first+p*f.part():]
			for i := 0; i < f.own/Panel; i += size {
				if f.first > 0 { // all scales of a kind follow each other
					to[i*Panel+j] = own[i*f.Block/Q8Block+p]
				} else {
					copy(to[i*Panel+2*j:][:2], own[i:])
				}
			}
			packInts(f, to[f.own:], j, (*[Q8Block]byte)(q[p*Q8Block:]))
		}
	}
}

// packInts writes the integers of a block of output j, eight at a time: of two groups of four, whose fifth bits lie in
// the same bytes.
func packInts(f *Compact, u []byte, j int, q *[Q8Block]byte) {
	const ones, low = 0x0101010101010101, 0x0f0f0f0f0f0f0f0f
	flip := uint64(0)
	if f.flip {
		flip = ones
	}
	lows, shift, turn := u[j%16*4:], j/16*4, j/8
	for g := 0; g < Q8Block/4; g += 2 {
		v := binary.LittleEndian.Uint64(q[4*g:])
		w := v & low << shift
		or(lows[g*64:], uint32(w))
		or(lows[(g+1)*64:], uint32(w>>32))
		if f.fifth {
			h := v>>4&ones ^ flip
			or(u[q4Ints+g*16+j%8*4:], uint32(h)<<turn|uint32(h>>32)<<(turn+4))
		}
	}
}

// or sets the bits of w in the first four bytes of b.
func or(b []byte, w uint32) {
	binary.LittleEndian.PutUint32(b, binary.LittleEndian.Uint32(b)|w)
}

// packQ4Row writes a row of integers q [len(q)], a multiple of Q8Block, and their scales
// d [len(q)/Q8Block] float16 as output j of the panel u of the q4 format, which was zero there.
func packQ4Row(u []byte, j int, q, d []byte) {
	for ; len(q) > 0; u, q, d = u[Q4BlockLen:], q[Q8Block:], d[2:] {
		copy(u[2*j:2*j+2], d)
		packQ4Ints(u[2*Panel:Q4BlockLen], j, q)
	}
}

// packQ4KRow is packQ4Row for the q4k format: len(q) is a multiple of Q4KBlock, and s
// [len(q)/Q4KBlock][Q4KScales].
func packQ4KRow(u []byte, j int, q, s []byte) {
	for ; len(q) > 0; u, q, s = u[Q4KBlockLen:], q[Q4KBlock:], s[Q4KScales:] {
		copy(u[2*j:2*j+2], s[:2])
		copy(u[2*(Panel+j):2*(Panel+j)+2], s[2:4])
		for b := range Q4KBlock / Q8Block {
			p := u[4*Panel+b*q4kPart:][:q4kPart]
			p[j], p[Panel+j] = s[4+b], s[4+Q4KBlock/Q8Block+b]
			packQ4Ints(p[2*Panel:], j, q[b*Q8Block:])
		}
	}
}

// packQ4Ints writes the integers of a block of output j.
func packQ4Ints(u []byte, j int, q []byte) {
	to, from := (*[q4Ints]byte)(u), (*[Q8Block]byte)(q)
	at, shift := j%16*4, j/16*4
	for g := range Q8Block / 4 {
		w := to[g*4*16+at:][:4]
		binary.LittleEndian.PutUint32(w, binary.LittleEndian.Uint32(w)|binary.LittleEndian.Uint32(from[4*g:])<<shift)
	}
}

// Rows that are packed together make the panel that each of them alone makes its part of.
func TestRowsPackedTogetherAreThoseOfEach(t *testing.T) {
	r := rand.New(rand.NewPCG(62, 1))
	type format struct {
		name          string
		block, scales int
		len           func(k int) int
		rows          func(u []byte, k int, q, s []byte)
		row           func(u []byte, j int, q, s []byte)
	}
	formats := []format{
		{"q4", Q8Block, 2, func(k int) int { return k / Q8Block * Q4BlockLen }, PackQ4Rows, packQ4Row},
		{"q4k", Q4KBlock, Q4KScales, func(k int) int { return k / Q4KBlock * Q4KBlockLen }, PackQ4KRows, packQ4KRow},
	}
	for _, f := range compacts {
		formats = append(formats, format{f.Name, f.Block, f.Scales, f.PanelLen, f.PackRows, func(u []byte, j int, q, s []byte) { packRow(f, u, j, q, s) }})
	}
	for _, f := range formats {
		for blocks := 1; blocks < 4; blocks++ {
			k, n := blocks*f.block, blocks*f.scales
			q, s := make([]byte, Panel*k), make([]byte, Panel*n)
			for i := range q {
				q[i] = byte(r.IntN(32))
				if f.name[0] == 'q' {
					q[i] &= 15
				}
			}
			for i := range s {
				s[i] = byte(r.Uint32())
			}
			got, want := bytes.Repeat([]byte{0xa5}, f.len(k)), make([]byte, f.len(k))
			f.rows(got, k, q, s)
			for j := range Panel {
				f.row(want, j, q[j*k:][:k], s[j*n:][:n])
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: %d blocks differ", f.name, blocks)
			}
		}
	}
}
