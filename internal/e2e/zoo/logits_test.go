package zoo

import (
	"context"
	"math"
	"testing"

	"talf/checkpoints"
	"talf/compute"
	"talf/internal/golden"
	"talf/internal/zoo"
	"talf/model"
	"talf/text/tokenizer"
)

// tolerance is of ln p. Both sides compute in float32, in other orders: SmolLM2 was within 3.1e-4, Qwen 0.5B within 8.3e-4, and a norm's ε twice as
// large moves its ln p by 2e-2. llama.cpp takes the GELU of Gemma from a table of float16: 8.9e-3, and its perplexity by 5e-5.
var tolerance = map[string]float64{zoo.SmolLM2: 1e-3, zoo.Gemma3: 3e-2, zoo.Qwen05: 3e-3, zoo.Qwen15: 3e-3}

// perplexityTolerance is relative. llama.cpp prints four decimals.
var perplexityTolerance = map[string]float64{zoo.SmolLM2: 3e-6, zoo.Gemma3: 1e-4, zoo.Qwen05: 1e-5, zoo.Qwen15: 1e-5}

// A distance is how far a model is from what was recorded.
type distance struct {
	logP    float64 // largest |Δ ln p| of a recorded likely token
	kl      float64 // mean divergence over the recorded tokens, the rest as one
	greedy  int     // tokens that lead by the tolerance or more and are not the model's first choice
	ties    int     // tokens that lead by less
	choices int
}

// measure runs m over all recorded texts.
func measure(t *testing.T, m *model.Model, r *record, tolerance float64) (d distance) {
	t.Helper()
	row := make([]float32, m.Spec().Vocab)
	rows := 0
	for _, p := range r.Prompts {
		text := append(append([]int32{}, p.IDs...), p.Greedy[:max(1, len(p.Greedy))-1]...)
		at := map[int][][2]float64{}
		for _, l := range p.Likely {
			at[l.After-1] = l.Top
		}
		each(t, m, text, row, func(pos int, logits []float32) {
			total, best := logSum(logits)
			if top := at[pos]; top != nil {
				pRest, qRest, kl := 1.0, 1.0, 0.0
				for _, x := range top {
					got := float64(logits[int(x[0])]) - total
					d.logP = max(d.logP, math.Abs(got-x[1]))
					kl += math.Exp(x[1]) * (x[1] - got)
					pRest -= math.Exp(x[1])
					qRest -= math.Exp(got)
				}
				if pRest > 1e-6 && qRest > 0 {
					kl += pRest * math.Log(pRest/qRest)
				}
				d.kl += kl
				rows++
			}
			if i := pos - len(p.IDs) + 1; i >= 0 && i < len(p.Greedy) && p.Leads[i] != nil {
				d.choices++
				switch {
				case *p.Leads[i] < tolerance:
					d.ties++
				case int32(best) != p.Greedy[i]:
					d.greedy++
				}
			}
		})
	}
	d.kl /= float64(rows)
	return d
}

// each calls f with the logits after every token of a text.
func each(t *testing.T, m *model.Model, text []int32, row []float32, f func(pos int, logits []float32)) {
	t.Helper()
	s := m.NewSeqOf(len(text))
	defer s.Close()
	const chunk = 128 // bounds the memory of logits
	for i := 0; i < len(text); i += chunk {
		n := min(chunk, len(text)-i)
		o, err := s.Append(context.Background(), text[i:i+n], nil, model.WantAll)
		if err != nil {
			t.Fatal(err)
		}
		for k := range n {
			o.ReadLogits(row, k)
			f(i+k, row)
		}
	}
}

// logSum returns ln Σ exp of the logits, and the first of the largest.
func logSum(logits []float32) (total float64, best int) {
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	for _, x := range logits {
		total += math.Exp(float64(x - logits[best]))
	}
	return float64(logits[best]) + math.Log(total), best
}

func TestLogitsAndGreedyTextsAreThoseOfLlamaCpp(t *testing.T) {
	for _, z := range chosen(t) {
		t.Run(z.Name, func(t *testing.T) {
			path, r := zoo.Path(t, z.Name), computed(t, z.Name)
			d := measure(t, open(t, path, checkpoints.DType(compute.F32), 0), &r, tolerance[z.Name])
			t.Logf("%s in f32: |Δ ln p| at most %.2g, divergence %.2g, %d of %d choices differ, %d are ties", z.Name, d.logP, d.kl, d.greedy, d.choices, d.ties)
			if d.logP > tolerance[z.Name] || d.greedy > 0 || d.ties > d.choices/20 || d.choices < 500 {
				t.Errorf("%+v, want |Δ ln p| ≤ %g and no other choice", d, tolerance[z.Name])
			}
		})
	}
}

// The type that auto chooses rounds nothing that the file holds: what is left is that products of its integers round
// activations, to 16 bits here. With weights rounded to 8 bits the divergence of SmolLM2 is 8e-4.
func TestAutoKeepsTheMeaningOfTheFile(t *testing.T) {
	for _, z := range chosen(t) {
		t.Run(z.Name, func(t *testing.T) {
			path, r := zoo.Path(t, z.Name), computed(t, z.Name)
			d := measure(t, open(t, path, checkpoints.Auto, 16), &r, 0.05)
			t.Logf("%s as auto: |Δ ln p| at most %.2g, divergence %.2g, %d of %d choices that lead by 0.05 differ", z.Name, d.logP, d.kl, d.greedy, d.choices-d.ties)
			if d.kl > 1e-5 || d.greedy > 0 || d.choices < 500 {
				t.Errorf("%+v, want a divergence of at most 1e-5 and no other choice", d)
			}
		})
	}
}

// Perplexity as llama.cpp measures it: windows do not overlap, begin with BOS where the tokenizer writes one, and the second half counts.
func TestPerplexityIsThatOfLlamaCpp(t *testing.T) {
	text := string(golden.Read(t, "zoo/text.txt"))
	for _, z := range chosen(t) {
		t.Run(z.Name, func(t *testing.T) {
			path, want := zoo.Path(t, z.Name), recorded(t, z.Name).Perplexity
			tok, err := tokenizer.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := tok.Encode(text, true)
			if err != nil {
				t.Fatal(err)
			}
			m := open(t, path, checkpoints.DType(compute.F32), 0)
			row := make([]float32, m.Spec().Vocab)
			before, _ := tok.Added()
			nll, tokens := 0.0, 0
			for w := range len(ids) / want.Window {
				in := ids[w*want.Window:][:want.Window]
				copy(in, before)
				each(t, m, in, row, func(pos int, logits []float32) {
					if pos >= want.Window/2 && pos+1 < want.Window {
						total, _ := logSum(logits)
						nll += total - float64(logits[in[pos+1]])
						tokens++
					}
				})
				got := math.Exp(nll / float64(tokens))
				t.Logf("%s, %d windows: %.4f (ln %.6f), llama.cpp %.4f", z.Name, w+1, got, nll/float64(tokens), want.AfterWindows[w])
				if math.Abs(got/want.AfterWindows[w]-1) > perplexityTolerance[z.Name] {
					t.Errorf("%d windows: perplexity %.5f, want %.4f", w+1, got, want.AfterWindows[w])
				}
			}
			if tokens == 0 {
				t.Error("no window")
			}
		})
	}
}
