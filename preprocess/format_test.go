package preprocess_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"talf/compute/cpu"
	"talf/internal/golden"
	"talf/model"
	"talf/preprocess"
	"talf/text/tokenizer"
)

// Problems are written in the format that their model was trained on: the beginning
// token, "Question: …\nAnswer: …" without calculator annotations, the end token; with
// loss on the answer and the end token. The prompt's tokens are those that decoding
// starts with.
func TestProblemsAreWrittenAsTheirModelReadsThem(t *testing.T) {
	t.Run("own", func(t *testing.T) {
		problems := write(t, "problems.jsonl", `{"question":"Ann has 3 apples and buys 4 more. How many are there?","answer":"She has 3 + 4 = <<3+4=7>>7 apples.\n#### 7"}
{"question":"A box holds 6 eggs. How many eggs are in 5 boxes?","answer":"5 * 6 = <<5*6=30>>30 eggs, so <<30>>there are 30.\n#### 30"}
`)
		problemsAreWrittenAsTheirModelReadsThem(t, filepath.Join("..", "internal", "demo", "target"), problems)
	})
	t.Run("gsm8k", func(t *testing.T) {
		problemsAreWrittenAsTheirModelReadsThem(t, golden.Shared(t, "data/models/gsm10m"), golden.Shared(t, "data/prompts/gsm8k_train.jsonl"))
	})
}

func problemsAreWrittenAsTheirModelReadsThem(t *testing.T, dir, file string) {
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := target(t, dir, cpu.Default(), model.Default())
	c := preprocess.Default()
	c.Files, c.Out = []string{file}, t.TempDir()
	c.Load.Template, c.Load.AnswerField, c.Load.AnswerRemove, c.Load.Limit = `Question: {question}\nAnswer:`, "answer", `<<[^>]*>>`, 2
	c.LossOnly, c.Depth = true, 1
	if _, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: tok, TokenizerHash: tok.Hash()}); err != nil {
		t.Fatal(err)
	}
	_, got := rows(t, c.Out)
	if len(got) != 2 {
		t.Fatalf("%d rows of 2 problems", len(got))
	}
	f, err := os.Open(c.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	annotation := regexp.MustCompile(`<<[^>]*>>`)
	for i := range got {
		lines.Scan()
		var o struct{ Question, Answer string }
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			t.Fatal(err)
		}
		ids, n := got[i].Tokens, 0
		for n < len(ids) && !got[i].LossMask[n] {
			n++
		}
		prompt := "Question: " + o.Question + "\nAnswer:"
		if s := tok.Decode(ids[:n], true); s != prompt {
			t.Errorf("prompt %q, want %q", s, prompt)
		}
		if s, want := tok.Decode(ids[n:], true), " "+annotation.ReplaceAllString(o.Answer, ""); s != want {
			t.Errorf("answer %q, want %q", s, want)
		}
		start, err := tok.Encode(prompt, true)
		if err != nil || common(start, ids) != n || len(start) != n {
			t.Errorf("decoding would start with %d tokens, %d of them the row's first %d (%v)", len(start), common(start, ids), n, err)
		}
		if last := ids[len(ids)-1]; last != m.Spec().EOS[0] || ids[0] != m.Spec().BOS {
			t.Errorf("begins with %d and ends with %d", ids[0], last)
		}
	}
}

func common(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
