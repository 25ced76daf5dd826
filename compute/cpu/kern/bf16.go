package kern

import (
	"encoding/binary"
	"math"
)

// BF16 narrows x to bfloat16, to the nearest, ties to even. A NaN stays one.
func BF16(x float32) uint16 {
	u := math.Float32bits(x)
	if x != x {
		return uint16(u>>16) | 1<<6 // stays a NaN whatever the cut removes
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// bf16Line is the elements of a pair of k in a panel: a step of GemmBF16.
const bf16Line = 2 * Panel

// BF16Len returns the elements of a matrix of outs outputs and depth k in
// bfloat16 panels [⌈outs/Panel⌉][⌈k/2⌉][Panel][2].
func BF16Len(outs, k int) int { return (outs + Panel - 1) / Panel * BF16PanelLen(k) }

// BF16PanelLen returns the elements of one panel of depth k.
func BF16PanelLen(k int) int { return (k + 1) / 2 * bf16Line }

// PackBF16 narrows src [rows][ldsrc], of which the first k columns, and packs it
// into dst as panels [⌈rows/Panel⌉][⌈k/2⌉][Panel][2]: element (o,i) of src is
// entry [o/Panel][i/2][o%Panel][i%2]. Outputs beyond rows and the partner of an
// odd last column are zero. It writes BF16Len(rows, k) elements.
func PackBF16(dst []uint16, src []float32, rows, k, ldsrc int) {
	n := BF16PanelLen(k)
	for o := 0; o < rows; o, dst = o+Panel, dst[n:] {
		p := dst[:n]
		w := min(Panel, rows-o)
		if w < Panel || k%2 != 0 {
			clear(p)
		}
		for j := range w {
			s, d := src[(o+j)*ldsrc:][:k], p[2*j:]
			i := 0
			for ; i+2 <= k; i += 2 {
				q := (*[2]uint16)(d[i/2*bf16Line:])
				q[0], q[1] = BF16(s[i]), BF16(s[i+1])
			}
			if i < k {
				d[i/2*bf16Line] = BF16(s[i])
			}
		}
	}
}

// PackBF16Stored is PackBF16 from src [rows][k] in little-endian bfloat16, whose
// bits it keeps.
func PackBF16Stored(dst []uint16, src []byte, rows, k int) {
	n := BF16PanelLen(k)
	for o := 0; o < rows; o, dst = o+Panel, dst[n:] {
		p := dst[:n]
		w := min(Panel, rows-o)
		if w < Panel || k%2 != 0 {
			clear(p)
		}
		for j := range w {
			s, d := src[(o+j)*k*2:][:k*2], p[2*j:]
			i := 0
			for ; i+2 <= k; i += 2 {
				u, q := binary.LittleEndian.Uint32(s[2*i:]), (*[2]uint16)(d[i/2*bf16Line:])
				q[0], q[1] = uint16(u), uint16(u>>16)
			}
			if i < k {
				d[i/2*bf16Line] = binary.LittleEndian.Uint16(s[2*i:])
			}
		}
	}
}

// UnpackBF16 widens output o of packed panels of depth len(dst).
func UnpackBF16(dst []float32, b []uint16, o int) {
	b = b[o/Panel*BF16PanelLen(len(dst)):][:BF16PanelLen(len(dst))]
	for i := range dst {
		dst[i] = widen(b[i/2*bf16Line+o%Panel*2+i%2])
	}
}

func widen(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

func gemmBF16(c []float32, ldc int, a []float32, ars, aks int, b []uint16, rows, k int, acc bool) {
	if rows == 0 || k == 0 {
		gemm(c, ldc, nil, 0, 0, nil, 0, rows, 0, acc)
		return
	}
	var w [Panel]float32
	for i := range k {
		line := (*[bf16Line]uint16)(b[i/2*bf16Line:])
		for j := range w {
			w[j] = widen(line[2*j+i%2])
		}
		gemm(c, ldc, a[i*aks:], ars, aks, w[:], Panel, rows, 1, acc || i > 0)
	}
}
