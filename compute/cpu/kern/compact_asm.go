//go:build (amd64 || arm64) && !purego

package kern

import "unsafe"

// The products with unpacked blocks that kernels compute, by number of rows.
type unpackedFunc = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool, next []byte)

// unpackedOf returns a product of unpacked blocks of step bytes; kernels are those of a number of planes.
func unpackedOf(step int, kernels func(planes int) []gemmQ8Func) unpackedFunc {
	return func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool, next []byte) {
		if rows == 0 {
			return
		}
		_ = c[(rows-1)*ldc+Panel-1]
		if blocks > 0 {
			_, _ = a[(rows-1)*ars+blocks*Q8ABlockLen-1], b[blocks*step-1]
		}
		// Every group of rows asks for what comes next: but for the first one, it is there.
		ahead, pace := uintptr(distance(b, next)), uintptr(len(next)/max(1, blocks))
		k := kernels(planes)
		for most := len(k) - 1; rows > 0; {
			left := (rows + most - 1) / most
			n := (rows + left - 1) / left
			k[n](unsafe.SliceData(c), 4*uintptr(ldc), unsafe.SliceData(a), 4*uintptr(ars), unsafe.SliceData(b), blocks, acc, ahead, pace)
			if rows -= n; rows > 0 {
				c, a = c[n*ldc:], a[min(n*ars, len(a)):]
			}
		}
	}
}
