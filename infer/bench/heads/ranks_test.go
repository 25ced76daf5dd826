package heads_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"talf/infer/bench/benchtest"
	"talf/infer/bench/heads"
	"talf/internal/golden"
	"talf/model"
	"talf/model/head"
	"talf/model/safetensors"
)

// reference loads the target and the head of the reference data in dir.
func reference(t *testing.T) (dir string, m *model.Model, h *head.Head) {
	t.Helper()
	dir = golden.File(t, "reference")
	m, err := model.Load(filepath.Join(dir, "target_trees", "target"), benchtest.CPU(t), model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() }) // only read
	h, err = head.Load(filepath.Join(dir, "eval", "head"), m, head.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() }) // only read
	return dir, m, h
}

// Accuracy and calibration by rank of the conditioning token, against transformers
// and the public head code: hits and tokens exactly, errors to 1e-6, because f32
// moves a confidence by 3e-7 and the nearest item is 1.5e-5 from the edge of a bin.
func TestAccuracyAndCalibrationByRankEqualTheReference(t *testing.T) {
	dir, m, h := reference(t)
	set, err := safetensors.Open(filepath.Join(dir, "eval", "items.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	ints := func(name string) []int32 {
		x, err := set.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := x.Int32s()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var seqs []heads.Text
	for i := range 3 {
		seqs = append(seqs, heads.Text{Tokens: ints(fmt.Sprintf("seq%d.token_ids", i))})
	}
	ranks, err := heads.ByRank(t.Context(), m, h, seqs, 5)
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Items int
		N     map[string]map[string]float64
	}
	b, err := os.ReadFile(filepath.Join(dir, "eval", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	for n, items := range ranks {
		if len(items) != want.Items {
			t.Fatalf("rank %d: %d items, want %d", n+1, len(items), want.Items)
		}
		tokens, next, correct := ints(fmt.Sprintf("n%d.token", n+1)), ints(fmt.Sprintf("n%d.target_next", n+1)), ints(fmt.Sprintf("n%d.correct", n+1))
		for i, it := range items {
			if it.Token != tokens[i] || it.Next != next[i] || it.Correct != (correct[i] == 1) {
				t.Errorf("rank %d, item %d: %+v, want token %d, next %d, correct %d", n+1, i, it, tokens[i], next[i], correct[i])
			}
		}
		e := want.N[fmt.Sprint(n+1)]
		for _, bins := range []int{10, 15} {
			accuracy, errs := heads.Calibration(items, bins)
			if accuracy != e["accuracy"] {
				t.Errorf("rank %d: accuracy %v, want %v", n+1, accuracy, e["accuracy"])
			}
			for k, name := range []string{"paper_conf.width", "max_prob_conf.width", "paper_conf.count", "max_prob_conf.count"} {
				key := fmt.Sprintf("ece.%s.M%d", name, bins)
				if w, ok := e[key]; !ok || math.Abs(errs[k]-w) > 1e-6 {
					t.Errorf("rank %d: %s is %v, want %v", n+1, key, errs[k], w)
				}
			}
		}
	}
}

// What stands behind From has the items that it has in the whole text.
func TestItemsOfAnAnswerAreThoseOfTheWholeText(t *testing.T) {
	_, m, h := reference(t)
	tokens := benchtest.Prompts(1, m.Spec().Vocab)[0].Tokens
	whole, err := heads.ByRank(t.Context(), m, h, []heads.Text{{Tokens: tokens}}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for from := range len(tokens) + 1 {
		part, err := heads.ByRank(t.Context(), m, h, []heads.Text{{Tokens: tokens, From: from}}, 2)
		if err != nil {
			t.Fatal(err)
		}
		for n := range whole {
			if d := cmp.Diff(whole[n][min(from, len(whole[n])):], part[n], cmpopts.EquateEmpty()); d != "" {
				t.Errorf("from %d, rank %d: %s", from, n+1, d)
			}
		}
	}
}

func TestCalibrationErrorOfKnownBins(t *testing.T) {
	// (0, 0.5] holds 0.5, 0.5 and 0: |2−1|/4. (0.5, 1] holds 1: 0.
	items := []heads.Item{{Correct: true, Conf: 0.5}, {Conf: 0.5}, {Correct: true, Conf: 1}, {Correct: true}}
	if _, got := heads.Calibration(items, 2); got[0] != 0.25 {
		t.Errorf("the error is %v, want 0.25", got[0])
	}
	// Sorted: 0 (right), 0.5 (right), 0.5, 1 (right), in runs of two: |2−0.5|/4 + |1−1.5|/4.
	if _, got := heads.Calibration(items, 2); got[2] != 0.5 {
		t.Errorf("the error over equal numbers is %v, want 0.5", got[2])
	}
}
