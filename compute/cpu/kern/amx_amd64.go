//go:build amd64 && !purego

package kern

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// noAMX says why class AMX is not available. Unless it is nil, no tile instruction is
// executed. It is set before main starts, while the process has few threads: the kernel
// refuses tiles once a thread has a signal stack that is too small for them, as threads
// of C libraries do.
var noAMX = amxHost{cpuid, xgetbv, permitTiles}.detect()

// NoAMX returns nil if class AMX is available, and otherwise the reason, for
// example "no AMX: the processor has no AMX-TILE, AMX-BF16, AMX-INT8".
func NoAMX() error {
	if noAMX == nil && !offers(AVX512VNNI) {
		return errors.New("no AMX: the processor has no AVX-512 VNNI")
	}
	return noAMX
}

// An amxHost answers what detection asks: the processor's features and the operating
// system's permission.
type amxHost struct {
	cpuid  func(leaf, sub uint32) (eax, ebx, ecx, edx uint32)
	xgetbv func() uint32
	permit func() error
}

// detect asks for permission only if everything else is available.
func (h amxHost) detect() error {
	var missing []string
	maxLeaf, _, _, _ := h.cpuid(0, 0)
	var features uint32
	if maxLeaf >= 7 {
		_, _, _, features = h.cpuid(7, 0)
	}
	for _, f := range []struct {
		bit  int
		name string
	}{{24, "AMX-TILE"}, {22, "AMX-BF16"}, {25, "AMX-INT8"}} {
		if features>>f.bit&1 == 0 {
			missing = append(missing, f.name)
		}
	}
	if missing != nil {
		return fmt.Errorf("no AMX: the processor has no %s", strings.Join(missing, ", "))
	}
	if _, _, c, _ := h.cpuid(1, 0); c>>27&1 == 0 {
		return errors.New("no AMX: the operating system does not manage extended state (OSXSAVE is off)")
	}
	if x := h.xgetbv(); x>>17&3 != 3 {
		return fmt.Errorf("no AMX: the operating system does not manage tiles (XCR0 is %#x)", x)
	}
	if err := h.permit(); err != nil {
		return fmt.Errorf("no AMX: the kernel refused tile permission: %w", err)
	}
	return nil
}

const (
	amxRowsSplit = 32 // rows of the largest kernels
	amxRowsQ8    = 16
	// Up to this many rows of q8, vector instructions are faster than tiles.
	amxFew = 4
	// amxChunk is the part of a panel that groups of rows take turns on: a call costs
	// a configuration and a turn of the accumulators through memory, so it stays in
	// the second-level cache, not the first.
	amxChunk = 256 << 10
)

var amx = func() Funcs {
	f := avx512vnni
	f.Class = AMX
	f.Shapes.Q8, f.cut = [2]Shape{}, (*Funcs).cutVNNI4 // tiles have shapes of their own
	f.SplitA = splitAMX
	f.MaxRowsSplit = amxRowsSplit
	f.GemmSplit = gemmSplitAMX
	f.MaxRowsQ8 = amxRowsQ8
	f.GemmQ8 = gemmQ8AMX
	return f
}()

type (
	gemmSplitFunc   = func(cfg *byte, c *float32, ldc uintptr, a *uint32, ars uintptr, b *uint16, steps int, acc bool, ahead, pace uintptr)
	gemmQ8TilesFunc = func(cfg *byte, c *float32, ldc uintptr, a *uint32, ars uintptr, b *byte, rows, blocks int, acc bool, ahead, pace uintptr)
)

var (
	// by planes and blocks of 16 rows, both counted from 0
	gemmsSplitAMX = [2][2]gemmSplitFunc{
		{gemmBF16Blocks1Planes1AMX, gemmBF16Blocks2Planes1AMX},
		{gemmBF16Blocks1Planes2AMX, gemmBF16Blocks2Planes2AMX},
	}
	// by planes, and by the index that amxQ8Kernel gives for a number of rows
	gemmsQ8AMX = [2][6]gemmQ8TilesFunc{
		{
			gemmQ8Planes1x1AMX, gemmQ8Planes1x2AMX, gemmQ8Planes1x4AMX,
			gemmQ8Planes1x8AMX, gemmQ8Planes1x12AMX, gemmQ8Planes1x16AMX,
		},
		{
			gemmQ8Planes2x1AMX, gemmQ8Planes2x2AMX, gemmQ8Planes2x4AMX,
			gemmQ8Planes2x8AMX, gemmQ8Planes2x12AMX, gemmQ8Planes2x16AMX,
		},
	}
	amxQ8Kernel = [amxRowsQ8 + 1]uint8{0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5}
)

// A tileConfig is the operand of LDTILECFG.
type tileConfig [64]byte

// tileConfigOf configures palette 1 with tiles of rows[i] rows of cols[i] bytes. A tile is
// configured for the actual rows: loads and stores touch no others, and no padding is needed.
func tileConfigOf(rows, cols [8]int) (c tileConfig) {
	c[0] = 1
	for i := range 8 {
		if rows[i] > 0 {
			c[16+2*i], c[48+i] = byte(cols[i]), byte(rows[i])
		}
	}
	return c
}

// splitConfigs are by number of rows and by the pairs of k of a step.
var splitConfigs = func() (t [amxRowsSplit + 1][BF16Step/2 + 1]tileConfig) {
	for rows := 1; rows < len(t); rows++ {
		n, m := min(rows, 16), max(rows-16, 0)
		for pairs := 1; pairs < len(t[rows]); pairs++ {
			k := 4 * pairs
			if m > 0 { // 4 and 5 are the blocks' activations
				t[rows][pairs] = tileConfigOf([8]int{n, n, m, m, n, m, pairs, pairs}, [8]int{64, 64, 64, 64, k, k, 64, 64})
			} else { // 4 and 5 are the planes' activations
				t[rows][pairs] = tileConfigOf([8]int{n, n, 0, 0, n, n, pairs, pairs}, [8]int{64, 64, 0, 0, k, k, 64, 64})
			}
		}
	}
	return t
}()

// q8Configs are by number of rows.
var q8Configs = func() (t [amxRowsQ8 + 1]tileConfig) {
	for n := 1; n < len(t); n++ {
		t[n] = tileConfigOf([8]int{n, n, n, n, n, n, Q8Block / 4, Q8Block / 4}, [8]int{64, 64, 64, 64, Q8Block, Q8Block, 64, 64})
	}
	return t
}()

func splitAMX(dst []uint32, x []float32, planes int) {
	_ = dst[:(len(x)+BF16Step-1)/BF16Step*BF16AStepLen(planes)]
	if planes == 1 {
		split1AMX(unsafe.SliceData(dst), unsafe.SliceData(x), len(x))
	} else {
		split2AMX(unsafe.SliceData(dst), unsafe.SliceData(x), len(x))
	}
}

func gemmSplitAMX(c []float32, ldc int, a []uint32, ars int, b []uint16, rows, k, planes int, acc bool) {
	if rows == 0 {
		return
	}
	_ = c[(rows-1)*ldc+Panel-1]
	if k == 0 {
		if !acc {
			clearRows(c, ldc, rows)
		}
		return
	}
	const step = 2 * BF16Step * Panel // bytes of b
	full, pairs, per := k/BF16Step, (k%BF16Step+1)/2, BF16AStepLen(planes)
	_, _ = a[(rows-1)*ars+(k+BF16Step-1)/BF16Step*per-1], b[BF16PanelLen(k)-1]
	w := newTileWalk(rows, amxRowsSplit, full, amxChunk/step, step)
	multiply := func(t turn, pairs int) {
		ahead, pace := w.ahead(&t, 0)
		gemmsSplitAMX[planes-1][(t.rows-1)/16](&splitConfigs[t.rows][pairs][0], &c[t.r0*ldc], 4*uintptr(ldc), &a[t.r0*ars+t.i*per], 4*uintptr(ars),
			&b[t.i*step/2], t.n, acc || t.i > 0, ahead, pace)
	}
	if full > 0 {
		t := w.start()
		for ; t.rows > 0; w.advance(&t) {
			multiply(t, BF16Step/2)
		}
	}
	if pairs > 0 { // what is left of k is a step of fewer pairs
		for g := range w.groups {
			r0 := g * amxRowsSplit
			t := turn{r0: r0, rows: min(amxRowsSplit, rows-r0), i: full, n: 1, first: g}
			w.share(&t)
			multiply(t, pairs)
		}
	}
}

// newTileWalk is newWalk with groups of most rows except for the last one: tiles that are not
// full take as long as full ones.
func newTileWalk(rows, most, steps, chunk, step int) walk {
	w := newWalk(rows, most, 1, steps, chunk, step, 1)
	w.most = most
	return w
}

func clearRows(c []float32, ldc, rows int) {
	for r := range rows {
		clear(c[r*ldc:][:Panel])
	}
}

func gemmQ8AMX(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
	gemmQ8Tiles(c, ldc, a, ars, b, rows, blocks, planes, acc, amxFew)
}

// gemmQ8Tiles is GemmQ8 by tiles, except for groups of few rows or fewer.
func gemmQ8Tiles(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool, few int) {
	if rows == 0 {
		return
	}
	_ = c[(rows-1)*ldc+Panel-1]
	if blocks == 0 {
		if !acc {
			clearRows(c, ldc, rows)
		}
		return
	}
	_, _ = a[(rows-1)*ars+blocks*Q8ABlockLen-1], b[blocks*Q8BlockLen-1]
	w := newTileWalk(rows, amxRowsQ8, blocks, amxChunk/Q8BlockLen, Q8BlockLen)
	t := w.start()
	for ; t.rows > 0; w.advance(&t) {
		ahead, pace := w.ahead(&t, 0)
		cr, ar, br := &c[t.r0*ldc], &a[t.r0*ars+t.i*Q8ABlockLen], &b[t.i*Q8BlockLen]
		if t.rows <= few {
			gemmsQ8VNNI[planes-1][t.rows](cr, 4*uintptr(ldc), ar, 4*uintptr(ars), br, t.n, acc || t.i > 0,
				ahead, pace)
			continue
		}
		gemmsQ8AMX[planes-1][amxQ8Kernel[t.rows]](&q8Configs[t.rows][0], cr, 4*uintptr(ldc), ar, 4*uintptr(ars), br,
			t.rows, t.n, acc || t.i > 0, ahead, pace)
	}
}
