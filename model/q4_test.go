package model_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/internal/golden"
	"talf/model"
	"talf/model/modeltest"
)

// fourBit loads a file with weights as Q4 onto a device of its own.
func fourBit(t *testing.T, path string, class kern.Class, threads, bits int, as compute.DType) *model.Model {
	t.Helper()
	d, err := cpu.New(cpu.Config{Class: class, Threads: threads, ActBits: bits})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return load(t, path, d, model.Options{DType: as, MaxRows: 512})
}

// Trees and batches have the bits of plain decoding, and those are the same on every class, with 8
// and with 16 bits of activations.
func TestFourBitWeightsKeepThePromise(t *testing.T) {
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}
	for _, name := range []string{"llama3-Q4_K_M", "qwen2-Q4_0"} {
		path := golden.File(t, "gguf/"+name+".gguf")
		for _, bits := range []int{8, 16} {
			batchesAgree(t, fourBit(t, path, kern.Best(), 2, bits, compute.Q4), fourBit(t, path, kern.Best(), 1, bits, compute.Q4), uint64(bits))
			want := logitsOf(t, fourBit(t, path, kern.Portable, 1, bits, compute.Q4), ids)
			for _, class := range classes() {
				if err := sameBits(logitsOf(t, fourBit(t, path, class, 2, bits, compute.Q4), ids), want); err != nil {
					t.Errorf("%s, %v, %d bits: %v", name, class, bits, err)
				}
			}
		}
	}
}

// The logits are those of the file's exact meaning up to the rounding of activations: matrices in Q6_K
// keep their integers, too, and the others have a type that q8 has.
func TestFourBitWeightsAreTheFiles(t *testing.T) {
	for _, c := range []struct {
		name      string
		off8, off float64
		greedy    bool
	}{
		{"gsm10m-Q4_K_M", 0.25, 2e-3, true}, {"gsm10m-l0-Q4_0", 0.25, 2e-3, true}, {"llama3-Q4_K_M", 0.25, 2e-3, false}, {"qwen2-Q4_0", 0.4, 2e-3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, want := stored(t, c.name+".gguf"), open(t, stored(t, c.name+".golden.safetensors"))
			ids := ints(t, want, "input_ids")
			for bits, off := range map[int]float64{0: c.off8, 16: c.off} {
				m := fourBit(t, path, kern.Best(), 2, bits, compute.Q4)
				logits, v := logitsOf(t, m, ids), m.Spec().Vocab
				worst := 0.0
				for i, r := range ints(t, want, "rows") {
					for j, x := range floats(t, want, "logits_rows")[i*v:][:v] {
						worst = max(worst, math.Abs(float64(logits[int(r)*v+j]-x)))
					}
				}
				t.Logf("%d bits of activations: %.2g away at most", bits, worst)
				if !(worst <= off) {
					t.Errorf("%d bits of activations: logits are off by %v, want at most %v", bits, worst, off)
				}
				if got, want := greedy(t, m, ints(t, want, "greedy_prompt"), 24), ints(t, want, "greedy_ids"); (c.greedy || bits == 16) && !slices.Equal(got, want) {
					t.Errorf("%d bits of activations: continues with %v, want %v", bits, got, want)
				}
			}
		})
	}
}

// What auto takes for a file has its exact meaning, up to activations of 16 bits, whatever types the file has; and trees, batches
// and classes have one another's bits. Memory is that of the file.
func TestWeightsAsStoredAreTheFiles(t *testing.T) {
	for name, off := range map[string]float64{
		"gsm10m-Q4_K_M": 2e-3, "gsm10m-l0-Q4_0": 2e-3, "llama3-Q4_K_M": 2e-3, "qwen2-Q4_0": 2e-3, "mistral-Q4_1": 2e-3,
		"qwen3-Q5_0": 2e-3, "spm-Q8_0": 2e-3, "hf-llama-gqa-Q8_0": 2e-3, "gptneox-F16": 2e-5, "hf-mistral-swa-BF16": 2e-5,
	} {
		t.Run(name, func(t *testing.T) {
			path, want := stored(t, name+".gguf"), open(t, stored(t, name+".golden.safetensors"))
			m := fourBit(t, path, kern.Best(), 2, 0, compute.Stored)
			if as := model.Stored(m.Tensors(), m.Device()); as != compute.Stored {
				t.Errorf("auto takes %v", as)
			}
			ids := ints(t, want, "input_ids")
			logits, v := logitsOf(t, m, ids), m.Spec().Vocab
			worst := 0.0
			for i, r := range ints(t, want, "rows") {
				for j, x := range floats(t, want, "logits_rows")[i*v:][:v] {
					worst = max(worst, math.Abs(float64(logits[int(r)*v+j]-x)))
				}
			}
			if t.Logf("%.2g away at most", worst); !(worst <= off) {
				t.Errorf("logits are off by %v, want at most %v", worst, off)
			}
			for _, class := range classes() {
				if class == kern.Portable && m.Spec().Layers*m.Spec().Hidden > 1000 {
					continue // minutes
				}
				if err := sameBits(logitsOf(t, fourBit(t, path, class, 1, 0, compute.Stored), ids), logits); err != nil {
					t.Errorf("%v: %v", class, err)
				}
			}
			batchesAgree(t, m, fourBit(t, path, kern.Best(), 1, 0, compute.Stored), 3)
		})
	}
}

func logitsOf(t *testing.T, m *model.Model, ids []int32) []float32 {
	t.Helper()
	s := m.NewSeq()
	defer s.Close()
	o := must[*model.Output](t)(s.Append(context.Background(), ids, nil, model.WantAll))
	logits := make([]float32, len(ids)*m.Spec().Vocab)
	o.ReadLogits(logits, 0)
	return logits
}

// A file of Q4_0 has the same integers in q4 and in q8, and so the same bits if activations are
// rounded alike; memory is about half.
func TestQ4_0HasTheBitsOfQ8(t *testing.T) {
	path := golden.File(t, "gguf/qwen2-Q4_0.gguf")
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}
	for _, bits := range []int{8, 16} {
		q4, q8 := fourBit(t, path, kern.Best(), 2, bits, compute.Q4), fourBit(t, path, kern.Best(), 2, bits, compute.Q8)
		if err := sameBits(logitsOf(t, q4, ids), logitsOf(t, q8, ids)); err != nil {
			t.Errorf("%d bits of activations: %v", bits, err)
		}
		if a, b := q4.WeightBytes(), q8.WeightBytes(); float64(a) > 0.9*float64(b) {
			t.Errorf("%d bytes as Q4, %d as Q8", a, b)
		}
	}
	f := fourBit(t, path, kern.Best(), 1, 0, compute.Q4).Function()
	if f.Weights != "q4" || f.Activations != "int8" {
		t.Errorf("weights are %s and activations %s", f.Weights, f.Activations)
	}
}

func TestQ4WantsBlocksThatItKeeps(t *testing.T) {
	opt := model.Default()
	opt.DType = compute.Q4
	_, err := model.Load(modeltest.Random(t, modeltest.Default(), 1), device(t, kern.Best(), 1), opt)
	if err == nil || !strings.Contains(err.Error(), "Q4_0, Q4_K, Q6_K, Q4_1, Q5_0, Q5_1, Q5_K, IQ4_NL, IQ4_XS, MXFP4") {
		t.Errorf("%v, want an error that names the types", err)
	}
}

// Where a file with blocks of 4 bits is too large as Q8, what would fit is Q4; other files are not
// told so.
func TestWhatIsTooLargeAsQ8MayFitAsQ4(t *testing.T) {
	for name, fits := range map[string]bool{"qwen2-Q4_0": true, "qwen3-Q5_0": true, "hf-llama-gqa-Q8_0": false} {
		path := golden.File(t, "gguf/"+name+".gguf")
		opt := model.Default()
		opt.DType = compute.Q8
		inner := device(t, kern.Best(), 1)
		spec := load(t, path, inner, opt).Spec()
		opt.Positions = min(256, spec.MaxPos)
		dev := &accounted{inner, model.Plan(spec, inner, opt).Total() - 1}
		opt.Positions = 0
		_, err := model.Load(path, dev, opt)
		if err == nil || !strings.Contains(err.Error(), "does not fit") || strings.Contains(err.Error(), "what would: weights as Q4") != fits {
			t.Errorf("%s: %v, want weights as Q4 among what would fit: %v", name, err, fits)
		}
		if opt.DType = compute.Q4; fits {
			if _, err := model.Load(path, dev, opt); err != nil {
				t.Errorf("%s as Q4: %v", name, err)
			}
		}
	}
}

// Packed as it is stored, a file takes about its own size, and nothing of it is rounded.
func TestWeightsAsStoredTakeTheMemoryOfTheFile(t *testing.T) {
	for _, name := range []string{"gsm10m-Q4_K_M", "qwen3-Q5_0", "mistral-Q4_1", "gptneox-F16", "hf-mistral-swa-BF16", "spm-Q8_0"} {
		m := fourBit(t, stored(t, name+".gguf"), kern.Best(), 2, 0, compute.Stored)
		held := m.Held()
		if what := m.Rounded(); what != "" || held.File == 0 || float64(held.Memory) > 1.1*float64(held.File) {
			t.Errorf("%s: %d bytes of %d in the file, rounded: %q", name, held.Memory, held.File, what)
		}
		if plan := model.PlanSet(m.Spec(), m.Tensors(), m.Device(), m.Options()); plan.Weights != held.Memory {
			t.Errorf("%s: %d bytes are planned, %d taken", name, plan.Weights, held.Memory)
		}
		is := m.Memory()
		if want := (model.Memory{DType: "auto (stored types)", Weights: held.Memory, File: held.File, KVDType: "f32", Exact: true}); is != want {
			t.Errorf("%s: memory %+v, want %+v", name, is, want)
		}
	}
}

// Experts in MXFP4 and the other weights in floating-point numbers keep their types beside each other: all first choices are those of
// transformers, of which q8, which rounds the latter, loses some.
func TestExpertsAndOtherWeightsKeepTheirTypes(t *testing.T) {
	dir, want := fixture(t, "hf-more/gpt-oss-mxfp4")
	ids, golden := ints(t, want, "input_ids"), floats(t, want, "logits")
	kept := map[compute.DType]int{}
	for _, as := range []compute.DType{compute.Stored, compute.Q8} {
		m := fourBit(t, dir, kern.Best(), 2, 0, as)
		if auto := model.Stored(m.Tensors(), m.Device()); auto != compute.Stored {
			t.Errorf("auto takes %v", auto)
		}
		logits, v, worst := logitsOf(t, m, ids), m.Spec().Vocab, 0.0
		for r := range ids {
			got, to := logits[r*v:][:v], golden[r*v:][:v]
			if slices.Index(got, slices.Max(got)) == slices.Index(to, slices.Max(to)) {
				kept[as]++
			}
			for i, x := range to {
				worst = max(worst, math.Abs(float64(got[i]-x)))
			}
		}
		t.Logf("%v: %d of %d first choices, logits %.2g away at most, %+v", as, kept[as], len(ids), worst, m.Held())
		if as == compute.Stored && !(worst <= 2e-3) {
			t.Errorf("logits are off by %v", worst)
		}
	}
	if kept[compute.Stored] != len(ids) || kept[compute.Q8] == len(ids) {
		t.Errorf("%d first choices are kept as they are stored, and %d in q8, of %d", kept[compute.Stored], kept[compute.Q8], len(ids))
	}
}

// Heads of files in blocks are q8, as they were before auto kept what is stored; those of other targets have their target's type.
func TestHeadsOfFilesInBlocksAreQ8(t *testing.T) {
	for name, want := range map[string]compute.DType{"gsm10m-l0-Q4_0": compute.Q8, "hf-mistral-swa-BF16": compute.Stored} {
		if got := fourBit(t, stored(t, name+".gguf"), kern.Best(), 2, 0, compute.Stored).HeadOptions().DType; got != want {
			t.Errorf("heads of %s are %v, want %v", name, got, want)
		}
	}
	if got := fourBit(t, stored(t, "gsm10m-l0-Q4_0.gguf"), kern.Best(), 2, 0, compute.F32).HeadOptions().DType; got != compute.F32 {
		t.Errorf("heads of a target in f32 are %v", got)
	}
}
