//go:build amd64 && !purego

package kern

// The kernels of class avx2 for activations of one plane, by number of rows.
var (
	gemmsQ8BytesAVX2 = [...]gemmQ8Func{
		1: gemmQ8Planes1x1AVX2, gemmQ8Planes1x2AVX2, gemmQ8Planes1x3AVX2, gemmQ8Planes1x4AVX2, gemmQ8Planes1x5AVX2, gemmQ8Planes1x6AVX2,
	}
	gemmsQ8MBytesAVX2 = [...]gemmQ8Func{
		1: gemmQ8MPlanes1x1AVX2, gemmQ8MPlanes1x2AVX2, gemmQ8MPlanes1x3AVX2, gemmQ8MPlanes1x4AVX2, gemmQ8MPlanes1x5AVX2, gemmQ8MPlanes1x6AVX2,
	}
	gemmsQ5BytesAVX2 = [...]gemmQ8Func{
		1: gemmQ5Planes1x1AVX2, gemmQ5Planes1x2AVX2, gemmQ5Planes1x3AVX2, gemmQ5Planes1x4AVX2, gemmQ5Planes1x5AVX2, gemmQ5Planes1x6AVX2,
	}
	gemmsQ5MBytesAVX2 = [...]gemmQ8Func{
		1: gemmQ5MPlanes1x1AVX2, gemmQ5MPlanes1x2AVX2, gemmQ5MPlanes1x3AVX2, gemmQ5MPlanes1x4AVX2, gemmQ5MPlanes1x5AVX2, gemmQ5MPlanes1x6AVX2,
	}
	gemmsQ4BytesAVX2 = [...]gemmQ8Func{
		1: gemmQ4Planes1x1AVX2, gemmQ4Planes1x2AVX2, gemmQ4Planes1x3AVX2, gemmQ4Planes1x4AVX2, gemmQ4Planes1x5AVX2, gemmQ4Planes1x6AVX2,
	}
	gemmsQ4KBytesAVX2 = [...]gemmQ8Func{
		1: gemmQ4KPlanes1x1AVX2, gemmQ4KPlanes1x2AVX2, gemmQ4KPlanes1x3AVX2, gemmQ4KPlanes1x4AVX2, gemmQ4KPlanes1x5AVX2, gemmQ4KPlanes1x6AVX2,
	}
	gemmsQ41BytesAVX2 = [...]gemmQ8Func{
		1: gemmQ41Planes1x1AVX2, gemmQ41Planes1x2AVX2, gemmQ41Planes1x3AVX2, gemmQ41Planes1x4AVX2, gemmQ41Planes1x5AVX2, gemmQ41Planes1x6AVX2,
	}
	gemmsQ50BytesAVX2 = [...]gemmQ8Func{
		1: gemmQ50Planes1x1AVX2, gemmQ50Planes1x2AVX2, gemmQ50Planes1x3AVX2, gemmQ50Planes1x4AVX2, gemmQ50Planes1x5AVX2, gemmQ50Planes1x6AVX2,
	}
	gemmsQ6KBytesAVX2 = [...]gemmQ8Func{
		1: gemmQ6KPlanes1x1AVX2, gemmQ6KPlanes1x2AVX2, gemmQ6KPlanes1x3AVX2, gemmQ6KPlanes1x4AVX2, gemmQ6KPlanes1x5AVX2, gemmQ6KPlanes1x6AVX2,
	}
)

// byPlanes returns a product that follows its number of planes of activations.
func byPlanes(one, two gemmIntegers) gemmIntegers {
	return func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		if planes == 1 {
			one(c, ldc, a, ars, b, rows, blocks, planes, acc)
			return
		}
		two(c, ldc, a, ars, b, rows, blocks, planes, acc)
	}
}
