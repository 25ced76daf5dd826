package micro_test

import (
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/lab/micro"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/synth"
)

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
