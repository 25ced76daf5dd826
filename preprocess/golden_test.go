package preprocess_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute/cpu"
	"talf/data"
	"talf/internal/golden"
	"talf/model"
	"talf/model/safetensors"
	"talf/preprocess"
)

// numbers is a tokenizer whose texts are decimal ids separated by spaces.
type numbers struct{ bos int32 }

func (n numbers) Encode(text string, addSpecial bool) ([]int32, error) {
	var ids []int32
	if addSpecial && n.bos >= 0 {
		ids = append(ids, n.bos)
	}
	for _, f := range strings.Fields(text) {
		id, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

func target(t testing.TB, dir string, conf cpu.Config, opt model.Options) *model.Model {
	t.Helper()
	dev, err := cpu.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(dir, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); dev.Close() })
	return m
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return p
}

func rows(t testing.TB, dir string) (data.Meta, []data.Record) {
	t.Helper()
	set, err := data.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if !set.Complete() {
		t.Fatalf("%s is not complete", dir)
	}
	r, err := set.Sequential(data.Everything())
	if err != nil {
		t.Fatal(err)
	}
	var out []data.Record
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return set.Meta(), out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, *rec)
	}
}

// The reference's sequences through the whole pipeline give the same trees, and labels
// and features within the noise that the reference states for f32 (2e-6 in a
// probability, 5e-6 in a feature, compared with f64), doubled because both sides have
// such noise. A feature is stored in bfloat16, so it may also round the other way.
func TestTargetTreesMatchTheReference(t *testing.T) {
	dir := golden.File(t, "reference/target_trees")
	var text strings.Builder
	var want []*safetensors.Set
	for i := range 3 {
		s, err := safetensors.Open(filepath.Join(dir, fmt.Sprintf("seq%d.safetensors", i)))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		want = append(want, s)
		for _, id := range ints(t, s, "token_ids") {
			fmt.Fprint(&text, id, " ")
		}
		text.WriteString("\n\n")
	}
	m := target(t, filepath.Join(dir, "target"), cpu.Default(), model.Default())
	v := m.Spec().Vocab
	for _, mode := range []data.LabelMode{data.TopK, data.Full} {
		c := preprocess.Default()
		c.Files, c.Out, c.Labels = []string{write(t, "ids.txt", text.String())}, t.TempDir(), mode
		c.TopK = len(floats(t, want[0], "top_probs")) / len(ints(t, want[0], "tokens"))
		if _, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: numbers{-1}}); err != nil {
			t.Fatal(err)
		}
		_, got := rows(t, c.Out)
		if len(got) != len(want) {
			t.Fatalf("%d rows, want %d", len(got), len(want))
		}
		var worst struct{ prob, tail, full, feature float64 }
		for i, w := range want {
			r := &got[i]
			if d := cmp.Diff(ints(t, w, "token_ids"), r.Tokens); d != "" {
				t.Fatal(d)
			}
			if d := cmp.Diff(ints(t, w, "tokens"), r.TreeTokens); d != "" {
				t.Fatalf("seq%d: tree tokens: %s", i, d)
			}
			if d := cmp.Diff(ints(t, w, "parents"), r.TreeParents); d != "" {
				t.Fatalf("seq%d: tree parents: %s", i, d)
			}
			labels := floats(t, w, "labels")
			if mode == data.Full {
				worst.full = max(worst.full, distance(r.LabelFull, labels))
			} else {
				// Equal probabilities have no order, but each id must have its own
				// probability.
				for j, id := range r.LabelIDs {
					worst.prob = max(worst.prob, math.Abs(float64(r.LabelProbs[j])-float64(labels[j/c.TopK*v+int(id)])))
				}
				worst.prob = max(worst.prob, distance(r.LabelProbs, floats(t, w, "top_probs")))
				worst.tail = max(worst.tail, distance(r.Tail, floats(t, w, "tail")))
				for j, id := range ints(t, w, "top_ids") {
					if id != r.LabelIDs[j] && math.Abs(float64(r.LabelProbs[j])-float64(labels[j/c.TopK*v+int(id)])) > 4e-6 {
						t.Fatalf("seq%d: label %d is token %d, want %d", i, j, r.LabelIDs[j], id)
					}
				}
			}
			feat := make([]float32, len(r.Features)/2)
			data.DecodeBF16(feat, r.Features)
			for j, f := range floats(t, w, "features") {
				// Half a step of bfloat16 at f, and 1e-5 before rounding.
				worst.feature = max(worst.feature, (math.Abs(float64(feat[j]-f))-1e-5)/math.Exp2(math.Floor(math.Log2(math.Abs(float64(f))))-8))
			}
		}
		t.Logf("%s: largest difference: probability %.2g, tail %.2g, full %.2g; feature %.3f of half a bfloat16 step", mode, worst.prob, worst.tail, worst.full, worst.feature)
		// A tail is one minus a sum of TopK probabilities.
		if worst.prob > 4e-6 || worst.full > 4e-6 || worst.tail > 8e-6 || worst.feature > 1 {
			t.Errorf("the differences exceed the reference's noise")
		}
	}
}

func distance(a, b []float32) (d float64) {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	for i := range a {
		d = max(d, math.Abs(float64(a[i])-float64(b[i])))
	}
	return d
}

func floats(t testing.TB, s *safetensors.Set, name string) []float32 {
	t.Helper()
	x, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func ints(t testing.TB, s *safetensors.Set, name string) []int32 {
	t.Helper()
	x, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]int32, len(x.Data)/4)
	for i := range out {
		out[i] = int32(uint32(x.Data[4*i]) | uint32(x.Data[4*i+1])<<8 | uint32(x.Data[4*i+2])<<16 | uint32(x.Data[4*i+3])<<24)
	}
	return out
}
