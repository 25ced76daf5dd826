//go:build openblas

package cpu_test

// The yardstick: OpenBLAS on the shapes of BenchmarkGemm. It needs cgo and the
// system's library:
//
//	CGO_LDFLAGS=-lopenblas OPENBLAS_NUM_THREADS=1 OPENBLAS_CORETYPE=SkylakeX go test -tags openblas -run - -bench 'Gemm|OpenBLAS' ./compute/cpu
//
// Without the core type, OpenBLAS 0.3.21 takes a path on Sapphire Rapids that is
// several times slower than its AVX-512 kernels.

import (
	"os"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/netlib/blas/netlib"
)

func BenchmarkOpenBLAS(b *testing.B) {
	threads := os.Getenv("OPENBLAS_NUM_THREADS")
	if threads == "" {
		threads = "all"
	}
	op := map[bool]blas.Transpose{false: blas.NoTrans, true: blas.Trans}
	for i, s := range gemmShapes {
		b.Run(shapeName(i)+"/threads="+threads, func(b *testing.B) {
			x, y, c := random(s.m*s.k), random(s.k*s.n), random(s.m*s.n)
			ldx, ldy := s.k, s.n
			if s.ta {
				ldx = s.m
			}
			if s.tb {
				ldy = s.k
			}
			for b.Loop() {
				netlib.Implementation{}.Sgemm(op[s.ta], op[s.tb], s.m, s.n, s.k, 1, x, ldx, y, ldy, 0, c, s.n)
			}
			flops(b, 2*float64(s.m)*float64(s.n)*float64(s.k))
		})
	}
}
