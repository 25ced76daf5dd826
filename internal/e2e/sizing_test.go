package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"talf/data"
	"talf/model/arch"
	"talf/preprocess"
)

// sized returns the targets of docs/sizing.md: the shapes of Llama 3.2 1B, Llama 3.1 8B and 70B.
func sized() []*arch.Spec {
	shape := func(hidden, layers, heads, dim, ffn int, tied bool) *arch.Spec {
		s := arch.Llama()
		s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.Tied = 128256, hidden, layers, heads, 8, dim, ffn, tied
		return s
	}
	return []*arch.Spec{shape(2048, 16, 32, 64, 8192, true), shape(4096, 32, 32, 128, 14336, false), shape(8192, 80, 64, 128, 28672, false)}
}

// headParams returns the number of trained parameters of a head.
func headParams(s *arch.Spec) int { return s.DraftFor(false).Params() }

// The sizes in docs/sizing.md are those of the code: parameters, bytes and
// operations are counted here, row by row.
func TestSizesInTheGuideAreCounted(t *testing.T) {
	b, err := os.ReadFile("../../docs/sizing.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	c := preprocess.Default()
	meta := data.Meta{Branch: c.K, Depth: c.Depth, Labels: c.Labels, K: c.TopK}
	nodes := meta.Nodes()
	const (
		draftVocab = 32000
		cpuRate    = 1e11 // operations per second that the guide's times assume
		gpuRate    = 2e14
	)
	bits := 8 * (4 + nodes*(3*4+8*meta.K+4)) // columns of docs/formats.md without features
	bits++                                   // loss_mask
	if want := fmt.Sprintf("%.1f bytes", float64(bits)/8); !strings.Contains(text, want) {
		t.Errorf("docs/sizing.md: no %q for the labels of a token", want)
	}
	type count func(s *arch.Spec) float64
	// The final norm and a separate embedding take a negligible number of operations.
	total := func(s *arch.Spec) float64 { return float64(s.Params()) }
	matmul := func(s *arch.Spec) float64 {
		n := total(s) - float64(s.Hidden)
		if !s.Tied {
			n -= float64(s.Vocab * s.Hidden)
		}
		return n
	}
	// A node in training: forward and backward through the layer; through the frozen LM head
	// forward, and backward only to its input.
	perNode := func(vocab int) count {
		return func(s *arch.Spec) float64 { return 6*float64(headParams(s)) + 4*float64(vocab*s.Hidden) }
	}
	eagle3 := func(s *arch.Spec) *arch.Spec { return s.Eagle3For(nil, draftVocab) }
	scaled := func(f count, by float64) count { return func(s *arch.Spec) float64 { return by * f(s) } }
	for _, row := range []struct {
		name, format string
		f            count
	}{
		{"parameters of the target", "%.2f G", scaled(total, 1e-9)},
		{"its weights in bf16", "%.1f GB", scaled(total, 2e-9)},
		{"its weights in q8", "%.1f GB", scaled(total, 8.5/8*1e-9)},
		{"keys and values of a token, f32", "%.0f KB", func(s *arch.Spec) float64 {
			return float64(2*s.Layers*s.KVHeads*s.HeadDim*4) / 1e3
		}},
		{"keys and values in a run", "%.2f GB", func(s *arch.Spec) float64 {
			return float64(2*s.Layers*s.KVHeads*s.HeadDim*4) * float64(c.Tokens+c.Rows) / 1e9
		}},
		{"logits of a pass, f32", "%.2f GB", func(s *arch.Spec) float64 { return float64(c.Rows*s.Vocab*4) / 1e9 }},
		{"operations for a token", "%.0f GFLOP", scaled(matmul, 2e-9*float64(nodes))},
		{"features of a million tokens", "%.2f GB", func(s *arch.Spec) float64 { return 2 * float64(s.Hidden) / 1e3 }},
		{"the same, states for an EAGLE-3 head", "%.2f GB", func(s *arch.Spec) float64 { return 2 * float64(s.Eagle3For(nil, 0).FeatureSize()) / 1e3 }},
		{"parameters of an EAGLE-3 head, 32,000 tokens in the draft vocabulary", "%.1f M", func(s *arch.Spec) float64 { return float64(eagle3(s).Params()) / 1e6 }},
		{"its weights, gradients and moments, f32", "%.1f GB", func(s *arch.Spec) float64 { return 16 * float64(eagle3(s).Params()) / 1e9 }},
		// Seven steps through the layer and the head's own LM head; fc once.
		{"operations for a position, `eagle3`", "%.1f GFLOP", func(s *arch.Spec) float64 {
			e := eagle3(s)
			return 6 * (7*float64(e.Params()) - 6*float64(e.FeatureSize()*e.Hidden)) / 1e9
		}},
		{"parameters of the head", "%.1f M", func(s *arch.Spec) float64 { return float64(headParams(s)) / 1e6 }},
		{"weights, gradients and moments, f32", "%.1f GB", func(s *arch.Spec) float64 { return 16 * float64(headParams(s)) / 1e9 }},
		// model.PackEmbed keeps bfloat16; compute's SoftCE has the LM head in panels of
		// tokens and in panels of features, both f32.
		{"embedding, bf16 as stored", "%.1f GB", func(s *arch.Spec) float64 { return 2 * float64(s.Vocab*s.Hidden) / 1e9 }},
		{"LM head, both packings in f32", "%.1f GB", func(s *arch.Spec) float64 { return 8 * float64(s.Vocab*s.Hidden) / 1e9 }},
		{"the same, 32,000 tokens in the draft vocabulary", "%.1f GB", func(s *arch.Spec) float64 { return 8 * float64(draftVocab*s.Hidden) / 1e9 }},
		// Copies of weights and moments, as numbers and as bytes.
		{"more while a checkpoint is written", "%.1f GB", func(s *arch.Spec) float64 { return 24 * float64(headParams(s)) / 1e9 }},
		{"all of it, 32,000 tokens in the draft vocabulary", "%.1f GB", func(s *arch.Spec) float64 {
			return (40*float64(headParams(s)) + float64((2*s.Vocab+8*draftVocab)*s.Hidden)) / 1e9
		}},
		{"a checkpoint", "%.1f GB", func(s *arch.Spec) float64 {
			return (12*float64(headParams(s)) + 2*float64(s.Vocab*s.Hidden)) / 1e9
		}},
		{"operations for a position, `eagle`", "%.1f GFLOP", scaled(perNode(128256), 1e-9)},
		{"`hass`", "%.1f GFLOP", scaled(perNode(128256), 3e-9)},
		{"`talf`", "%.1f GFLOP", scaled(perNode(128256), 1e-9*float64(nodes))},
		{"`eagle`, 32,000 tokens in the draft vocabulary", "%.1f GFLOP", scaled(perNode(draftVocab), 1e-9)},
		{"`talf`, 32,000 tokens in the draft vocabulary", "%.1f GFLOP", scaled(perNode(draftVocab), 1e-9*float64(nodes))},
		{"label a million tokens, CPU", "%.0f h", scaled(matmul, 2*float64(nodes)*1e6/cpuRate/3600)},
		{"label a million tokens, GPU", "%.2f h", scaled(matmul, 2*float64(nodes)*1e6/gpuRate/3600)},
		{"train a million positions, `eagle`, CPU", "%.1f h", scaled(perNode(draftVocab), 1e6/cpuRate/3600)},
		{"train a million positions, `talf`, CPU", "%.1f h", scaled(perNode(draftVocab), float64(nodes)*1e6/cpuRate/3600)},
		{"train a million positions, `talf`, GPU", "%.2f h", scaled(perNode(draftVocab), float64(nodes)*1e6/gpuRate/3600)},
	} {
		line := "| " + row.name
		for _, s := range sized() {
			line += " | " + fmt.Sprintf(row.format, row.f(s))
		}
		if line += " |"; !strings.Contains(text, line+"\n") {
			t.Errorf("docs/sizing.md has no line\n%s", line)
		}
	}
}
