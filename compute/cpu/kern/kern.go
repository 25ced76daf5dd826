// Package kern holds the CPU kernels: one table of functions per CPU class, all
// with the same bits. The portable table, in plain Go, is the oracle of the rest.
//
// Bits are the same on every class because each function's arithmetic is spelled
// out: a chain is a sequence of correctly rounded float32 fused multiply-adds in
// ascending order; a lane sum adds element i to lane i%16 in ascending order and
// then folds the lanes 16→8→4→2→1 by adding lane i+half to lane i; exp is the
// polynomial in exp.go.
package kern

// A Class is a set of instructions that kernels are written for.
type Class uint8

// The classes, slowest first.
const (
	Portable Class = iota
	AVX2           // AVX2 and FMA
	AVX512         // AVX-512 F, BW, DQ, VL
)

// Panel is the number of outputs that Gemm computes at once.
const Panel = 32

// Funcs are the kernels of one class. Slices are as long as their comments say;
// kernels do not check them. Destinations may alias sources only where said.
type Funcs struct {
	Class Class
	// MaxRows is the most rows that Gemm takes.
	MaxRows int
	// Gemm computes c[r·ldc+j] (+)= Σ_k a[r·ars+k·aks] · b[k·ldb+j] for r < rows
	// ≤ MaxRows, j < Panel, as one chain over ascending k that starts from zero,
	// or from c if acc.
	Gemm func(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool)
	// Exp sets dst[i] = exp(x[i]); dst may be x.
	Exp func(dst, x []float32)
	// Max returns the largest element, −Inf if there is none.
	Max func(x []float32) float32
	// ExpSum sets dst[i] = exp(x[i]−max) and returns the lane sum; dst may be x.
	ExpSum func(dst, x []float32, max float32) float32
	// Scale multiplies x by s.
	Scale func(x []float32, s float32)
	// Add sets dst[i] = a[i] + b[i]; dst may be a or b.
	Add func(dst, a, b []float32)
	// Mul sets dst[i] = a[i] · b[i]; dst may be a or b.
	Mul func(dst, a, b []float32)
	// Axpy sets y[i] = fma(a, x[i], y[i]).
	Axpy func(y []float32, a float32, x []float32)
	// Dot returns the lane sum of a·b, each lane a chain of fused multiply-adds.
	Dot func(a, b []float32) float32
	// SiLUMul sets dst[i] = g[i]/(1+exp(−g[i])) · u[i].
	SiLUMul func(dst, g, u []float32)
	// SiLUMulGrad gives dg and du of SiLUMul for dy.
	SiLUMulGrad func(dg, du, dy, g, u []float32)
	// Rope rotates one head x [2h] in place: x[i], x[i+h] with cos[i], sin[i].
	Rope func(x, cos, sin []float32)
	// ArgMax returns the lowest index of the largest element.
	ArgMax func(x []float32) int
	// AdamW updates p, m, v by g with lr, b1, b2, eps, decay (lr·wd), the gradient
	// scale and the bias corrections c1 = 1/(1−b1^t), c2 = 1/(1−b2^t).
	AdamW func(p, g, m, v []float32, h *Adam)
}

// Adam are the constants of one AdamW update.
type Adam struct {
	LR, Beta1, Beta2, Eps, Decay, Scale, C1, C2 float32
}
