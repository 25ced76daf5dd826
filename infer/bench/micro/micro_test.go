package micro_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/infer/bench/micro"
	"talf/internal/demo"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/synth"
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

func TestPassesAreMeasured(t *testing.T) {
	spec := arch.Llama()
	spec.Vocab, spec.Hidden, spec.Layers, spec.Heads, spec.KVHeads, spec.HeadDim, spec.FFN, spec.MaxPos = 64, 32, 2, 2, 1, 16, 40, 128
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	timed := micro.NewTimed(dev)
	m, err := model.New(spec, synth.RandomWeights(spec, 1), timed, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	reads := 0
	c := micro.PassConfig{Rows: []int{1, 5}, Prompt: 30, Context: 40, Reps: 3, Seed: 1}
	rows, err := micro.Passes(t.Context(), []micro.PassModel{{Name: "f32", Model: m, Device: timed, Read: func() float64 { reads++; return 1e9 }}}, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 || reads != c.Reps {
		t.Fatalf("%d rows, %d reads", len(rows), reads)
	}
	if p := rows[2]; !p.Prompt || p.Rows != 30 || p.Context != 0 || p.Best <= 0 {
		t.Errorf("the prompt: %+v", p)
	}
	for i, r := range rows[:2] {
		if r.Rows != c.Rows[i] || r.Best <= 0 || r.Median < r.Best || r.Linear <= 0 || r.Attention <= 0 || r.Linear+r.Attention > 1 || r.Bytes != m.WeightBytes() {
			t.Errorf("row %d: %+v", i, r)
		}
	}
	if rows[0].Ratio != 1 || rows[0].Middle != 1 || rows[1].Ratio != rows[1].Best/rows[0].Best {
		t.Errorf("costs over the first: %+v", rows)
	}
	for _, bad := range []micro.PassConfig{{}, {Rows: []int{0}, Context: 1, Reps: 1}, {Rows: []int{1}, Reps: 1}} {
		if _, err := micro.Passes(t.Context(), nil, bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// The experts that passes read are the same on any number of threads, and at most all.
func TestExpertsOfPassesAreCounted(t *testing.T) {
	var first []micro.PassRow
	for _, threads := range []int{1, 3} {
		conf := cpu.Default()
		conf.Threads = threads
		dev, err := cpu.New(conf)
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		timed := micro.NewTimed(dev)
		m, err := model.Load(modeltest.Random(t, modeltest.Of("qwen3_moe"), 1), timed, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		mix := m.Spec().Mixture
		rows, err := micro.Passes(t.Context(), []micro.PassModel{{Name: "f32", Model: m, Device: timed}}, micro.PassConfig{Rows: []int{1, 40}, Context: 8, Reps: 2, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if one, many := rows[0], rows[1]; one.Experts != float64(mix.Top) || many.Experts <= one.Experts || many.Experts > float64(mix.Experts) {
			t.Errorf("passes read %v and %v experts of a layer, want %d for one row and up to %d for 40", one.Experts, many.Experts, mix.Top, mix.Experts)
		}
		for i, r := range rows {
			for layer, n := range r.ByLayer {
				if sparse := mix.Sparse(layer); sparse != (n > 0) || first != nil && n != first[i].ByLayer[layer] {
					t.Errorf("%d rows on %d threads: %v experts of layer %d, has some: %v", r.Rows, threads, n, layer, sparse)
				}
			}
		}
		table := micro.PassTable(rows)
		if h := table.Header; h[len(h)-1] != "experts" || len(table.Cells[0]) != len(h) {
			t.Errorf("header %q, first row %q", h, table.Cells[0])
		}
		first = rows
	}
}

func TestKernelsAreMeasured(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	c := micro.KernelConfig{DTypes: []compute.DType{compute.F32, compute.Q8}, Rows: []int{1, 3}, Sizes: [][2]int{{64, 96}}, Reps: 2, Seed: 1}
	rows, err := micro.Kernels(t.Context(), []micro.KernelDevice{{
		Name: "cpu", Device: dev, Probe: func(size int) micro.Probe { return dev.NewProbe(size) },
	}}, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 4 {
		t.Fatalf("%d rows, want 4", len(rows))
	}
	for _, r := range rows {
		if r.Best <= 0 || r.Bytes <= 0 || r.Flops <= 0 || r.Read <= 0 || r.Peak <= 0 {
			t.Errorf("%+v", r)
		}
	}
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
	got, err := micro.MeasurePerplexity(t.Context(), "f32", m, ids, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := (nll(ids[:4]) + nll(ids[4:8]) + nll(ids[8:])) / 7
	if got.Tokens != 7 || got.Windows != 3 || math.Abs(got.NLL-want) > 1e-6 || math.Abs(got.Perplexity-math.Exp(want)) > 1e-4 {
		t.Errorf("%+v, want 7 tokens in 3 windows at %v nats", got, want)
	}
	got, err = micro.MeasurePerplexity(t.Context(), "f32", m, ids, 6, []int32{1})
	if err != nil {
		t.Fatal(err)
	}
	want = (nll(append([]int32{1}, ids[:5]...)) + nll(append([]int32{1}, ids[5:]...))) / 10
	if got.Tokens != 10 || got.Windows != 2 || math.Abs(got.NLL-want) > 1e-6 {
		t.Errorf("%+v, want 10 tokens in 2 windows at %v nats", got, want)
	}
	got, err = micro.MeasurePerplexity(t.Context(), "f32", m, ids, 10, []int32{1, 6})
	if err != nil {
		t.Fatal(err)
	}
	two := []int32{1, 6}
	want = (nll(append(two[:2:2], ids[:8]...)) + nll(append(two[:2:2], ids[8:]...)) - 2*nll(two)) / 10
	if got.Tokens != 10 || got.Windows != 2 || math.Abs(got.NLL-want) > 1e-6 {
		t.Errorf("%+v, want 10 tokens in 2 windows at %v nats", got, want)
	}
	for _, w := range []int{1, m.Spec().MaxPos + 1} {
		if _, err := micro.MeasurePerplexity(t.Context(), "f32", m, ids, w, nil); err == nil {
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
		p, err := micro.TextPerplexity(t.Context(), "f32", m, tok, strings.Join(demo.Prompts(1, 50), "\n"), 32, 100)
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
	p, err := micro.MeasurePerplexity(t.Context(), "f32", m, []int32{7, 3, 8, 1}, 4, nil)
	var e *model.NonFiniteError
	if !errors.As(err, &e) || e.Layer != 0 {
		t.Errorf("%+v, error %v, want one that names layer 0", p, err)
	}
}
