package measurements

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// What the head of the tables is trained on: the target's own answers to the first prompts of
// training.jsonl. Then eagle on the answers, and talf along the target's trees.
const (
	answersOf  = 2400
	eagleSteps = 1600
	talfSteps  = 800
)

var answers = answersTo("", answersOf)

// answersTo is the step that writes the target's answers to the first n prompts.
func answersTo(prefix string, n int) *step {
	return &step{
		name: prefix + "answers", of: fmt.Sprint(n), code: []string{"compute", "infer", "model", "internal/demo"},
		run: func(ctx context.Context, l *lab) error { return l.answer(ctx, prefix, n) },
	}
}

// answer writes the target's greedy answers to the first n prompts of training.jsonl.
func (l *lab) answer(ctx context.Context, prefix string, n int) error {
	all, err := os.ReadFile(filepath.Join(l.root, l.work, "prompts", "training.jsonl"))
	if err != nil {
		return err
	}
	lines, most := bytes.SplitAfter(all, []byte("\n")), l.amount(n)
	if len(lines) < most {
		return fmt.Errorf("training.jsonl has %d prompts, want %d", len(lines), most)
	}
	asked, unsorted := l.path(prefix+"asked.jsonl"), l.path(prefix+"answers.part.jsonl")
	if err := os.WriteFile(filepath.Join(l.root, asked), bytes.Join(lines[:most], nil), 0o644); err != nil {
		return err
	}
	// generate goes on where a file of answers ends: those of other code must not stay.
	if err := os.RemoveAll(filepath.Join(l.root, unsorted)); err != nil {
		return err
	}
	if _, err := l.run(ctx, "generate", "--model", l.path("gsm10m"), "--prompts", asked, "--max-tokens", "128", "--method", "ar", "--batch", "48", "--out", unsorted); err != nil {
		return err
	}
	// In the order of the prompts, whichever ended first.
	b, err := os.ReadFile(filepath.Join(l.root, unsorted))
	if err != nil {
		return err
	}
	type answer struct {
		Index int `json:"index"`
		line  []byte
	}
	var got []answer
	for line := range bytes.Lines(b) {
		a := answer{line: line}
		if err := json.Unmarshal(line, &a); err != nil {
			return fmt.Errorf("%s: %w", unsorted, err)
		}
		got = append(got, a)
	}
	slices.SortFunc(got, func(a, b answer) int { return a.Index - b.Index })
	var sorted bytes.Buffer
	for _, a := range got {
		sorted.Write(a.line)
	}
	return os.WriteFile(filepath.Join(l.root, l.path(prefix+"answers.jsonl")), sorted.Bytes(), 0o644)
}

var labels = &step{
	name: "labels", of: answers.of, code: []string{"compute", "data", "model", "preprocess", "tree"}, after: []*step{answers},
	run: func(ctx context.Context, l *lab) error {
		if err := os.RemoveAll(filepath.Join(l.root, l.path("labels"))); err != nil {
			return err
		}
		_, err := l.run(ctx, "preprocess", "--model", l.path("gsm10m"), "--data", l.path("answers.jsonl"), "--template", "{prompt}", "--answer-field", "text",
			"--loss-only", "--max-len", "320", "--out", l.path("labels"))
		return err
	},
}

// fewLabels are of the first answers, enough for the short runs that compare losses.
var fewLabels = &step{
	name: "losses-labels", of: fmt.Sprint(fewAnswers), code: labels.code, after: []*step{answers},
	run: func(ctx context.Context, l *lab) error {
		if err := os.RemoveAll(filepath.Join(l.root, l.path("losses-labels"))); err != nil {
			return err
		}
		_, err := l.run(ctx, "preprocess", "--model", l.path("gsm10m"), "--data", l.path("answers.jsonl"), "--template", "{prompt}", "--answer-field", "text",
			"--loss-only", "--max-len", "320", "--limit", fmt.Sprint(fewAnswers), "--out", l.path("losses-labels"))
		return err
	},
}

const fewAnswers = 480

// textLabels are of the text that talf quickstart trains heads on, by the target that comes with the
// program.
var textLabels = &step{
	name: "quickstart-labels", code: []string{"compute", "data", "internal/demo", "internal/quickstart", "model", "preprocess", "tree"},
	run: func(ctx context.Context, l *lab) error {
		if err := os.RemoveAll(filepath.Join(l.root, l.path("quickstart-labels"))); err != nil {
			return err
		}
		_, err := l.run(ctx, "preprocess", "--model", l.path("quickstart-target"), "--data", l.path("prompts", "quickstart-text.jsonl"), "--eos", "always",
			"--out", l.path("quickstart-labels"))
		return err
	},
}

var head = &step{
	name: "head", of: fmt.Sprint(answersOf, eagleSteps, talfSteps), code: []string{"compute", "data", "model", "train"}, after: []*step{labels},
	run: func(ctx context.Context, l *lab) error {
		if err := os.RemoveAll(filepath.Join(l.root, l.path("head"))); err != nil {
			return err
		}
		_, err := l.run(ctx, "train", "--model", l.path("gsm10m"), "--data", l.path("labels"), "--out", l.path("head"),
			"--stage", fmt.Sprintf("eagle:%d:lr=3e-3", l.amount(eagleSteps)), "--stage", fmt.Sprintf("talf:%d:lr=1.5e-3", l.amount(talfSteps)),
			"--rows", "1024", "--min-lr", "0.05", "--seed", "1", "--eval-every", "0", "--save-every", "200")
		return err
	},
}

// datastore is what rest copies from: the text that the head was trained on.
var datastore = &step{
	name: "datastore", of: answers.of, code: []string{"data", "infer/lookup", "text/tokenizer"}, after: []*step{answers},
	run: func(ctx context.Context, l *lab) error {
		if err := os.RemoveAll(filepath.Join(l.root, l.path("answers.idx"))); err != nil {
			return err
		}
		_, err := l.run(ctx, "datastore", "build", "--model", l.path("gsm10m"), "--data", l.path("answers.jsonl"), "--template", "{prompt}", "--answer-field", "text",
			"--out", l.path("answers.idx"))
		return err
	},
}

// howHead says what the head was trained on, and how long everything took.
func howHead(l *lab) (string, error) {
	var took [3]time.Duration
	for i, s := range []*step{answers, labels, head} {
		m, err := s.made(l)
		if err != nil {
			return "", err
		}
		if m == nil {
			return "", fmt.Errorf("%s was not made", s.name)
		}
		took[i] = time.Duration(m.Seconds * float64(time.Second)).Round(time.Second)
	}
	return fmt.Sprintf("The head was trained on the target's greedy answers to %d prompts that no table decodes: %d steps with `eagle`, %d with `talf`. "+
		"Answers took %s, labels %s, training %s. The small language model (LM) comes with the repository.\n",
		l.amount(answersOf), l.amount(eagleSteps), l.amount(talfSteps), took[0], took[1], took[2]), nil
}
