//go:build gpu && linux && cgo

package driver

/*
#include "blas.h"

// Addresses of the device travel as integers.
static int talf_blas_use_at(void *h, void *stream, unsigned long long workspace, size_t n) { return talf_blas_use(h, stream, (void *)workspace, n); }
static int talf_blas_product_at(void *h, int bf16, int ta, int tb, int m, int n, int k, unsigned long long a, int lda, unsigned long long b, int ldb, float beta, unsigned long long c, int ldc) {
  return talf_blas_product(h, bf16, ta, tb, m, n, k, (void *)a, lda, (void *)b, ldb, beta, (void *)c, ldc);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// A BLASError is an error code of cuBLAS.
type BLASError int

// Error returns the meaning of the expected codes, and the number.
func (e BLASError) Error() string {
	m, ok := map[BLASError]string{
		1: "it could not start", 3: "the device is out of memory", 8: "the device is too old for it",
		13: "the device failed", 14: "it failed inside", 15: "it cannot compute this",
	}[e]
	if !ok {
		m = "it failed"
	}
	return fmt.Sprintf("cuBLAS: %s (status %d)", m, int(e))
}

func status(r C.int) error {
	if r != 0 {
		return BLASError(r)
	}
	return nil
}

// loading is held while the library is loaded, which devices may do at the same time.
var loading sync.Mutex

// A BLAS is cuBLAS on one stream of the current context. All of it runs on the goroutine that
// owns that context.
type BLAS struct{ h unsafe.Pointer }

// NewBLAS binds the library, unless it is bound already, and starts it on a stream with n bytes
// of device memory, which must be 256-byte aligned, as workspace.
func NewBLAS(s cu.Stream, workspace uint64, n int) (*BLAS, error) {
	loading.Lock()
	why := C.talf_blas_load()
	loading.Unlock()
	if why != nil {
		return nil, errors.New(C.GoString(why))
	}
	b := new(BLAS)
	if err := status(C.talf_blas_create(&b.h)); err != nil {
		return nil, err
	}
	if err := status(C.talf_blas_use_at(b.h, *(*unsafe.Pointer)(unsafe.Pointer(&s)), C.ulonglong(workspace), C.size_t(n))); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Version returns, for example, "12.8.4".
func (b *BLAS) Version() string {
	var v C.int
	C.talf_blas_version(b.h, &v)
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// A Product is c [M][N] = op(a)·op(b) + Beta·c, where op(a) is [M][K] and TA says that it is stored as [K][M]; b likewise.
// Addresses are the device's, LDA, LDB and LDC the elements from one stored row to the next.
type Product struct {
	BF16          bool // type of a and b; else f32. c is f32
	M, N, K       int
	A, B, C       uint64
	TA, TB        bool
	LDA, LDB, LDC int
	Beta          float32
}

// Product queues p, whose sums are in f32.
func (b *BLAS) Product(p *Product) error {
	flag := func(x bool) C.int {
		if x {
			return 1
		}
		return 0
	}
	return status(C.talf_blas_product_at(b.h, flag(p.BF16), flag(p.TA), flag(p.TB), C.int(p.M), C.int(p.N), C.int(p.K), C.ulonglong(p.A), C.int(p.LDA),
		C.ulonglong(p.B), C.int(p.LDB), C.float(p.Beta), C.ulonglong(p.C), C.int(p.LDC)))
}

// Close frees the library's resources.
func (b *BLAS) Close() { C.talf_blas_destroy(b.h) }
