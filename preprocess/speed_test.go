package preprocess_test

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"talf/compute/cpu"
	"talf/data"
	"talf/internal/golden"
	"talf/model"
	"talf/model/tokenizer"
	"talf/preprocess"
)

// Speed of whole runs on real models: TALF_SPEED says how many documents.
func TestSpeed(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("TALF_SPEED"))
	if err != nil {
		t.Skip("TALF_SPEED is not set to a number of documents")
	}
	for _, x := range []struct {
		model, file string
		load        func(*data.LoadConfig)
	}{
		{"data/hf/stories260K", "data/text/tinystories_val_794k.txt", func(*data.LoadConfig) {}},
		{"data/models/gsm10m", "data/prompts/gsm8k_train.jsonl", func(l *data.LoadConfig) {
			l.Template, l.AnswerField, l.AnswerRemove = `Question: {question}\nAnswer:`, "answer", `<<[^>]*>>`
		}},
	} {
		dir := golden.Shared(t, x.model)
		m := target(t, dir, cpu.Default(), model.Default())
		tok, err := tokenizer.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		c := preprocess.Default()
		c.Files, c.Out = []string{golden.Shared(t, x.file)}, t.TempDir()
		c.Load.Limit = n
		x.load(&c.Load)
		start := time.Now()
		st, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: tok, TokenizerHash: tok.Hash()})
		if err != nil {
			t.Fatal(err)
		}
		wall := time.Since(start)
		set, err := data.Open(c.Out)
		if err != nil {
			t.Fatal(err)
		}
		start = time.Now()
		sums, err := set.Stats()
		if err != nil {
			t.Fatal(err)
		}
		set.Close()
		t.Logf("%s: %+v in %v: %.0f tokens/s; read back in %v\n%+v, mean mass of %d labels %.4f", x.model, st, wall, float64(st.Tokens)/wall.Seconds(), time.Since(start), sums, c.TopK, sums.LabelMass/float64(sums.Labels))
	}
}
