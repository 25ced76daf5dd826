//go:build amd64 && !purego

package kern

import (
	"math"
	"sync"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// features are those of a processor that decide about its classes.
type features uint

const (
	hasAVX2 features = 1 << iota
	hasFMA
	hasF16C
	hasAVX512F
	hasAVX512BW
	hasAVX512DQ
	hasAVX512VL
	hasVNNI
	hasAVXVNNI
	hasAMX      // and the system permits it
	allFeatures = 1<<iota - 1
)

// needs are the features of which a class needs every one. None implies another: hypervisors hide single ones.
var needs = [...]features{
	Portable:   0,
	AVX2:       hasAVX2 | hasFMA | hasF16C,
	AVXVNNI:    hasAVX2 | hasFMA | hasF16C | hasAVXVNNI,
	AVX512:     hasAVX2 | hasFMA | hasF16C | hasAVX512F | hasAVX512BW | hasAVX512DQ | hasAVX512VL,
	AVX512VNNI: allFeatures &^ (hasAMX | hasAVXVNNI),
	AMX:        allFeatures &^ hasAVXVNNI,
}

func (p features) runs(c Class) bool { return int(c) < len(needs) && p&needs[c] == needs[c] }

// here returns the features of this machine's processor whose registers the system saves.
func here() (p features) {
	x := &cpu.X86
	for f, has := range map[features]bool{
		hasAVX2: x.HasAVX2, hasFMA: x.HasFMA, hasF16C: x.HasF16C,
		hasAVX512F: x.HasAVX512F, hasAVX512BW: x.HasAVX512BW, hasAVX512DQ: x.HasAVX512DQ, hasAVX512VL: x.HasAVX512VL,
		hasVNNI: x.HasAVX512VNNI, hasAVXVNNI: avxVNNI(), hasAMX: noAMX == nil,
	} {
		if has {
			p |= f
		}
	}
	return p
}

func offers(c Class) bool { return here().runs(c) }

func table(c Class) *Funcs {
	return [...]*Funcs{Portable: &portable, AVX2: &avx2, AVXVNNI: &avxvnni, AVX512: &avx512, AVX512VNNI: &avx512vnni, AMX: &amx}[c]
}

// vectors reports whether functions that all classes share take those of AVX2.
var vectors = sync.OnceValue(func() bool { return Best() >= AVX2 })

var avx2 = Funcs{
	Class:        AVX2,
	MaxRows:      len(gemmsAVX2) - 1,
	Gemm:         gemmOf(gemmsAVX2[:], halfRows),
	GemmNext:     gemmNextOf(gemmsAVX2[:], halfRows),
	MaxRowsBF16:  len(gemmsBF16AVX2) - 1,
	GemmBF16:     gemmBF16Of(gemmsBF16AVX2[:], halfRows),
	GemmBF16Next: gemmBF16NextOf(gemmsBF16AVX2[:], halfRows),
	MaxRowsPairs: len(gemmsPairsAVX2) - 1,
	GemmPairs:    gemmPairsOf(gemmsPairsAVX2[:], halfRows),
	Pairs:        fusedPairs,
	QuantA: func(dst []uint32, x []float32, planes int) {
		quantAsm(quantsAVX2[planes], dst, x, planes)
	},
	MaxRowsQ8:  len(gemmsQ8AVX2) - 1,
	GemmQ8:     byPlanes(gemmQ8Of(gemmsQ8BytesAVX2[:]), gemmQ8Of(gemmsQ8AVX2[:])),
	MaxRowsQ4:  len(gemmsQ4AVX2) - 1,
	GemmQ4:     byPlanes(gemmQ4Of(gemmsQ4BytesAVX2[:]), gemmQ4Of(gemmsQ4AVX2[:])),
	GemmQ4K:    byPlanes(gemmQ4KOf(gemmsQ4KBytesAVX2[:]), gemmQ4KOf(gemmsQ4KAVX2[:])),
	gemmQ41:    byPlanes(compactOf(gemmsQ41BytesAVX2[:], Q4_1), compactOf(gemmsQ41AVX2[:], Q4_1)),
	gemmQ50:    compactOf(gemmsQ50BytesAVX2[:], Q5_0),
	rowsQ50:    [2]int{len(gemmsQ50BytesAVX2) - 1, 0},
	MaxRowsQ6K: len(gemmsQ6KAVX2) - 1,
	GemmQ6K:    byPlanes(gemmQ6KOf(gemmsQ6KBytesAVX2[:]), gemmQ6KOf(gemmsQ6KAVX2[:])),
	unpackedQ8: unpackedOf(Q8BlockLen, func(planes int) []gemmQ8Func { return [...][]gemmQ8Func{gemmsQ8BytesAVX2[:], gemmsQ8AVX2[:]}[planes-1] }),
	unpackedQ8M: unpackedOf(Q8MBlockLen, func(planes int) []gemmQ8Func {
		return [...][]gemmQ8Func{gemmsQ8MBytesAVX2[:], gemmsQ8MAVX2[:]}[planes-1]
	}),
	unpackedQ5:  unpackedOf(Q8BlockLen, func(int) []gemmQ8Func { return gemmsQ5BytesAVX2[:] }),
	unpackedQ5M: unpackedOf(Q8MBlockLen, func(int) []gemmQ8Func { return gemmsQ5MBytesAVX2[:] }),
	Exp:         unaryOf(expAVX2),
	Max:         func(x []float32) float32 { return maxAVX2(unsafe.SliceData(x), len(x)) },
	Peaks:       peaksOf(peaksAVX2),
	ExpSum:      expSumOf(expSumAVX2),
	ExpTotal:    func(x []float32, max float32) float32 { return expTotalAVX2(unsafe.SliceData(x), len(x), max) },
	Scale:       func(x []float32, s float32) { scaleAVX2(unsafe.SliceData(x), len(x), s) },
	Add:         binaryOf(addAVX2),
	Mul:         binaryOf(mulAVX2),
	Axpy:        axpyOf(axpyAVX2),
	Dot:         dotOf(dotAVX2),
	SiLUMul:     binaryOf(siluMulAVX2),
	SiLUMulGrad: siluMulGradOf(siluMulGradAVX2),
	GELU:        unaryOf(geluAVX2),
	Rope:        ropeOf(ropeAVX2),
	ArgMax:      argMaxOf(maxAVX2, indexAVX2),
	AdamW: func(p, g, m, v []float32, h *Adam) {
		g, m, v = g[:len(p)], m[:len(p)], v[:len(p)]
		row := newAdamRow(h)
		adamWAVX2(unsafe.SliceData(p), unsafe.SliceData(g), unsafe.SliceData(m), unsafe.SliceData(v), len(p), &row[0][0])
	},
}

var avx512 = Funcs{
	Class:        AVX512,
	Shapes:       Shapes{F32: Shape{len(gemmsAVX512) - 1, chunkF32}},
	cut:          (*Funcs).cutAVX512,
	MaxRows:      len(gemmsAVX512) - 1,
	Gemm:         gemmOf(gemmsAVX512[:], math.MaxInt),
	GemmNext:     gemmNextOf(gemmsAVX512[:], math.MaxInt),
	MaxRowsBF16:  len(gemmsBF16AVX512) - 1,
	GemmBF16:     gemmBF16Of(gemmsBF16AVX512[:], math.MaxInt),
	GemmBF16Next: gemmBF16NextOf(gemmsBF16AVX512[:], math.MaxInt),
	MaxRowsPairs: len(gemmsPairsAVX512) - 1,
	GemmPairs:    gemmPairsOf(gemmsPairsAVX512[:], math.MaxInt),
	Pairs:        fusedPairs,
	QuantA:       func(dst []uint32, x []float32, planes int) { quantAsm(quantAAVX512, dst, x, planes) },
	MaxRowsQ8:    len(gemmsQ8AVX512) - 1,
	GemmQ8:       gemmQ8Of(gemmsQ8AVX512[:]),
	MaxRowsQ4:    len(gemmsQ4AVX512) - 1,
	GemmQ4:       gemmQ4Of(gemmsQ4AVX512[:]),
	GemmQ4K:      gemmQ4KOf(gemmsQ4KAVX512[:]),
	gemmQ41:      compactOf(gemmsQ41AVX512[:], Q4_1),
	MaxRowsQ6K:   len(gemmsQ6KAVX512) - 1,
	GemmQ6K:      gemmQ6KOf(gemmsQ6KAVX512[:]),
	unpackedQ8:   unpackedOf(Q8BlockLen, func(int) []gemmQ8Func { return gemmsQ8AVX512[:] }),
	unpackedQ8M:  unpackedOf(Q8MBlockLen, func(int) []gemmQ8Func { return gemmsQ8MAVX512[:] }),
	Exp:          unaryOf(expAVX512),
	Max:          func(x []float32) float32 { return maxAVX512(unsafe.SliceData(x), len(x)) },
	Peaks:        peaksOf(peaksAVX512),
	ExpSum:       expSumOf(expSumAVX512),
	ExpTotal:     func(x []float32, max float32) float32 { return expTotalAVX512(unsafe.SliceData(x), len(x), max) },
	Scale:        func(x []float32, s float32) { scaleAVX512(unsafe.SliceData(x), len(x), s) },
	Add:          binaryOf(addAVX512),
	Mul:          binaryOf(mulAVX512),
	Axpy:         axpyOf(axpyAVX512),
	Dot:          dotOf(dotAVX512),
	SiLUMul:      binaryOf(siluMulAVX512),
	SiLUMulGrad:  siluMulGradOf(siluMulGradAVX512),
	GELU:         unaryOf(geluAVX512),
	Rope:         ropeOf(ropeAVX512),
	ArgMax:       argMaxOf(maxAVX512, indexAVX512),
	AdamW: func(p, g, m, v []float32, h *Adam) {
		g, m, v = g[:len(p)], m[:len(p)], v[:len(p)]
		row := newAdamRow(h)
		adamWAVX512(unsafe.SliceData(p), unsafe.SliceData(g), unsafe.SliceData(m), unsafe.SliceData(v), len(p), &row[0][0])
	},
}

// What Funcs.Pairs says.
const (
	fusedPairs = "fused multiply-adds"
	dotPairs   = "VDPBF16PS"
)

// avx512vnni differs in products of integers and of pairs only.
var avx512vnni = func() Funcs {
	f := avx512
	f.Class = AVX512VNNI
	if cpu.X86.HasAVX512BF16 {
		f.MaxRowsPairs = len(gemmsPairsBF16) - 1
		f.GemmPairs = gemmPairsOf(gemmsPairsBF16[:], math.MaxInt)
		f.Pairs = dotPairs
	}
	f.QuantA = func(dst []uint32, x []float32, planes int) {
		quantAsm(quantsVNNI[planes], dst, x, planes)
	}
	f.MaxRowsQ8 = len(gemmsQ8VNNI[0]) - 1
	f.cut = (*Funcs).cutVNNI
	f.Shapes.Q8 = [2]Shape{{f.MaxRowsQ8, chunkQ8}, {f.MaxRowsQ8, chunkQ8}}
	f.MaxRowsQ4 = len(gemmsQ4VNNI[0]) - 1
	f.MaxRowsQ6K = len(gemmsQ6KVNNI[0]) - 1
	f.Shapes.Q4 = [2]Shape{{f.MaxRowsQ4, chunkQ4}, {f.MaxRowsQ4, chunkQ4}}
	f.unpackedQ8 = unpackedOf(Q8BlockLen, func(planes int) []gemmQ8Func { return gemmsQ8VNNI[planes-1][:] })
	f.unpackedQ8M = unpackedOf(Q8MBlockLen, func(planes int) []gemmQ8Func { return gemmsQ8MVNNI[planes-1][:] })
	f.rowsQ50 = [2]int{16, 8}
	f.cut(&f)
	return f
}()

// cutAVX512 makes the products that cut rows as f's shapes say.
func (f *Funcs) cutAVX512() {
	kernels, chunk := gemmsAVX512[:f.Shapes.F32.Rows+1], f.Shapes.F32.Chunk
	f.Gemm = func(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool) {
		gemmAsmNext(kernels, math.MaxInt, c, ldc, a, ars, aks, b, ldb, rows, k, acc, 0, chunk)
	}
	f.GemmNext = func(c []float32, ldc int, a []float32, ars, aks int, b []float32, rows, k int, acc bool, next []float32) {
		gemmAsmNext(kernels, math.MaxInt, c, ldc, a, ars, aks, b, Panel, rows, k, acc, distance(b, next), chunk)
	}
}

// cutVNNI is cutAVX512 with integers by VNNI.
func (f *Funcs) cutVNNI() {
	f.cutVNNI4()
	s := f.Shapes.Q8
	f.GemmQ8 = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ8Asm(gemmsQ8VNNI[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc, s[planes-1])
	}
}

// cutVNNI4 is cutAVX512 with 4 and 6 bits by VNNI.
func (f *Funcs) cutVNNI4() {
	f.cutAVX512()
	s := f.Shapes.Q4
	f.GemmQ4 = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ4Asm(gemmsQ4VNNI[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc, Q4BlockLen, s[planes-1])
	}
	f.GemmQ4K = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ4KAsm(gemmsQ4KVNNI[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc, s[planes-1])
	}
	f.gemmQ41 = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ4Asm(gemmsQ41VNNI[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc, Q4_1.Len, s[planes-1])
	}
	f.gemmQ50 = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ4Asm(gemmsQ50VNNI[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc, Q5_0.Len, s[planes-1])
	}
	f.GemmQ6K = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ6KAsm(gemmsQ6KVNNI[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc, s[planes-1])
	}
}

// The kernels by number of rows. From halfRows on, those of AVX2 compute half of
// a panel.
var (
	gemmsAVX2 = [...]gemmAsm{1: gemm1AVX2, gemm2AVX2, gemm3AVX2, gemm4AVX2, gemm5AVX2, gemm6AVX2}

	gemmsAVX512 = [...]gemmAsm{
		1: gemm1AVX512, gemm2AVX512, gemm3AVX512, gemm4AVX512, gemm5AVX512, gemm6AVX512, gemm7AVX512,
		gemm8AVX512, gemm9AVX512, gemm10AVX512, gemm11AVX512, gemm12AVX512, gemm13AVX512, gemm14AVX512,
	}
)

var (
	gemmsBF16AVX2 = [...]gemmBF16Asm{
		1: gemmBF16x1AVX2, gemmBF16x2AVX2, gemmBF16x3AVX2, gemmBF16x4AVX2, gemmBF16x5AVX2, gemmBF16x6AVX2,
	}
	gemmsPairsAVX2 = [...]gemmPairsAsm{
		1: gemmPairsx1AVX2, gemmPairsx2AVX2, gemmPairsx3AVX2, gemmPairsx4AVX2, gemmPairsx5AVX2, gemmPairsx6AVX2,
	}
	gemmsPairsAVX512 = [...]gemmPairsAsm{
		1: gemmPairsx1AVX512, gemmPairsx2AVX512, gemmPairsx3AVX512, gemmPairsx4AVX512, gemmPairsx5AVX512,
		gemmPairsx6AVX512, gemmPairsx7AVX512, gemmPairsx8AVX512, gemmPairsx9AVX512, gemmPairsx10AVX512,
		gemmPairsx11AVX512, gemmPairsx12AVX512, gemmPairsx13AVX512, gemmPairsx14AVX512,
	}
	gemmsPairsBF16 = [...]gemmPairsAsm{
		1: gemmPairsx1AVX512BF16, gemmPairsx2AVX512BF16, gemmPairsx3AVX512BF16, gemmPairsx4AVX512BF16, gemmPairsx5AVX512BF16,
		gemmPairsx6AVX512BF16, gemmPairsx7AVX512BF16, gemmPairsx8AVX512BF16, gemmPairsx9AVX512BF16, gemmPairsx10AVX512BF16,
		gemmPairsx11AVX512BF16, gemmPairsx12AVX512BF16, gemmPairsx13AVX512BF16, gemmPairsx14AVX512BF16,
	}
	gemmsQ8AVX2 = [...]gemmQ8Func{
		1: gemmQ8x1AVX2, gemmQ8x2AVX2, gemmQ8x3AVX2, gemmQ8x4AVX2, gemmQ8x5AVX2, gemmQ8x6AVX2,
	}

	gemmsBF16AVX512 = [...]gemmBF16Asm{
		1: gemmBF16x1AVX512, gemmBF16x2AVX512, gemmBF16x3AVX512, gemmBF16x4AVX512, gemmBF16x5AVX512,
		gemmBF16x6AVX512, gemmBF16x7AVX512, gemmBF16x8AVX512, gemmBF16x9AVX512, gemmBF16x10AVX512,
		gemmBF16x11AVX512, gemmBF16x12AVX512, gemmBF16x13AVX512, gemmBF16x14AVX512,
	}
	gemmsQ8AVX512 = [...]gemmQ8Func{
		1: gemmQ8x1AVX512, gemmQ8x2AVX512, gemmQ8x3AVX512, gemmQ8x4AVX512,
		gemmQ8x5AVX512, gemmQ8x6AVX512, gemmQ8x7AVX512, gemmQ8x8AVX512,
	}

	// by planes, counted from 0
	gemmsQ8VNNI = [2][13]gemmQ8Func{
		{
			1: gemmQ8Planes1x1AVX512VNNI, gemmQ8Planes1x2AVX512VNNI, gemmQ8Planes1x3AVX512VNNI, gemmQ8Planes1x4AVX512VNNI,
			gemmQ8Planes1x5AVX512VNNI, gemmQ8Planes1x6AVX512VNNI, gemmQ8Planes1x7AVX512VNNI, gemmQ8Planes1x8AVX512VNNI,
			gemmQ8Planes1x9AVX512VNNI, gemmQ8Planes1x10AVX512VNNI, gemmQ8Planes1x11AVX512VNNI, gemmQ8Planes1x12AVX512VNNI,
		},
		{
			1: gemmQ8Planes2x1AVX512VNNI, gemmQ8Planes2x2AVX512VNNI, gemmQ8Planes2x3AVX512VNNI, gemmQ8Planes2x4AVX512VNNI,
			gemmQ8Planes2x5AVX512VNNI, gemmQ8Planes2x6AVX512VNNI, gemmQ8Planes2x7AVX512VNNI, gemmQ8Planes2x8AVX512VNNI,
			gemmQ8Planes2x9AVX512VNNI, gemmQ8Planes2x10AVX512VNNI, gemmQ8Planes2x11AVX512VNNI, gemmQ8Planes2x12AVX512VNNI,
		},
	}
	// by planes
	quantsAVX2 = [...]quantFunc{1: quantAPlanes1AVX2, quantAAVX2}
	quantsVNNI = [...]quantFunc{1: quantAPlanes1AVX512VNNI, quantAPlanes2AVX512VNNI}
)

// An adamRow holds the constants of adamW in the order that the assembly reads
// them, each as often as a YMM register has lanes.
type adamRow [10][8]float32

func newAdamRow(h *Adam) (row adamRow) {
	for i, v := range [...]float32{h.LR, h.Beta1, 1 - h.Beta1, h.Beta2, 1 - h.Beta2, h.Eps, h.Decay, h.Scale, h.C1, h.C2} {
		for j := range row[i] {
			row[i][j] = v
		}
	}
	return row
}

// transpose packs the columns of Panel rows that fill whole steps, and returns their number. It
// only moves bits, so every class may share it.
func transpose(p, src []float32, k, ldsrc int) int {
	steps := k / packStep
	if steps == 0 || !vectors() {
		return 0
	}
	k = steps * packStep
	_, _ = p[k*Panel-1], src[(Panel-1)*ldsrc+k-1]
	transposeAVX2(unsafe.SliceData(p), unsafe.SliceData(src), 4*uintptr(ldsrc), steps)
	return k
}

// wordStep is the number of elements that a converting function handles at once. These functions
// round as the plain ones do, so every class may share them too.
const wordStep = 16

// narrowWords narrows whole steps of x and returns the number of their elements.
func narrowWords(dst []uint16, x []float32) int {
	n := len(x) &^ (wordStep - 1)
	if n == 0 || !vectors() {
		return 0
	}
	_ = dst[n-1]
	narrowBF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(x), n)
	return n
}

// roundPairs rounds whole steps of x to pairs and returns the number of these.
func roundPairs(dst []uint32, x []float32) int {
	return narrowWords(unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(dst))), 2*len(dst)), x) / 2
}

// widenBF16Words widens whole steps of src to dst and returns the number of their elements.
func widenBF16Words(dst []float32, src []byte) int {
	n := len(dst) &^ (wordStep - 1)
	if n == 0 || !vectors() {
		return 0
	}
	_ = src[2*n-1]
	widenBF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	return n
}

// widenF16Words is widenBF16Words for float16.
func widenF16Words(dst []float32, src []byte) int {
	n := len(dst) &^ (wordStep - 1)
	if n == 0 || !vectors() {
		return 0
	}
	_ = src[2*n-1]
	widenF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	return n
}

// pairs packs the words of Panel rows, ld elements apart, that fill whole steps into a panel,
// and returns how many words of a row they are.
func pairs[T byte | uint16](p []uint16, src []T, words, ld int) int {
	steps := words / packStep
	if steps == 0 || !vectors() {
		return 0
	}
	words = steps * packStep
	size := int(unsafe.Sizeof(src[0]))
	_, _ = p[2*words*Panel-1], src[(Panel-1)*ld+4*words/size-1]
	transposeAVX2((*float32)(unsafe.Pointer(unsafe.SliceData(p))), (*float32)(unsafe.Pointer(unsafe.SliceData(src))), uintptr(ld*size), steps)
	return words
}

// packQ8Block quantises one block of Panel outputs, rows of src ldsrc apart, and
// reports whether it did.
func packQ8Block(u *[Q8BlockLen]byte, src []float32, ldsrc int) bool {
	if !vectors() {
		return false
	}
	_ = src[(Panel-1)*ldsrc+Q8Block-1]
	var amax, by [Panel]float32
	absMaxAVX2(&amax[0], unsafe.SliceData(src), 4*uintptr(ldsrc), Panel)
	large := false
	for j, m := range amax {
		h, d := q8Scale(m)
		u[2*j], u[2*j+1] = byte(h), byte(h>>8)
		if d > 0 {
			by[j] = 1 / d
		}
		large = large || !(m < 127*q8MaxF16)
	}
	packQ8AVX2(&u[0], unsafe.SliceData(src), 4*uintptr(ldsrc), &by[0], Panel)
	for j := 0; large && j < Panel; j++ {
		if !(amax[j] < 127*q8MaxF16) { // the conversion to integers goes wrong
			packQ8(u, j, src[j*ldsrc:][:Q8Block])
		}
	}
	return true
}
