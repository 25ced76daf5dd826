package preprocess_test

import (
	"context"
	"testing"

	"talf/compute/cpu"
	"talf/data/corpus"
	"talf/internal/golden"
	"talf/model"
	"talf/preprocess"
	"talf/text/tokenizer"
)

// Whole runs, including shards, on two trained models: 40 story paragraphs and 12
// problems with answers.
func BenchmarkRun(b *testing.B) {
	for _, x := range []struct {
		model, file string
		docs        int
		load        func(*corpus.Config)
	}{
		{"data/hf/stories260K", "data/text/tinystories_val_794k.txt", 40, func(*corpus.Config) {}},
		{"data/models/gsm10m", "data/prompts/gsm8k_train.jsonl", 12, func(l *corpus.Config) {
			l.Template, l.AnswerField, l.AnswerRemove = `Question: {question}\nAnswer:`, "answer", `<<[^>]*>>`
		}},
	} {
		b.Run(x.model, func(b *testing.B) {
			dir := golden.Shared(b, x.model)
			m := target(b, dir, cpu.Default(), model.Default())
			tok, err := tokenizer.Load(dir)
			if err != nil {
				b.Fatal(err)
			}
			tokens := int64(0)
			for b.Loop() {
				c := preprocess.Default()
				c.Files, c.Out = []string{golden.Shared(b, x.file)}, b.TempDir()
				c.Load.Limit = x.docs
				x.load(&c.Load)
				st, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: tok})
				if err != nil {
					b.Fatal(err)
				}
				tokens += st.Tokens
			}
			b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
			// Nine nodes per token, two operations per weight.
			weights := 0
			for _, n := range m.Tensors().Names() {
				x, _ := m.Tensors().Tensor(n)
				weights += x.Len()
			}
			b.ReportMetric(float64(tokens)*9*2*float64(weights)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
