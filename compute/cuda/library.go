//go:build gpu && linux && cgo

package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"talf/compute/cuda/internal/driver"
	"talf/internal/hint"
)

// workspaceSize is what cuBLAS's documentation advises for Hopper. With a workspace of its own a handle gives the
// same bits in every run, whatever other streams do.
const workspaceSize = 32 << 20

// A library is cuBLAS on the device's stream, with memory of its own.
type library struct {
	blas      *driver.BLAS
	workspace *block
	// name is, for example, "cuBLAS 12.8.4 on 132 multiprocessors". By its documentation, the library has the same
	// bits on devices of one architecture with equally many multiprocessors.
	name string
}

// newLibrary starts cuBLAS.
func (d *device) newLibrary() (*library, error) {
	l := &library{}
	var err error
	if l.workspace, err = d.alloc("the workspace of cuBLAS", workspaceSize, false); err != nil {
		return nil, err
	}
	err = d.do(func() error {
		if l.blas, err = driver.NewBLAS(d.stream, l.workspace.ptr, workspaceSize); err != nil {
			return err
		}
		d.libraries = append(d.libraries, l.blas)
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.name = fmt.Sprintf("cuBLAS %s on %d multiprocessors", l.blas.Version(), d.info.SMs)
	return l, nil
}

// multiply queues p, which names the library's operands.
func (d *device) multiply(l *library, p driver.Product) {
	d.send(command{f: func() {
		if d.lost.Load() != nil {
			return
		}
		if err := l.blas.Product(&p); err != nil {
			d.fail(fmt.Errorf("product of [%d][%d] and [%d][%d]: %w", p.M, p.K, p.K, p.N, err))
		}
	}})
}

// trainingFrom is the fewest multiplications of a product of training that the library computes. A smaller one takes
// a few microseconds either way, and a call of the library takes more of the host's time than a launch.
const trainingFrom = 1 << 20

var errNotAsked = errors.New("it was not asked for")

// startTraining starts the library for products of training, or records why there is none.
func (d *device) startTraining() {
	d.noTraining = errNotAsked
	if d.cfg.BLAS {
		d.training, d.noTraining = d.newLibrary()
	}
}

// TrainsWith names what computes large products of training; "" is the device itself, and the error says why.
func (d *device) TrainsWith() (by string, why error) {
	if d.noTraining != nil {
		return "", d.noTraining
	}
	return d.training.name, nil
}

// large reports whether the library computes a product of training of op(a) [m][k] and op(b) [k][n].
func (q *queue) large(m, n, k int64) bool {
	return q.dev.training != nil && m*n*k >= cmp.Or(q.dev.cfg.BLASFrom, trainingFrom) && max(m, n, k) <= math.MaxInt32 && !q.pass.on
}

// byLibrary queues a product of training if it is large, and reports whether it did. See trained.
func (q *queue) byLibrary(bf16, ta, tb bool, h *halfArgs) bool {
	large := q.large(h.m, h.n, h.k)
	if large {
		q.trained(bf16, ta, tb, h)
	}
	return large
}

// trained queues the library's product of op(a) and op(b), of rows that are bf16 or f32; ta and tb say that a is stored
// as [k][m] and b as [n][k].
func (q *queue) trained(bf16, ta, tb bool, h *halfArgs) {
	across := func(t bool, rows, cols int64) int64 {
		if t {
			return rows
		}
		return cols
	}
	// The stride of a single row is arbitrary, but the library wants one that is at least its length.
	q.dev.multiply(q.dev.training, driver.Product{
		BF16: bf16, M: int(h.m), N: int(h.n), K: int(h.k), A: h.a, B: h.b, C: h.c, TA: ta, TB: tb, Beta: float32(h.beta),
		LDA: int(max(h.lda, across(ta, h.m, h.k))), LDB: int(max(h.ldb, across(tb, h.k, h.n))), LDC: int(max(h.ldc, h.n)),
	})
}

// needCopies fails the device if the library would have multiplied copies in bfloat16 for which there is no memory: the
// device's own products of floats have other bits, and a run's bits must not depend on what memory other programs
// leave.
func (q *queue) needCopies(m, n, k int64) {
	if q.large(m, n, k) {
		q.dev.fail(hint.Errorf("smaller batches or {cublas}=false take less", "no memory for copies in bfloat16, which cuBLAS multiplies"))
	}
}
