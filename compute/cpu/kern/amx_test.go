//go:build amd64 && !purego

package kern

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Under tools/amxemu, which sets AMXEMU, tile instructions are executed whatever the processor:
// then the tests consider class AMX available.
var emulated = os.Getenv("AMXEMU") == "1" && noAMX != nil

func init() {
	if emulated {
		noAMX = nil
	}
}

// amxTable returns the table of class AMX, or skips with the reason.
func amxTable(t testing.TB) *Funcs {
	t.Helper()
	f, err := For(AMX)
	if err != nil {
		t.Skipf("this processor has no AMX tiles: %v", err)
	}
	return f
}

// planesOf fills rows of activations in planes, row r at r·ars.
func planesOf(f func(dst []uint32, x []float32, planes int), r *rand.Rand, a []float32, rows, k, planes int) (x []uint32, ars int) {
	ars = BF16ALen(k, planes) + r.IntN(3)
	x = make([]uint32, rows*ars)
	for i := range x {
		x[i] = 0xdeadbeef // unwritten words must not be used
	}
	for i := range rows {
		f(x[i*ars:][:BF16ALen(k, planes)], a[i*k:][:k], planes)
	}
	return x, ars
}

func compareSplit(t *testing.T, r *rand.Rand, f *Funcs, what string, rows, k, planes int, next source) {
	t.Helper()
	ldc := Panel + r.IntN(9)
	a := make([]float32, rows*k)
	for i := range a {
		a[i] = next()
	}
	b := make([]uint16, BF16PanelLen(k))
	for i := range b {
		b[i] = BF16(next())
	}
	if k%2 == 1 {
		for j := range Panel {
			b[len(b)-2*Panel+2*j+1] = 0
		}
	}
	x, ars := planesOf(f.SplitA, r, a, rows, k, planes)
	for _, acc := range []bool{false, true} {
		want := newGuarded(r, (rows-1)*ldc+Panel)
		for i := range want.x {
			want.x[i] = next()
		}
		whole, cut := newGuarded(r, len(want.x)), newGuarded(r, len(want.x))
		copy(whole.x, want.x)
		copy(cut.x, want.x)
		gemmSplitOracle(want.x, ldc, x, ars, b, rows, k, planes, acc)
		at := r.IntN(k/BF16Step + 1)
		f.GemmSplit(whole.x, ldc, x, ars, b, rows, k, planes, acc)
		f.GemmSplit(cut.x, ldc, x, ars, b, rows, at*BF16Step, planes, acc)
		f.GemmSplit(cut.x, ldc, x[at*BF16AStepLen(planes):], ars, b[BF16PanelLen(at*BF16Step):], rows, k-at*BF16Step, planes, true)
		what := fmt.Sprintf("GemmSplit, %s, %d planes, %d rows, k=%d, acc=%v, strides %d %d", what, planes, rows, k, acc, ars, ldc)
		equal(t, what, whole.x, want.x)
		whole.check(t, what)
		equal(t, what+" split", cut.x, want.x)
		cut.check(t, what+" split")
	}
}

func TestAMXGemmSplitHasTheOraclesBits(t *testing.T) {
	f := amxTable(t)
	r := rand.New(rand.NewPCG(51, 52))
	edge := func() float32 { // products at the edge of the normal numbers
		return math.Float32frombits(r.Uint32()&0x807fffff | uint32(127-63-r.IntN(14))<<23)
	}
	for rows := 1; rows <= 64; rows++ {
		for planes := 1; planes <= 2; planes++ {
			for name, next := range sources(r) {
				if name == "normal" || rows%13 == 0 {
					compareSplit(t, r, f, name, rows, 1+r.IntN(70), planes, next)
				}
			}
		}
	}
	for _, k := range []int{1, 2, 3, 31, 32, 33, 34, 63, 64, 65, 96, 127, 129, 300} {
		for planes := 1; planes <= 2; planes++ {
			compareSplit(t, r, f, "depths", 1+r.IntN(17), k, planes, sources(r)["normal"])
			compareSplit(t, r, f, "wide", 1+r.IntN(17), k, planes, sources(r)["wide"])
			compareSplit(t, r, f, "edge", 1+r.IntN(17), k, planes, edge)
		}
	}
	compareSplit(t, r, f, "no depth", 3, 0, 2, edge)
	f.GemmSplit(nil, Panel, nil, 1, nil, 0, 5, 2, false) // no rows: nothing is touched
}

// Also the rows that vector instructions usually serve.
func TestAMXTilesHaveThePortableBitsOfQ8(t *testing.T) {
	f := *amxTable(t)
	f.GemmQ8 = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ8Tiles(c, ldc, a, ars, b, rows, blocks, planes, acc, 0)
	}
	r := rand.New(rand.NewPCG(53, 54))
	for rows := 1; rows <= amxRowsQ8; rows++ {
		for planes := 1; planes <= 2; planes++ {
			for name, next := range sources(r) {
				compareQ8(t, r, &f, name, rows, 1+r.IntN(130), planes, next)
			}
		}
	}
}

// A row's bits depend neither on the number of rows nor on its position.
func TestAMXRowsAreIndependent(t *testing.T) {
	f := amxTable(t)
	r := rand.New(rand.NewPCG(55, 56))
	const rows, k = 40, 75
	a, w := fill(r, rows*k), fill(r, Panel*k)
	half, q8 := make([]uint16, BF16Len(Panel, k)), make([]byte, Q8Len(Panel, k))
	PackBF16(half, w, Panel, k, k)
	PackQ8(q8, w, Panel, k, k)
	// product returns the rows of order, computed most at a time.
	product := func(order []int, most int, q bool) []float32 {
		c := make([]float32, len(order)*Panel)
		for r0 := 0; r0 < len(order); r0 += most {
			part := order[r0:min(r0+most, len(order))]
			var x []float32
			for _, i := range part {
				x = append(x, a[i*k:][:k]...)
			}
			if !q {
				p, ars := planesOf(f.SplitA, r, x, len(part), k, 2)
				f.GemmSplit(c[r0*Panel:], Panel, p, ars, half, len(part), k, 2, false)
				continue
			}
			p := make([]uint32, len(part)*Q8ALen(k))
			for i := range part {
				f.QuantA(p[i*Q8ALen(k):], x[i*k:][:k], 2)
			}
			f.GemmQ8(c[r0*Panel:], Panel, p, Q8ALen(k), q8, len(part), Q8Blocks(k), 2, false)
		}
		return c
	}
	all := make([]int, rows)
	for i := range all {
		all[i] = i
	}
	for _, q := range []bool{false, true} {
		want := product(all, 1, q)
		for range 5 {
			order := r.Perm(rows)[:1+r.IntN(rows)]
			got := product(order, 1+r.IntN(rows), q)
			for i, o := range order {
				equal(t, fmt.Sprintf("q8 %v, row %d as row %d of %d", q, o, i, len(order)),
					got[i*Panel:][:Panel], want[o*Panel:][:Panel])
			}
		}
	}
}

// Goroutines multiply side by side, on threads that start and exit, while the collector runs and
// the scheduler interrupts them.
func TestAMXInManyGoroutines(t *testing.T) {
	f := amxTable(t)
	reps := 150
	if emulated {
		reps = 10
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for id := range 6 {
		wg.Go(func() {
			if id%2 == 0 {
				runtime.LockOSThread() // the thread ends with the goroutine
			}
			r := rand.New(rand.NewPCG(57, uint64(id)))
			for i := 0; i < reps && !t.Failed(); i++ {
				compareSplit(t, r, f, "goroutine", 1+r.IntN(20), 1+r.IntN(40), 1+i%2, sources(r)["normal"])
				compareQ8(t, r, f, "goroutine", 1+r.IntN(16), 1+r.IntN(70), 1+i%2, sources(r)["normal"])
			}
		})
	}
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	wg.Wait()
	close(stop)
}

// The vector instructions of class AMX need no tiles.
func needVNNI(t *testing.T) {
	t.Helper()
	if _, err := For(AVX512VNNI); err != nil {
		t.Skipf("this processor has no AVX-512 VNNI: %v", err)
	}
}

func TestPlanesAreTheOracles(t *testing.T) {
	needVNNI(t)
	r := rand.New(rand.NewPCG(61, 62))
	for name, next := range sources(r) {
		for n := range 200 {
			x := make([]float32, n)
			for i := range x {
				x[i] = next()
			}
			for planes := 1; planes <= 2; planes++ {
				got, want := make([]uint32, BF16ALen(n, planes)+1), make([]uint32, BF16ALen(n, planes)+1)
				for i := range got {
					got[i], want[i] = 0xdeadbeef, 0xdeadbeef
				}
				splitAMX(got, x, planes)
				splitOracle(want, x, planes)
				for i := range got {
					if got[i] != want[i] {
						t.Fatalf("%s, %d of %d planes: word %d is %#08x, want %#08x", name, n, planes, i, got[i], want[i])
					}
				}
			}
		}
	}
}

// Two planes represent an ordinary number to 16 bits.
func TestTwoPlanesAreCloserThanOne(t *testing.T) {
	needVNNI(t)
	r := rand.New(rand.NewPCG(63, 64))
	x, d := fill(r, 256), make([]uint32, BF16ALen(256, 2))
	splitAMX(d, x, 2)
	for i, v := range x {
		w := d[i/BF16Step*32+i%BF16Step/2] >> (i % 2 * 16)
		l := d[i/BF16Step*32+16+i%BF16Step/2] >> (i % 2 * 16)
		got := float64(widen(uint16(w))) + float64(widen(uint16(l)))
		if e := math.Abs(got - float64(v)); e > math.Abs(float64(v))*0x1p-17 {
			t.Errorf("%v is held as %v", v, got)
		}
	}
}

func TestRowsOfPlanesFillAnOddNumberOfLines(t *testing.T) {
	for k := range 300 {
		for planes := 1; planes <= 2; planes++ {
			n, least := BF16ALen(k, planes), (k+BF16Step-1)/BF16Step*BF16AStepLen(planes)
			if n%32 != 16 || n < least || n > least+16 {
				t.Errorf("%d elements in %d planes take %d words, at least %d", k, planes, n, least)
			}
		}
	}
}

func TestDetection(t *testing.T) {
	const tile, bf16, int8s = 1 << 24, 1 << 22, 1 << 25
	denied := errors.New("it says no")
	for _, c := range []struct {
		name    string
		leaves  uint32
		edx     uint32
		osxsave bool
		xcr0    uint32
		permit  error
		want    string
	}{
		{"all there", 0x20, tile | bf16 | int8s, true, 0x602e7, nil, ""},
		{"an old processor", 6, tile | bf16 | int8s, true, 0x602e7, nil, "the processor has no AMX-TILE, AMX-BF16, AMX-INT8"},
		{"no AMX", 0x20, 0, true, 0xe7, nil, "the processor has no AMX-TILE, AMX-BF16, AMX-INT8"},
		{"no bfloat16", 0x20, tile | int8s, true, 0x602e7, nil, "the processor has no AMX-BF16"},
		{"no int8", 0x20, tile | bf16, true, 0x602e7, nil, "the processor has no AMX-INT8"},
		{"no XSAVE", 0x20, tile | bf16 | int8s, false, 0, nil, "OSXSAVE is off"},
		{"tiles off", 0x20, tile | bf16 | int8s, true, 0xe7, nil, "does not manage tiles (XCR0 is 0xe7)"},
		{"configuration only", 0x20, tile | bf16 | int8s, true, 0x200e7, nil, "does not manage tiles"},
		{"data only", 0x20, tile | bf16 | int8s, true, 0x400e7, nil, "does not manage tiles"},
		{"denied", 0x20, tile | bf16 | int8s, true, 0x602e7, denied, "the kernel refused tile permission: it says no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := 0
			h := amxHost{
				cpuid: func(leaf, _ uint32) (eax, ebx, ecx, edx uint32) {
					switch leaf {
					case 0:
						return c.leaves, 0, 0, 0
					case 1:
						if c.osxsave {
							return 0, 0, 1 << 27, 0
						}
						return 0, 0, 0, 0
					case 7:
						if c.leaves < 7 {
							t.Error("leaf 7 is read where there is none")
						}
						return 0, 0, 0, c.edx
					}
					t.Errorf("leaf %d is read", leaf)
					return 0, 0, 0, 0
				},
				xgetbv: func() uint32 {
					if !c.osxsave {
						t.Error("XGETBV is executed without OSXSAVE")
					}
					return c.xcr0
				},
				permit: func() error { asked++; return c.permit },
			}
			err := h.detect()
			if c.want == "" {
				if err != nil || asked != 1 {
					t.Errorf("%v after asking %d times", err, asked)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), "no AMX: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if (asked > 0) != (c.permit != nil) {
				t.Errorf("permission was asked for %d times", asked)
			}
		})
	}
	// The reason reaches the caller who asks for the class, if it is not that the user bounds the classes below it.
	_, err := For(AMX)
	switch {
	case NoAMX() == nil && err != nil && Best() < AMX && strings.Contains(err.Error(), EnvClass):
	case (err == nil) != (NoAMX() == nil), err != nil && !errors.Is(err, NoAMX()):
		t.Errorf("For gives %v, NoAMX %v", err, NoAMX())
	}
}

// The assembly finds the same features of this processor as the standard library.
func TestProbeAgreesWithTheLibrary(t *testing.T) {
	_, _, c, _ := cpuid(1, 0)
	leaves, _, _, _ := cpuid(0, 0)
	if leaves < 7 {
		t.Skip("a processor without leaf 7")
	}
	_, b, _, _ := cpuid(7, 0)
	if c>>27&1 == 1 && offers(AVX512) && (b>>16&1 == 0 || xgetbv()&0xe6 != 0xe6) {
		t.Errorf("AVX-512 is available with CPUID.7.EBX %#x and XCR0 %#x", b, xgetbv())
	}
}
