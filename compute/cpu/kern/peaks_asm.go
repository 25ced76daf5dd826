//go:build (amd64 || arm64) && !purego

package kern

import "unsafe"

func peaksOf(f func(dst *float32, ldd uintptr, x *float32, ldx uintptr, rows int)) func(dst []float32, ldd int, x []float32, ldx, rows int) {
	return func(dst []float32, ldd int, x []float32, ldx, rows int) {
		if rows == 0 {
			return
		}
		_, _ = dst[(rows-1)*ldd], x[(rows-1)*ldx+Panel-1]
		f(unsafe.SliceData(dst), 4*uintptr(ldd), unsafe.SliceData(x), 4*uintptr(ldx), rows)
	}
}
