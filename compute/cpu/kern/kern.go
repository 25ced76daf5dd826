// Package kern holds the CPU kernels: one table of functions per CPU class, all
// with the same bits. The portable table, in plain Go, is the oracle of the rest.
//
// Bits are the same on every class because each function's arithmetic is spelled
// out: a chain is a sequence of correctly rounded float32 fused multiply-adds in
// ascending order; a lane sum adds element i to lane i%16 in ascending order and
// then folds the lanes 16→8→4→2→1 by adding lane i+half to lane i; exp is the
// polynomial in exp.go. Only the sign and payload of a NaN are left open.
//
// Kernels run on the caller's goroutine, allocate nothing and keep no state.
package kern

//go:generate go -C ../../../tools run ./avogen -class avx2 -dir ../compute/cpu/kern
//go:generate go -C ../../../tools run ./avogen -class avxvnni -dir ../compute/cpu/kern
//go:generate go -C ../../../tools run ./avogen -class avx512 -dir ../compute/cpu/kern
//go:generate go -C ../../../tools run ./avogen -class avx512vnni -dir ../compute/cpu/kern
//go:generate go -C ../../../tools run ./avogen -class avx512bf16 -dir ../compute/cpu/kern
//go:generate go -C ../../../tools run ./avogen -class amx -dir ../compute/cpu/kern
//go:generate go -C ../../../tools run ./neongen -dir ../compute/cpu/kern

// Panel is the number of outputs that Gemm computes at once.
const Panel = 32

// lanes is the number of partial sums of a lane sum.
const lanes = 16

// gemmIntegers is a product of integers, as Funcs has them.
type gemmIntegers = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool)

// Funcs are the kernels of one class. The first slice argument gives the number of elements; the
// caller makes sure that the others are at least as long. Destinations may alias sources only
// where stated, and then must coincide.
type Funcs struct {
	Class Class
	// Shapes say how products cut rows that one kernel does not hold. They are zero for products
	// that can do so in one way only.
	Shapes Shapes
	cut    func(*Funcs) // makes the products that follow Shapes; nil if none does
	// MaxRows is the largest number of rows that Gemm computes at once, and its fastest number.
	MaxRows int
	// Gemm computes c[r·ldc+j] (+)= Σ_k a[r·ars+k·aks] · b[k·ldb+j] for j < Panel
	// and r < rows, any number of them, as one chain over ascending k that starts
	// from zero, or from c if acc. Strides count elements. Splitting k over several
	// calls, the later ones with acc, does not change the bits. Rows beyond MaxRows
	// do not make it read b from memory again: one call is better than several.
	Gemm func(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool)
	// GemmNext is Gemm with ldb = Panel. While it computes, it prefetches the k·Panel elements
	// of next, unless that is empty, so that they are near when a later call takes them as its
	// b.
	GemmNext func(c []float32, ldc int, a []float32, ars, aks int, b []float32, rows, k int, acc bool, next []float32)
	// MaxRowsBF16 is the largest number of rows that GemmBF16 computes at once, and its fastest
	// number.
	MaxRowsBF16 int
	// GemmBF16 is Gemm with ldb = Panel on b widened, with its bits. b is a panel
	// [⌈k/2⌉][Panel][2] of pairs of consecutive k, as PackBF16 writes it; the last partner of an
	// odd k is not used. Calls that split k do so at even k.
	GemmBF16 func(c []float32, ldc int, a []float32, ars, aks int, b []uint16, rows, k int, acc bool)
	// GemmBF16Next is GemmBF16 that prefetches the panel next as GemmNext does.
	GemmBF16Next func(c []float32, ldc int, a []float32, ars, aks int, b []uint16, rows, k int, acc bool, next []uint16)
	// MaxRowsPairs is the largest number of rows that GemmPairs computes at once, and its fastest
	// number.
	MaxRowsPairs int
	// GemmPairs multiplies rows of activations, row r being RoundPairs's at a[r·ars], by b, a panel
	// as GemmBF16 takes it, in which the partner of an odd k is zero. For each output and each pair of
	// k in ascending order, the odd product and then the even one are added to c[r·ldc+j], which
	// starts from zero, or from c if acc, in fused multiply-adds that treat subnormal factors, terms
	// and results as zeros. Calls that split k do so at even k.
	GemmPairs func(c []float32, ldc int, a []uint32, ars int, b []uint16, rows, k int, acc bool)
	// Pairs says what computes GemmPairs; it is empty where plain Go does, many times slower.
	Pairs string
	// SplitA rounds the row x to planes (1 or 2) of bfloat16, where the second is the remainder
	// of the first, and writes it for GemmSplit. It rounds to nearest, ties to even; the second
	// plane is zero where the first is not finite. dst has at least BF16ALen(len(x), planes)
	// elements. Only class AMX has it.
	SplitA func(dst []uint32, x []float32, planes int)
	// MaxRowsSplit is the largest number of rows that GemmSplit computes at once, and its
	// fastest number.
	MaxRowsSplit int
	// GemmSplit multiplies rows of activations, row r being SplitA's with planes at a[r·ars], by
	// b, a panel as GemmBF16 takes it, in which the partner of an odd k is zero. For each output
	// and each step of BF16Step k in ascending order, and within it for the first plane and then
	// the second, two chains over the even and the odd k start from zero; they are added, and
	// their sum is added to c[r·ldc+j], which starts from zero, or from c if acc. All of these
	// operations treat subnormal inputs and results as zeros. Calls that split k do so at
	// multiples of BF16Step. Only class AMX has it.
	GemmSplit func(c []float32, ldc int, a []uint32, ars int, b []uint16, rows, k, planes int, acc bool)
	// QuantA quantises the row x to integers of one plane (±127) or two (±32767)
	// and writes Q8ALen(len(x)) elements in the order that GemmQ8 of the same
	// table reads: blocks of Q8ABlockLen elements, in ascending k.
	QuantA func(dst []uint32, x []float32, planes int)
	// MaxRowsQ8 is the largest number of rows that GemmQ8 computes at once, and its fastest
	// number.
	MaxRowsQ8 int
	// GemmQ8 multiplies any number of rows of activations, row r being QuantA's with
	// planes at a[r·ars], by b, blocks blocks of a panel of the q8 format. For each
	// output and block in ascending order, the sum of the products of
	// integers, which is exact, becomes a float32, is multiplied by the weights'
	// scale, and then by the activations' scale fused with the addition to
	// c[r·ldc+j], which starts from zero, or from c if acc. Splitting the blocks
	// over several calls, the later ones with acc, does not change the bits.
	GemmQ8 func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool)
	// MaxRowsQ4 is the largest number of rows that GemmQ4 and GemmQ4K compute at once, and their
	// fastest number.
	MaxRowsQ4 int
	// GemmQ4 is GemmQ8 for blocks blocks of a panel of the q4 format, with the bits of the same
	// weights in q8.
	GemmQ4 func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool)
	// GemmQ4K is GemmQ8 for blocks blocks of Q4KBlock k of a panel of the q4k format, whose
	// arithmetic q4.go gives.
	GemmQ4K func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool)
	// gemmQ41 is GemmCompact for Q4_1, whose blocks it reads as they lie; nil: they are unpacked.
	gemmQ41 gemmIntegers
	// gemmQ50 is the same for Q5_0 and at most rowsQ50 rows, by planes of activations from 0: every group of rows takes
	// blocks apart again, so that for more of them it is quicker to unpack once.
	gemmQ50 gemmIntegers
	rowsQ50 [2]int
	// MaxRowsQ6K is the largest number of rows that GemmQ6K computes at once, and its fastest
	// number.
	MaxRowsQ6K int
	// GemmQ6K is GemmQ8 for blocks blocks of Q6KBlock k of a panel of the q6k format, whose
	// arithmetic q6.go gives.
	GemmQ6K func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool)
	// unpackedQ8 and unpackedQ8M multiply by few blocks of q8 and of q8m, whose arithmetic compact.go gives, that are in
	// the first level of the cache. They prefetch next.
	unpackedQ8, unpackedQ8M func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool, next []byte)
	// unpackedQ5 and unpackedQ5M are the same for activations of one plane and integers from −16 to 15, plus 16, and from 0
	// to 31; nil: they gain nothing.
	unpackedQ5, unpackedQ5M func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool, next []byte)
	// Exp sets dst[i] = exp(x[i]) to within 1.1 ulp; results below 2⁻¹²⁶ are 0.
	// dst may be x.
	Exp func(dst, x []float32)
	// Max returns the largest element, −Inf if there is none. NaNs are skipped.
	Max func(x []float32) float32
	// Peaks sets dst[r·ldd] to Max of the Panel elements at x[r·ldx], r < rows.
	Peaks func(dst []float32, ldd int, x []float32, ldx, rows int)
	// ExpSum sets dst[i] = exp(x[i]−max) and returns the lane sum; dst may be x.
	ExpSum func(dst, x []float32, max float32) float32
	// ExpTotal returns what ExpSum returns and writes nothing. It is for rows that are in no
	// near cache.
	ExpTotal func(x []float32, max float32) float32
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
	// SiLUMul sets dst[i] = g[i]/(1+exp(−g[i])) · u[i]; dst may be g or u.
	SiLUMul func(dst, g, u []float32)
	// SiLUMulGrad gives dg and du of SiLUMul for dy: with s = 1/(1+exp(−g)),
	// du = dy·(g·s) and dg = (dy·u)·(s + g·s·(1−s)). dg may be g and du may be u.
	SiLUMulGrad func(dg, du, dy, g, u []float32)
	// GELU sets dst[i] = x[i]·Φ(x[i]), where Φ is that of the normal distribution; dst may be x.
	// It is within 7e-8 + ½ ulp.
	GELU func(dst, x []float32)
	// Rope rotates one head x [2h] in place, where h is the length of cos and of sin: x[i],
	// x[i+h] = x[i]·cos[i] − x[i+h]·sin[i], x[i+h]·cos[i] + x[i]·sin[i], with the cosine's
	// product fused.
	Rope func(x, cos, sin []float32)
	// ArgMax returns the lowest index of the largest element. NaNs are skipped; if there is
	// nothing else, it returns 0.
	ArgMax func(x []float32) int
	// AdamW updates p, m and v by gradient g.
	AdamW func(p, g, m, v []float32, h *Adam)
}

// Adam are the constants of one AdamW update (Loshchilov and Hutter, Decoupled
// Weight Decay Regularization, algorithm 2), which is, in this order,
//
//	g ← g·Scale
//	m ← Beta1·m + (1−Beta1)·g
//	v ← Beta2·v + (1−Beta2)·g²
//	p ← p − Decay·p
//	p ← p − LR · m·C1 / (√(v·C2) + Eps)
//
// Decay is the learning rate times the weight decay; C1 = 1/(1−Beta1^t) and
// C2 = 1/(1−Beta2^t) are the bias corrections of step t, counted from 1.
type Adam struct {
	LR, Beta1, Beta2, Eps, Decay, Scale, C1, C2 float32
}
