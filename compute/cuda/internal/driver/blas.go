//go:build gpu && linux && cgo

package driver

/*
#include "blas.h"

// Addresses of the device travel as integers.
static int talf_blas_use_at(void *h, void *stream, unsigned long long workspace, size_t n) { return talf_blas_use(h, stream, (void *)workspace, n); }
static int talf_blas_product_at(void *h, int bf16, int m, int n, int k, unsigned long long w, int ldw, unsigned long long x, int ldx, float beta, unsigned long long c, int ldc) {
  return talf_blas_product(h, bf16, m, n, k, (void *)w, ldw, (void *)x, ldx, beta, (void *)c, ldc);
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

// Product queues c [n][m] = x [n][k] · w [m][k]ᵀ + beta·c of rows that are ldc, ldx
// and ldw elements apart: w and x in bfloat16 or f32, c and its sums in f32.
func (b *BLAS) Product(bf16 bool, m, n, k int, w uint64, ldw int, x uint64, ldx int, beta float32, c uint64, ldc int) error {
	half := C.int(0)
	if bf16 {
		half = 1
	}
	return status(C.talf_blas_product_at(b.h, half, C.int(m), C.int(n), C.int(k), C.ulonglong(w), C.int(ldw),
		C.ulonglong(x), C.int(ldx), C.float(beta), C.ulonglong(c), C.int(ldc)))
}

// Close frees the library's resources.
func (b *BLAS) Close() { C.talf_blas_destroy(b.h) }
