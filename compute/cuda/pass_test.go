//go:build gpu && linux && cgo

package cuda_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cuda"
)

// A toy is one layer of a decoder, with every operation that a pass has.
type toy struct {
	t        testing.TB
	dev      compute.Device
	q        compute.Queue
	table    compute.Weight
	qkv, o   compute.Linear
	ffn, top compute.Linear
	attn     compute.Attention
	kv       compute.KV
	norm     *compute.Norm
	in, feat compute.Buffer
	x, y, z  compute.Buffer
	qkvs     compute.Buffer
	logits   compute.Buffer
}

const (
	toyHidden, toyHeads, toyDim, toyVocab = 32, 2, 16, 48
	toyRows                               = 24
	toyPos                                = 320
)

// newToy creates the same weights every time.
func newToy(t testing.TB, c cuda.Config) *toy {
	t.Helper()
	dev, err := cuda.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	y := &toy{t: t, dev: dev, q: dev.Queue()}
	r := rand.New(rand.NewPCG(1, 9))
	floats := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	buffer := func(shape ...int) compute.Buffer {
		b, err := dev.Alloc(compute.F32, shape...)
		if err != nil {
			t.Fatal(err)
		}
		n := 1
		for _, s := range shape {
			n *= s
		}
		y.q.Write(b, floats(n))
		return b
	}
	weight := func(as compute.DType, out, in int) compute.Weight {
		var data []byte
		for _, v := range floats(out * in) {
			u := math.Float32bits(v)
			data = append(data, byte(u>>16), byte(u>>24))
		}
		w, err := dev.Pack(as, compute.Matrix{Rows: out, Cols: in, Type: compute.BF16, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	const h = toyHidden
	y.norm = &compute.Norm{Weight: buffer(h), Eps: 1e-5}
	y.table = weight(compute.BF16, toyVocab, h)
	y.qkv = compute.Linear{Norm: y.norm, W: weight(compute.F32, 3*h, h)}
	y.o = compute.Linear{W: weight(compute.BF16, h, h)}
	y.ffn = compute.Linear{Norm: y.norm, W: weight(compute.Q8, h, h), Up: weight(compute.Q8, h, h), Act: compute.SiLU}
	y.top = compute.Linear{W: y.table}
	y.attn = compute.Attention{Rope: buffer(toyPos, toyDim), RotDim: toyDim}
	if y.kv, err = dev.NewKV(compute.KVConfig{Layers: 1, KVHeads: toyHeads, HeadDim: toyDim, Type: compute.BF16}); err != nil {
		t.Fatal(err)
	}
	if err := y.kv.Grow(toyPos / compute.BlockLen); err != nil {
		t.Fatal(err)
	}
	y.in, y.feat = buffer(toyRows, 2*h), buffer(toyRows, h)
	y.x, y.y, y.z, y.qkvs, y.logits = buffer(toyRows, h), buffer(toyRows, h), buffer(toyRows, h), buffer(toyRows, 3*h), buffer(toyRows, toyVocab)
	y.run(false, 0, toyRows, 1)
	var dst, src []int32 // keys and values of all positions
	for p := int32(toyRows); p < toyPos; p++ {
		dst, src = append(dst, p), append(src, p*7%toyRows)
	}
	y.q.MoveKV(y.kv, dst, src)
	return y
}

// run appends n tokens after prefix positions, as a tree whose nodes have random
// parents, and returns the two best of every row and the bits of all logits.
func (y *toy) run(as bool, prefix, n int, seed uint64) ([]int32, []float32) {
	y.t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	sp := compute.Span{N: n, Prefix: prefix, Anc: make([]uint64, n), Stride: 1}
	s := &compute.Step{Rows: n, Heads: toyHeads}
	for b := range toyPos / compute.BlockLen {
		sp.Blocks = append(sp.Blocks, int32(b))
	}
	ids, rows := make([]int32, n), make([]int32, n)
	for i := range n {
		ids[i], rows[i] = r.Int32N(toyVocab), r.Int32N(toyRows)
		sp.Anc[i] = 1 << i
		if i > 0 {
			sp.Anc[i] |= sp.Anc[r.IntN(i)]
		}
		s.Pos, s.Slot = append(s.Pos, int32(prefix+i)), append(s.Slot, int32(prefix+i))
	}
	sp.Own = s.Slot
	s.Spans = []compute.Span{sp}
	q := y.q
	rep := q.Abilities().Replay
	if as {
		rep.Pass(n)
	}
	q.Embed(y.in, 0, y.table, ids)
	q.Gather(y.in, 0, toyHidden, y.feat, rows)
	q.Embed(y.x, 0, y.table, ids)
	q.Linear(y.qkvs, y.x, &y.qkv, compute.Store, n)
	q.Attend(y.y, y.qkvs, y.kv, 0, &y.attn, s)
	q.Linear(y.x, y.y, &y.o, compute.Accumulate, n)
	q.SwiGLU(y.z, y.in, n)
	q.Linear(y.x, y.z, &y.ffn, compute.Accumulate, n)
	q.Norm(y.z, y.x, y.norm, n)
	q.Linear(y.logits, y.z, &y.top, compute.Store, n)
	best, logp := make([]int32, 2*n), make([]float32, 2*n)
	rep.ReadTopK(best, logp, y.logits, 2, n)
	if err := q.Sync(y.t.Context()); err != nil {
		y.t.Fatal(err)
	}
	// All rows, including those beyond n, which must be untouched.
	all := make([]float32, toyRows*toyVocab)
	q.Read(all, y.logits, 0)
	return best, append(logp, all...)
}

// calls returns the driver calls that f made, one per line.
func calls(t testing.TB, f func()) []string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "trace")
	t.Setenv("TALF_FAKE_TRACE", name)
	f()
	os.Setenv("TALF_FAKE_TRACE", "")
	b, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(b), func(c rune) bool { return c == '\n' })
}

// steps are prefixes and rows of passes: of every bucket up to toyRows, in lengths
// within a chunk and over several.
var steps = []struct{ prefix, n int }{{0, 24}, {1, 1}, {140, 1}, {24, 7}, {270, 8}, {31, 9}, {200, 13}, {250, 1}, {129, 16}, {290, 17}, {64, 20}, {3, 5}}

func TestPassesHaveTheSameBitsHoweverTheyAreLaunched(t *testing.T) {
	for planes := 1; planes <= 2; planes++ {
		t.Run(fmt.Sprintf("planes %d", planes), func(t *testing.T) { testPasses(t, planes) })
	}
}

func testPasses(t *testing.T, planes int) {
	graphs := cuda.Config{Planes: planes}
	replayed, single, none := newToy(t, graphs), newToy(t, cuda.Config{Planes: planes, NoGraphs: true}), newToy(t, graphs)
	for round := range 3 { // the second captures, the third replays
		for i, s := range steps {
			if testing.Short() && i%3 != 0 {
				continue
			}
			seed := uint64(round*100 + i)
			wantIDs, want := none.run(false, s.prefix, s.n, seed)
			for name, y := range map[string]*toy{"replayed": replayed, "one by one": single} {
				ids, got := y.run(true, s.prefix, s.n, seed)
				if !slices.Equal(ids, wantIDs) {
					t.Fatalf("%s, round %d: %d rows after %d: best %v, want %v", name, round, s.n, s.prefix, ids, wantIDs)
				}
				for j := range want {
					if math.Float32bits(got[j]) != math.Float32bits(want[j]) {
						t.Fatalf("%s, round %d: %d rows after %d: value %d is %g, want %g", name, round, s.n, s.prefix, j, got[j], want[j])
					}
				}
			}
		}
	}
}

// One graph serves all rows of a bucket, all tokens and all lengths of a class, and
// a pass is four calls of the driver.
func TestAReplayedPassIsFourCalls(t *testing.T) {
	needsEmulated(t) // which reports its calls
	y := newToy(t, cuda.Default())
	y.run(true, 0, 5, 1)
	var kernels int
	captured := calls(t, func() { y.run(true, 17, 7, 2) })
	if len(captured) < 2 {
		t.Fatalf("the driver was asked for %q", captured)
	}
	if _, err := fmt.Sscanf(captured[1], "capture %d", &kernels); err != nil || kernels < 10 {
		t.Fatalf("another pass of a bucket captures no graph: %q", captured)
	}
	for _, s := range []struct{ prefix, n int }{{17, 7}, {3, 2}, {60, 8}, {250, 6}} {
		got := calls(t, func() { y.run(true, s.prefix, s.n, 3) })
		if n := len(got); n < 4 || !strings.HasPrefix(got[0], "htod ") || got[1] != fmt.Sprintf("graph %d", kernels) ||
			got[2] != fmt.Sprintf("dtoh %d", 8*8*2) || got[3] != "synchronize 0" {
			t.Errorf("%d rows after %d: the driver was asked for %q", s.n, s.prefix, got)
		}
	}
}

// If the driver refuses graphs, passes run without them, and one warning says so.
func TestAPassRunsWithoutGraphs(t *testing.T) {
	needsEmulated(t)
	t.Setenv("TALF_FAKE_CAPTURE", "900")
	var log bytes.Buffer
	y := newToy(t, cuda.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	want, bits := y.run(true, 5, 3, 1)
	for range 3 {
		got, again := y.run(true, 5, 3, 1)
		if !slices.Equal(got, want) || !slices.Equal(again, bits) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	if n := strings.Count(log.String(), "no graphs on this device"); n != 1 || !strings.Contains(log.String(), "CUDA error 900") {
		t.Errorf("logged\n%s", &log)
	}
}

// A graph that fails is a failure like any other.
func TestAReplayThatFailsIsReported(t *testing.T) {
	needsEmulated(t)
	if os.Getenv(envVictim) == "" {
		out, err := again(t, "TestAReplayThatFailsIsReported", "", envVictim+"=1")
		if err != nil || !strings.Contains(out, "launch a graph of") || !strings.Contains(out, "the device is lost until the program ends") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	y := newToy(t, cuda.Default())
	for range 3 {
		y.run(true, 0, 2, 1)
	}
	rep := y.q.Abilities().Replay
	t.Setenv("TALF_FAKE_LOST", "1000")
	for range 100 {
		rep.Pass(2)
		y.q.Embed(y.x, 0, y.table, []int32{1, 2})
		for range 20 {
			y.q.Norm(y.z, y.x, y.norm, 2)
		}
		ids, logp := []int32{-1, -1}, []float32{0, 0}
		rep.ReadTopK(ids, logp, y.logits, 1, 2)
		if err := y.q.Sync(t.Context()); err != nil {
			if ids[0] != -1 {
				t.Errorf("a pass that failed gave %v", ids)
			}
			fmt.Println(err)
			return
		}
	}
	t.Error("nothing failed")
}
