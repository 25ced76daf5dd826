package model_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/modeltest"
)

// families are the models of internal/golden/testdata/hf-more. Its README says what each has and where the tolerance
// comes from.
var families = []string{
	"gemma2", "gemma3", "phi3", "phi3-longrope", "olmo2", "granite", "smollm3", "starcoder2", "cohere2",
	"mixtral", "qwen2-moe", "qwen3-moe", "qwen3-next", "glm4-moe", "deepseek-v3", "gpt-oss", "gpt-oss-mxfp4",
}

// TestFamiliesAgreeWithTransformers compares logits, hidden states, the residual stream after
// every layer, trees and greedy text with those of transformers.
func TestFamiliesAgreeWithTransformers(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			dir, want := fixture(t, "hf-more/"+name)
			m := load(t, dir, device(t, kern.Best(), 2), model.Default())
			if err := m.Tap(all(m)...); err != nil {
				t.Fatal(err)
			}
			v, h, bounds := m.Spec().Vocab, m.Spec().Hidden, m.Spec().Layers+1
			// stream compares the residual stream of n rows of o.
			stream := func(prefix string, o *model.Output, n int) {
				t.Helper()
				taps := make([]float32, n*bounds*h)
				o.ReadTaps(taps, 0)
				for b := range bounds {
					for _, what := range []string{fmt.Sprintf("layer_out.%d", b-1), fmt.Sprintf("taps.%d", b), "hidden_pre"} {
						if _, ok := want.Tensor(prefix + what); !ok || what == "hidden_pre" && b != bounds-1 {
							continue
						}
						var got []float32
						for r := range n {
							got = append(got, taps[(r*bounds+b)*h:][:h]...)
						}
						close32(t, prefix+what, got, floats(t, want, prefix+what))
					}
				}
			}
			ids := ints(t, want, "input_ids")
			s := m.NewSeqOf(len(ids))
			o := must[*model.Output](t)(s.Append(t.Context(), ids, nil, model.WantAll))
			logits, hidden := make([]float32, len(ids)*v), make([]float32, len(ids)*h)
			o.ReadLogits(logits, 0)
			o.ReadHidden(hidden, 0)
			close32(t, "logits", logits, floats(t, want, "logits"))
			close32(t, "hidden", hidden, floats(t, want, "hidden"))
			stream("", o, len(ids))
			s.Close()

			for _, name := range []string{"tree10", "tree30"} {
				tr := treeOf(ints(t, want, name+"_tokens"), ints(t, want, name+"_parents"))
				s := m.NewSeqOf(len(ints(t, want, name+"_prefix")))
				must[*model.Output](t)(s.Append(t.Context(), ints(t, want, name+"_prefix"), nil, model.WantNone))
				o := must[*model.Output](t)(m.Forward(t.Context(), []model.Segment{{Rows: s.Branch(s.Len()), Tree: tr, Want: model.WantAll}}))
				got, x := make([]float32, tr.Len()*v), make([]float32, tr.Len()*h)
				o.ReadLogits(got, 0)
				o.ReadHidden(x, 0)
				close32(t, name+"_logits", got, floats(t, want, name+"_logits"))
				if _, ok := want.Tensor(name + "_logits_mask"); ok {
					close32(t, name+"_logits_mask", got, floats(t, want, name+"_logits_mask"))
				}
				close32(t, name+"_hidden", x, floats(t, want, name+"_hidden"))
				stream(name+"_", o, tr.Len())
				s.Close()
			}
			for _, name := range []string{"greedy", "greedy30", "cross"} { // the last is longrope's, across its switch
				if _, ok := want.Tensor(name + "_ids"); !ok && name == "cross" {
					continue
				}
				ids := ints(t, want, name+"_ids")
				if got := greedy(t, m, ints(t, want, name+"_prompt"), len(ids)); fmt.Sprint(got) != fmt.Sprint(ids) {
					t.Errorf("%s: continuation %v, want %v", name, got, ids)
				}
			}
		})
	}
}

// Trees have the bits of plain decoding with the published form of every family, for weights of
// every type, on the same kernels and on plain Go.
func TestTreesOfFamiliesHaveThePlainBits(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			dir, _ := fixture(t, "hf-more/"+name)
			treesHaveThePlainBits(t, dir, kern.Best(), rounds)
		})
	}
}

// all of the fixtures' other tests run in float32: these load what is stored in bfloat16 and as
// 8-bit integers.
func TestSmallWeightsOfFamilies(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			dir, want := fixture(t, "hf-more/"+name)
			ids := ints(t, want, "input_ids")
			for _, dt := range dtypes[1:] {
				m := load(t, dir, device(t, kern.Best(), 2), model.Options{DType: dt, MaxRows: 512})
				whole, _ := run(t, m, ids, len(ids))
				plain, _ := run(t, m, ids, 1)
				if err := sameBits(plain, whole); err != nil {
					t.Errorf("%s as %v, token by token: %v", filepath.Base(dir), dt, err)
				}
			}
		})
	}
}

// The goldens of gpt-oss have the published limit. Another one reaches the experts, too.
func TestTheLimitOfSwiGLUIsThatOfTheModel(t *testing.T) {
	logits := func(limit string) []float32 {
		dir := modeltest.Random(t, modeltest.Of("gpt_oss"), 1)
		path := filepath.Join(dir, "config.json")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(b, []byte(`"swiglu_limit": 0.75`)) {
			t.Fatalf("%s has no swiglu_limit of 0.75: %s", path, b)
		}
		if err := os.WriteFile(path, bytes.Replace(b, []byte(`"swiglu_limit": 0.75`), []byte(`"swiglu_limit": `+limit), 1), 0o644); err != nil {
			t.Fatal(err)
		}
		m := load(t, dir, device(t, kern.Best(), 1), model.Default())
		l, _ := run(t, m, []int32{5, 9, 60, 31}, 4)
		return l
	}
	own, small := logits("0.75"), logits("0.01")
	if slices.Equal(own, small) {
		t.Error("a limit of 0.01 gives the logits of one of 0.75")
	}
}
