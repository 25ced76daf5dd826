package kern

func peaks(dst []float32, ldd int, x []float32, ldx, rows int) {
	for r := range rows {
		dst[r*ldd] = maxOf(x[r*ldx:][:Panel])
	}
}
