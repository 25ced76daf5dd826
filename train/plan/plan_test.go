package plan_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"talf/data"
	"talf/model/identity"
	"talf/train"
	"talf/train/plan"
)

// labels writes one sequence of n tokens to learn.
func labels(t *testing.T, n int) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "labels")
	w, err := data.Create(dir, data.Meta{
		Schema: data.SchemaVersion, Function: &identity.Function{}, Tokenizer: "none", Hidden: 4, Vocab: 40,
		Branch: 1, Depth: 1, Labels: data.TopK, K: 1, Features: data.None, Source: "test",
	}, data.Whole(), data.DefaultWriter())
	if err != nil {
		t.Fatal(err)
	}
	rec := &data.Record{}
	for i := range n {
		tok := int32(i)
		rec.Tokens, rec.LossMask = append(rec.Tokens, tok), append(rec.LossMask, true)
		rec.TreeTokens, rec.TreeParents = append(rec.TreeTokens, tok), append(rec.TreeParents, -1)
		rec.LabelIDs, rec.LabelProbs, rec.Tail = append(rec.LabelIDs, tok), append(rec.LabelProbs, 0.9), append(rec.Tail, 0.1)
	}
	if err := errors.Join(w.Append(rec), w.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Lengths in epochs are counted in the tokens of all sets, and the head's vocabulary in
// their text.
func TestAPlanIsReadAgainstItsData(t *testing.T) {
	a, b := labels(t, 9), labels(t, 5)
	const tokens = 14
	log := slog.New(slog.NewTextHandler(new(bytes.Buffer), nil))
	open := func(p plan.Head) (train.Config, train.HeadJob, error) {
		cfg, job := train.Default(), train.HeadJob{}
		p.Data = []string{a + "=2", b}
		err := p.Open(&cfg, &job, log)
		t.Cleanup(func() { _ = job.Data.Close() })
		return cfg, job, err
	}
	cfg, job, err := open(plan.Head{Epochs: 500})
	if err != nil || len(job.Data) != 2 || job.Data[0].Weight != 2 || job.Vocab != nil {
		t.Fatalf("%+v, %v", job, err)
	}
	if want := train.Default().EpochSteps(500, tokens); cfg.Steps != want || want < 2 {
		t.Errorf("500 epochs are %d steps, want %d", cfg.Steps, want)
	}
	cfg, job, err = open(plan.Head{Stages: []string{"eagle:3", "talf:500e"}, Vocab: "4"})
	if err != nil || len(cfg.Stages) != 2 || cfg.Stages[0].Steps != 3 || cfg.Stages[1].Steps != train.Default().EpochSteps(500, tokens) {
		t.Errorf("stages %+v, %v", cfg.Stages, err)
	}
	if len(job.Vocab) != 4 {
		t.Errorf("a vocabulary of 4 tokens: %v", job.Vocab)
	}
	if _, job, err = open(plan.Head{Stages: []string{"eagle"}}); err == nil || len(job.Data) != 2 {
		t.Errorf("a wrong stage: %v, with %d sets open", err, len(job.Data))
	}
	none := plan.Head{Data: []string{t.TempDir() + "/none"}}
	if err := none.Open(new(train.Config), new(train.HeadJob), log); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no data: %v", err)
	}
}
