package kern

import "unsafe"

// Widen sets dst[i] to the bfloat16 src[i], exactly.
func Widen(dst []float32, src []uint16) {
	src = src[:len(dst)]
	n := 0
	if len(src) > 0 {
		n = widenBF16Words(dst, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(src))), 2*len(src)))
	}
	for i := n; i < len(dst); i++ {
		dst[i] = widen(src[i])
	}
}
