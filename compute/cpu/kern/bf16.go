package kern

import (
	"encoding/binary"
	"math"
)

// BF16 narrows x to bfloat16, to the nearest, ties to even. A NaN stays a NaN.
func BF16(x float32) uint16 {
	u := math.Float32bits(x)
	if x != x {
		return uint16(u>>16) | 1<<6 // stays a NaN whatever bits are cut off
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// Narrow sets dst[i] to BF16(x[i]).
func Narrow(dst []uint16, x []float32) {
	dst = dst[:len(x)]
	for i := narrowWords(dst, x); i < len(x); i++ {
		dst[i] = BF16(x[i])
	}
}

// bf16Line is the elements of a pair of k in a panel: a step of GemmBF16.
const bf16Line = 2 * Panel

// BF16Len returns the elements of a matrix of outs outputs and depth k in
// bfloat16 panels [⌈outs/Panel⌉][⌈k/2⌉][Panel][2].
func BF16Len(outs, k int) int { return (outs + Panel - 1) / Panel * BF16PanelLen(k) }

// BF16PanelLen returns the elements of one panel of depth k.
func BF16PanelLen(k int) int { return (k + 1) / 2 * bf16Line }

// PackBF16 narrows the first k columns of src [rows][ldsrc] and packs them into dst as panels
// [⌈rows/Panel⌉][⌈k/2⌉][Panel][2]: element (o,i) of src is entry [o/Panel][i/2][o%Panel][i%2].
// Outputs beyond rows and the partner of an odd last column are zero. It writes BF16Len(rows, k)
// elements.
func PackBF16(dst []uint16, src []float32, rows, k, ldsrc int) {
	const step = 256
	var buf [Panel * step]uint16
	n := BF16PanelLen(k)
	for o := 0; o < rows; o, dst = o+Panel, dst[n:] {
		w := min(Panel, rows-o)
		if w < Panel || k%2 != 0 {
			clear(dst[:n])
		}
		for i := 0; i < k; i += step {
			s := min(step, k-i)
			for j := range w {
				Narrow(buf[j*step:][:s], src[(o+j)*ldsrc+i:][:s])
			}
			packPairs(dst[i*Panel:], buf[:], w, s, step)
		}
	}
}

// packPairs packs the first k columns of rows ≤ Panel rows of src [rows][ldsrc]
// into one panel of pairs.
func packPairs(p, src []uint16, rows, k, ldsrc int) {
	i := 0
	if rows == Panel {
		i = 2 * pairs(p, src, k/2, ldsrc)
	}
	for ; i < k; i++ {
		for j := range rows {
			p[i/2*bf16Line+2*j+i%2] = src[j*ldsrc+i]
		}
	}
}

// PackBF16Stored is PackBF16 from src [rows][k] in little-endian bfloat16, whose
// bits it keeps.
func PackBF16Stored(dst []uint16, src []byte, rows, k int) {
	n := BF16PanelLen(k)
	for o := 0; o < rows; o, dst, src = o+Panel, dst[n:], src[min(2*Panel*k, len(src)):] {
		w := min(Panel, rows-o)
		if w < Panel || k%2 != 0 {
			clear(dst[:n])
		}
		i := 0
		if w == Panel {
			i = 2 * pairs(dst, src, k/2, 2*k)
		}
		for ; i < k; i++ {
			for j := range w {
				dst[i/2*bf16Line+2*j+i%2] = binary.LittleEndian.Uint16(src[(j*k+i)*2:])
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
