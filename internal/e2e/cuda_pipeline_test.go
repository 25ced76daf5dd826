//go:build gpu && linux && cgo

package e2e

import (
	"cmp"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/data"
	"talf/internal/e2e/talftest"
)

// TestPipelineOnACUDADevice labels, trains and decodes on the device: labels are the CPU's to
// within 1e-5, trees are the same unless two candidates are that close, several devices write
// the same bytes as one, and trees that a head drafts give the text of plain decoding on the
// device.
func TestPipelineOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir, text := talftest.TinyModel(t, talftest.TinyConfig(), 1), fewTexts(t)
	label := func(device string, more ...string) string {
		out := filepath.Join(t.TempDir(), "set")
		talftest.OK(t, "", append([]string{"preprocess", "--model", dir, "--data", text, "--out", out, "--k", "2", "--max-len", "10", "--shard", "2", "--tokens", "20", "--device", device}, more...)...)
		return out
	}
	cpu, one := label("cpu"), label("cuda:0")
	compareSets(t, cpu, one)

	t.Setenv("TALF_FAKE_DEVICES", "3")
	sameFiles(t, one, label("cuda:all", "--tokens", "30"))

	// A set is made with one arithmetic.
	on := func(device, out string) talftest.Result {
		return talftest.Run(t, "", "preprocess", "--model", dir, "--data", text, "--out", out, "--k", "2", "--max-len", "10", "--shard", "2", "--device", device)
	}
	on("cuda:0", cpu).Refuses(t, command.ExitFailure, "the arithmetic is cuda sm_90, not cpu", "choose another directory or delete it")
	on("cpu", one).Refuses(t, command.ExitFailure, "the arithmetic is cpu, not cuda sm_90")
	on("cuda:7", filepath.Join(t.TempDir(), "none")).Refuses(t, command.ExitFailure, "no device 7: the driver finds 3")
	on("cuda:0,cuda:0", one).Refuses(t, command.ExitUsage, "cuda:0 is there twice")
	on("cpu,cuda:0", one).Refuses(t, command.ExitUsage, "want cpu, auto, cuda:all")

	head := filepath.Join(t.TempDir(), "head")
	talftest.OK(t, "", "train", "--model", dir, "--data", one, "--out", head, "--steps", "2", "--rows", "32", "--held-out", "0.2", "--device", "cuda:0")
	decode := func(args ...string) string {
		return talftest.OK(t, "", append([]string{"generate", "--model", dir, "--prompt", "Tom has 3 apples.", "--max-tokens", "12", "--device", "cuda:0"}, args...)...)
	}
	if plain, got := decode("--method", "ar"), decode("--method", "salf", "--head", head); got != plain {
		t.Errorf("decoded with salf:\n%s\nplainly:\n%s", got, plain)
	}
}

// TestStoppedLabellingOnACUDADeviceContinues loses the device in the middle: one
// sentence says so, finished shards stay, and the next run produces the bytes of an
// uninterrupted one.
func TestStoppedLabellingOnACUDADeviceContinues(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir, text := talftest.TinyModel(t, talftest.TinyConfig(), 1), fewTexts(t)
	args := func(out string) []string {
		return []string{"preprocess", "--model", dir, "--data", text, "--out", out, "--k", "2", "--depth", "2", "--max-len", "6", "--shard", "1", "--device", "cuda:0", "--json"}
	}
	whole, out := filepath.Join(t.TempDir(), "set"), filepath.Join(t.TempDir(), "set")
	talftest.OK(t, "", args(whole)...)
	t.Setenv("TALF_FAKE_LOST", "120")
	talftest.Run(t, "", args(out)...).Refuses(t, command.ExitFailure, "preprocess:", "the device is lost until the program ends")
	if left, err := filepath.Glob(filepath.Join(out, "*.tmp")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	t.Setenv("TALF_FAKE_LOST", "0")
	if got := talftest.OK(t, "", args(out)...); strings.Contains(got, `"resumed_shards": 0,`) {
		t.Errorf("the device was lost before a shard was finished: %s", got)
	}
	sameFiles(t, whole, out)
}

// fewTexts writes texts of a few tokens: the emulated device takes its time.
func fewTexts(t *testing.T) string {
	t.Helper()
	return talftest.Write(t, filepath.Join(t.TempDir(), "few.txt"), "Tom has 3 apples.\n\nA cat ran home.\n\nWho is she?\n\n2 and 5 is 7.\n\nIt was dark.\n\nNo more rain.\n")
}

// sameFiles compares the files of two sets.
func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(a, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		x, err1 := os.ReadFile(name)
		y, err2 := os.ReadFile(filepath.Join(b, filepath.Base(name)))
		if err := cmp.Or(err1, err2); err != nil {
			t.Fatal(err)
		}
		if string(x) != string(y) {
			t.Errorf("%s differs", filepath.Base(name))
		}
	}
}

// records reads a set whole.
func records(t *testing.T, dir string) (data.Meta, []data.Record) {
	t.Helper()
	set, err := data.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	rows, err := set.Sequential(data.Everything())
	if err != nil {
		t.Fatal(err)
	}
	var all []data.Record
	for {
		r, err := rows.Next()
		if err == io.EOF {
			return set.Meta(), all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, *r)
	}
}

// compareSets compares the labels of a device with those of the CPU.
func compareSets(t *testing.T, cpu, device string) {
	t.Helper()
	const tol = 1e-5
	m, want := records(t, cpu)
	_, got := records(t, device)
	if len(got) != len(want) || len(want) < 6 {
		t.Fatalf("%d rows, the CPU has %d", len(got), len(want))
	}
	worst, close, trees := 0.0, 0, 0
	for i := range want {
		a, b := &want[i], &got[i]
		if !slices.Equal(a.Tokens, b.Tokens) || !slices.Equal(a.LossMask, b.LossMask) {
			t.Fatalf("row %d is another text", i)
		}
		for j := range a.Features {
			if j%2 == 0 {
				x, y := bfloat(a.Features[j:]), bfloat(b.Features[j:])
				// A value halfway between two bfloat16 may round to either.
				if math.Abs(x-y) > 1.0/128*math.Abs(x)+tol {
					t.Fatalf("row %d: feature %d is %g, the CPU's %g", i, j/2, y, x)
				}
			}
		}
		nodes := m.Nodes()
		for p := range a.Tokens {
			at := p * nodes
			if trees++; !slices.Equal(a.TreeTokens[at:at+nodes], b.TreeTokens[at:at+nodes]) || !slices.Equal(a.TreeParents[at:at+nodes], b.TreeParents[at:at+nodes]) {
				if gap := treeGap(&m, a, p); gap > tol {
					t.Errorf("row %d, position %d: another tree, though the CPU's candidates are %g apart", i, p, gap)
				}
				close++
				continue
			}
			for n := at; n < at+nodes; n++ {
				worst = max(worst, labelsDiffer(&m, a, b, n))
			}
		}
	}
	t.Logf("%d trees, %d with candidates that are too close; labels differ by at most %.2g", trees, close, worst)
	if !(worst <= tol) || close > trees/10 {
		t.Errorf("labels differ by %g, %d of %d trees by more", worst, close, trees)
	}
}

func bfloat(b []byte) float64 {
	return float64(math.Float32frombits(uint32(b[0])<<16 | uint32(b[1])<<24))
}

// labelsDiffer returns the largest difference between two distributions of node n: a token that
// only one of them has counts as likely as the other's least likely.
func labelsDiffer(m *data.Meta, a, b *data.Record, n int) float64 {
	prob := func(r *data.Record, id int32) float64 {
		if i := slices.Index(r.LabelIDs[n*m.K:(n+1)*m.K], id); i >= 0 {
			return float64(r.LabelProbs[n*m.K+i])
		}
		return float64(r.LabelProbs[(n+1)*m.K-1])
	}
	d := math.Abs(float64(a.Tail[n] - b.Tail[n]))
	for i := range m.K {
		for _, id := range []int32{a.LabelIDs[n*m.K+i], b.LabelIDs[n*m.K+i]} {
			d = max(d, math.Abs(prob(a, id)-prob(b, id)))
		}
	}
	return d
}

// treeGap returns the smallest relative difference between candidates of position p's tree that
// decides which become nodes or in which order.
func treeGap(m *data.Meta, r *data.Record, p int) float64 {
	at := p * m.Nodes()
	path := []float64{1} // probability of a node below the root
	least := math.Inf(1)
	for level := 1; level < m.Depth; level++ {
		first, last := max(0, 1+(level-2)*m.Branch), 1+(level-1)*m.Branch // the parents
		var all []float64
		for n := first; n < last; n++ {
			for i := range m.Branch + 1 {
				all = append(all, path[n]*float64(r.LabelProbs[(at+n)*m.K+i]))
			}
		}
		slices.SortFunc(all, func(x, y float64) int { return cmp.Compare(y, x) })
		for i := range m.Branch {
			least = min(least, (all[i]-all[i+1])/all[i])
		}
		for n := last; n < last+m.Branch; n++ {
			parent := int(r.TreeParents[at+n])
			i := slices.Index(r.LabelIDs[(at+parent)*m.K:][:m.K], r.TreeTokens[at+n])
			path = append(path, path[parent]*float64(r.LabelProbs[(at+parent)*m.K+i]))
		}
	}
	return least
}
