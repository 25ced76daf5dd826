package train

import (
	"encoding/json"
	"math"
	"testing"
)

// An evaluation that equals the best one is no better: the earlier checkpoint stays the best,
// and patience runs out.
func TestAnEqualScoreIsNoBetter(t *testing.T) {
	tr := &trainer{}
	for i, c := range []struct {
		score    float64
		improved bool
		best     int
		stale    int
	}{{1.5, true, 1, 0}, {1.5, false, 1, 1}, {1.25, false, 1, 2}, {1.75, true, 4, 0}, {1.75, false, 4, 1}} {
		if got := tr.recordScore(i+1, c.score); got != c.improved || tr.state.Best.Step != c.best || tr.state.Stale != c.stale {
			t.Errorf("evaluation %d of %v: improved %v, the best is %d, %d since; want %v, %d, %d", i+1, c.score, got, tr.state.Best.Step, tr.state.Stale, c.improved, c.best, c.stale)
		}
	}
	// A new stage has a peak of its own; the best is of all stages.
	tr.state.Peak, tr.state.Stale = nil, 0
	if tr.recordScore(6, 1) || tr.state.Stale != 0 || tr.state.Best.Step != 4 {
		t.Errorf("the first evaluation of a stage: %+v", tr.state)
	}
}

// Sums over two sequences on two levels, by hand: a level's loss is per node, their sum per
// position.
func TestSharesOfAnEvaluationAddUp(t *testing.T) {
	share := func(p evalPart) json.RawMessage {
		b, err := json.Marshal(evalShare{Held: 2, Levels: 2, Trees: true, Parts: []evalPart{p}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	e, err := mergeEval([]json.RawMessage{
		share(evalPart{At: 0, Positions: 3, Loss: []float64{6, 10}, Rows: []int{3, 8}, Hits: []int{2, 1}, Expect: 1.5, Greedy: 2, Mass: []float64{3, 8}, Lost: []float64{0.75, 2}}),
		share(evalPart{At: 1, Positions: 1, Loss: []float64{2, 6}, Rows: []int{1, 4}, Hits: []int{1, 2}, Expect: 0.5, Greedy: 0, Mass: []float64{1, 4}, Lost: []float64{0.25, 1}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("loss by position", e.Loss, (6+2+10+6)/4.)
	near("level 0", e.Levels[0].Loss, 8/4.)
	near("level 1", e.Levels[1].Loss, 16/12.)
	near("top-1 of level 0", e.Levels[0].Top1, 3/4.)
	near("top-1 of level 1", e.Levels[1].Top1, 3/12.)
	near("covered", e.Levels[1].Covered, 0.75)
	near("tau", e.Tau, 1+2/4.)
	near("greedy tau", e.TauGreedy, 1+2/4.)
	if e.Positions != 4 || e.Levels[1].Rows != 12 {
		t.Errorf("%+v", e)
	}
}

// The last document is used for training whatever fraction is held out.
func TestOneDocumentIsTrainedOn(t *testing.T) {
	cfg := tinyConfig()
	cfg.Rows, cfg.Accum, cfg.Held = 16, 1, 0.9
	l, tr, err := newLMTask(cfg, LMJob{Device: device(t, 1), Spec: tinySpec(), Docs: [][]int32{{1, 2, 3}}, Window: 4, Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.store.Close()
	if len(l.train) != 1 || len(l.held) != 0 {
		t.Errorf("%d windows to train on, %d held out", len(l.train), len(l.held))
	}
}
