package perplexity_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/infer/bench/perplexity"
	"talf/internal/demo"
	"talf/model"
	"talf/model/modeltest"
	"talf/text/tokenizer"
)

func logits(t *testing.T, m *model.Model, ids []int32) []float32 {
	t.Helper()
	s := m.NewSeq()
	defer s.Close()
	o, err := s.Append(context.Background(), ids, nil, model.WantAll)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, len(ids)*m.Spec().Vocab)
	o.ReadLogits(x, 0)
	return x
}

// TestPerplexityIsTheTextsOwn compares with a plain sum over a plain run.
func TestPerplexityIsTheTextsOwn(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Load(modeltest.Random(t, modeltest.Default(), 3), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids := []int32{7, 3, 8, 1, 9, 2, 4, 4, 6, 5}
	nll := func(in []int32) (sum float64) {
		v, x := m.Spec().Vocab, logits(t, m, in)
		for i := range in[1:] {
			row, z := x[i*v:][:v], 0.0
			for _, l := range row {
				z += math.Exp(float64(l))
			}
			sum += math.Log(z) - float64(row[in[i+1]])
		}
		return sum
	}
	got, err := perplexity.Measure(t.Context(), "f32", m, ids, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := (nll(ids[:4]) + nll(ids[4:8]) + nll(ids[8:])) / 7
	if got.Tokens != 7 || got.Windows != 3 || math.Abs(got.NLL-want) > 1e-6 || math.Abs(got.Perplexity-math.Exp(want)) > 1e-4 {
		t.Errorf("%+v, want 7 tokens in 3 windows at %v nats", got, want)
	}
	got, err = perplexity.Measure(t.Context(), "f32", m, ids, 6, []int32{1})
	if err != nil {
		t.Fatal(err)
	}
	want = (nll(append([]int32{1}, ids[:5]...)) + nll(append([]int32{1}, ids[5:]...))) / 10
	if got.Tokens != 10 || got.Windows != 2 || math.Abs(got.NLL-want) > 1e-6 {
		t.Errorf("%+v, want 10 tokens in 2 windows at %v nats", got, want)
	}
	got, err = perplexity.Measure(t.Context(), "f32", m, ids, 10, []int32{1, 6})
	if err != nil {
		t.Fatal(err)
	}
	two := []int32{1, 6}
	want = (nll(append(two[:2:2], ids[:8]...)) + nll(append(two[:2:2], ids[8:]...)) - 2*nll(two)) / 10
	if got.Tokens != 10 || got.Windows != 2 || math.Abs(got.NLL-want) > 1e-6 {
		t.Errorf("%+v, want 10 tokens in 2 windows at %v nats", got, want)
	}
	for _, w := range []int{1, m.Spec().MaxPos + 1} {
		if _, err := perplexity.Measure(t.Context(), "f32", m, ids, w, nil); err == nil {
			t.Errorf("windows of %d tokens are accepted", w)
		}
	}
}

// Windows begin with what the tokenizer puts before a text: a model may name a BOS that its tokenizer does not write.
func TestPerplexityOfATextTakesTheTokenizersBeginning(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	dir := t.TempDir()
	if err := demo.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(dir, dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	raw, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, begins := range []bool{true, false} {
		var file map[string]any
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		if !begins {
			file["post_processor"] = nil
		}
		b, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		p, err := perplexity.OfText(t.Context(), "f32", m, tok, strings.Join(demo.Prompts(1, 50), "\n"), 32, 100)
		if err != nil {
			t.Fatal(err)
		}
		want := 100
		if !begins {
			want -= p.Windows
		}
		if p.Windows != 4 || p.Tokens != want {
			t.Errorf("a beginning %v: %d tokens in %d windows, want %d in 4", begins, p.Tokens, p.Windows, want)
		}
	}
}

// A model whose numbers overflow has no perplexity: the error names the layer.
func TestPerplexityOfNumbersThatAreNotFinite(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	conf := modeltest.Default()
	m, err := model.New(conf.Spec(), modeltest.Overflowing(conf, 3), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p, err := perplexity.Measure(t.Context(), "f32", m, []int32{7, 3, 8, 1}, 4, nil)
	var e *model.NonFiniteError
	if !errors.As(err, &e) || e.Layer != 0 {
		t.Errorf("%+v, error %v, want one that names layer 0", p, err)
	}
}
