package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"talf/checkpoints"
	"talf/data"
	"talf/train/mix"
)

// logOf reads a run's log.
func logOf(t testing.TB, dir string) (all []metric) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		var m metric
		if err := json.Unmarshal(line, &m); err != nil || m.Step != i+1 {
			t.Fatalf("line %d: %s, %v", i+1, line, err)
		}
		all = append(all, m)
	}
	return all
}

// stagedConfig is a run of three stages.
func stagedConfig() Config {
	cfg := tinyConfig()
	cfg.Noise, cfg.EvalEvery, cfg.SaveEvery = 0.01, 2, 3
	cfg.Stages = []Stage{
		{Loss: "eagle", Steps: 4, LR: 1e-2, Warmup: 2},
		{Loss: "hass:top=3,feed=flow", Steps: 3, LR: 5e-3, Warmup: 1},
		{Loss: "talf", Steps: 3, LR: 2e-3, MinLR: 0.5},
	}
	return cfg
}

func weights(t testing.TB, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, checkpoints.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A run in stages produces the bits of separate runs, each started from the result of the one
// before.
func TestStagesAreRunsOneAfterTheOther(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	cfg := stagedConfig()
	res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
	if err != nil || res.Step != 10 || !res.Done {
		t.Fatalf("%+v, %v", res, err)
	}
	init := ""
	for _, s := range cfg.Stages {
		one := cfg
		one.Stages, one.Loss, one.Steps, one.LR, one.MinLR, one.Warmup = nil, s.Loss, s.Steps, s.LR, s.MinLR, s.Warmup
		r, err := Head(context.Background(), one, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Init: init})
		if err != nil {
			t.Fatal(err)
		}
		init = r.Dir
	}
	if !bytes.Equal(weights(t, res.Dir), weights(t, init)) {
		t.Error("the weights differ")
	}
}

func TestAStagedRunContinuesWithTheSameBits(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	cfg := stagedConfig()
	whole := t.TempDir()
	want, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: whole})
	if err != nil {
		t.Fatal(err)
	}
	for stop := 1; stop < 10; stop++ {
		out := t.TempDir()
		ctx, report := stopAfter(stop)
		if _, err := Head(ctx, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Report: report}); !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped at %d: %v", stop, err)
		}
		res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
		if err != nil {
			t.Fatal(err)
		}
		sameFiles(t, "stopped at "+string(rune('0'+stop)), files(t, want.Dir), files(t, res.Dir))
		if filepath.Base(res.Best) != filepath.Base(want.Best) {
			t.Errorf("stopped at %d: best %s, want %s", stop, res.Best, want.Best)
		}
		a, b := logOf(t, whole), logOf(t, out)
		for i := range a {
			a[i].Seconds, b[i].Seconds = 0, 0
			if stage := a[i].Stage; (i >= 4) != (stage > 0) || (i >= 7) != (stage > 1) {
				t.Errorf("step %d is of stage %d", i+1, stage)
			}
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("stopped at %d: the log differs", stop)
		}
	}
}

// Wherever an evaluation in the middle of a run is interrupted, its step's figures end up in the
// log exactly once.
func TestAnInterruptedEvaluationLeavesNoGap(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	cfg.Steps, cfg.Warmup, cfg.EvalEvery, cfg.SaveEvery = 4, 1, 2, 0
	run := func(n int, out string) (asked int, err error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		c := endAfter(ctx, cancel, n)
		_, err = Head(c, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
		return n - int(c.n.Load()), err
	}
	whole := t.TempDir()
	asked, err := run(1<<30, whole)
	if err != nil {
		t.Fatal(err)
	}
	want := logOf(t, whole)
	pending := 0
	for n := 3; n < asked; n += 1 + asked/20 {
		out := t.TempDir()
		if _, err := run(n, out); !errors.Is(err, context.Canceled) {
			t.Fatalf("asked %d times: %v", n, err)
		}
		if dir, err := checkpoints.Find(out); err == nil {
			b, err := os.ReadFile(filepath.Join(dir, checkpoints.StateFile))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), "\"pending\"") {
				pending++
				// A run that went on from there may have died between the log and its checkpoint.
				line, err := json.Marshal(want[len(logOf(t, out))])
				if err != nil {
					t.Fatal(err)
				}
				f, err := os.OpenFile(filepath.Join(out, MetricsFile), os.O_WRONLY|os.O_APPEND, 0)
				if err != nil {
					t.Fatal(err)
				}
				_, err = f.Write(append(line, '\n'))
				if err := errors.Join(err, f.Close()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := run(1<<30, out); err != nil {
			t.Fatal(err)
		}
		got := logOf(t, out)
		for i := range got {
			got[i].Seconds = want[i].Seconds
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("interrupted when asked for the %d. time: the log is %+v, want %+v", n, got, want)
		}
		last, err := checkpoints.Find(out)
		if err != nil {
			t.Fatal(err)
		}
		sameFiles(t, "interrupted", files(t, filepath.Join(whole, filepath.Base(last))), files(t, last))
	}
	if pending == 0 {
		t.Error("no evaluation was interrupted")
	}
}

// The best checkpoint stays, whatever else is removed, and is found by its name.
func TestTheBestCheckpointIsKept(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	cfg.Steps, cfg.EvalEvery, cfg.SaveEvery, cfg.Keep, cfg.LR = 12, 1, 1, 1, 0.05
	out := t.TempDir()
	res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	log := logOf(t, out)
	for i, m := range log {
		if m.Eval.Tau > log[want].Eval.Tau {
			want = i
		}
	}
	if want == 0 || want == len(log)-1 {
		t.Fatalf("the best of %d steps is step %d: nothing is tested", len(log), want+1)
	}
	dir, err := checkpoints.Find(filepath.Join(out, "best"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := checkpoints.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(t.Context(), dir); err != nil || m.Step != want+1 || res.Best != dir {
		t.Errorf("step %d in %s, want %d in %s, %v", m.Step, dir, want+1, res.Best, err)
	}
	kept, err := filepath.Glob(filepath.Join(out, "step-*"))
	if err != nil || len(kept) != 2 {
		t.Errorf("kept %v, %v", kept, err)
	}
	// A crash between the checkpoint and the file that names it: resuming names it.
	if err := os.Remove(filepath.Join(out, checkpoints.BestFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out}); err != nil {
		t.Fatal(err)
	}
	if again, err := checkpoints.Find(filepath.Join(out, "best")); err != nil || again != dir {
		t.Errorf("after resuming the best is %q, %v, want %q", again, err, dir)
	}
}

// A stage stops after the given number of evaluations without a better one, and the next
// continues from the best weights.
func TestAStageEndsEarly(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	cfg.EvalEvery, cfg.SaveEvery, cfg.Patience = 1, 0, 3
	cfg.Stages = []Stage{{Loss: "eagle", Steps: 100, LR: 0.05}, {Loss: "talf", Steps: 2, LR: 1e-9}}
	out := t.TempDir()
	res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
	if err != nil || !res.Done {
		t.Fatalf("%+v, %v", res, err)
	}
	log := logOf(t, out)
	n := len(log) - 2 // steps of the first stage
	peak := 0
	for i, m := range log[:n] {
		if m.Eval.Tau > log[peak].Eval.Tau {
			peak = i
		}
	}
	if n == 100 || n-1-peak != 3 || log[n].Stage != 1 {
		t.Errorf("the first stage had %d steps, its best was %d", n, peak+1)
	}
	// The second stage hardly learns: it ends with what it started from.
	if got, want := log[n].Eval.Tau, log[peak].Eval.Tau; math.Abs(got-want) > 1e-6 {
		t.Errorf("the second stage began with τ̂ %v, the best of the first was %v", got, want)
	}
	// Killed at any step, it ends the same.
	for _, stop := range []int{1, peak + 1, n - 1, n} {
		again := t.TempDir()
		ctx, report := stopAfter(stop)
		if _, err := Head(ctx, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: again, Report: report}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		r, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: again})
		if err != nil {
			t.Fatal(err)
		}
		sameFiles(t, "stopped", files(t, res.Dir), files(t, r.Dir))
	}
}

func TestOtherStagesAreAnotherRun(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	job := HeadJob{Target: target, Data: mix.Only(tinyData(t, target, 20, data.BF16)), Out: t.TempDir()}
	cfg := stagedConfig()
	if _, err := Head(context.Background(), cfg, job); err != nil {
		t.Fatal(err)
	}
	other := cfg
	other.Stages = slices.Clone(cfg.Stages)
	other.Stages[1].Loss = "talf"
	one := cfg
	one.Stages = nil
	for want, c := range map[string]Config{"loss:hass:top=3,feed=flow": other, "stages was [": one} {
		if _, err := Head(context.Background(), c, job); err == nil || !strings.Contains(err.Error(), "stages was") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// The estimate of accepted tokens equals a walk over each stored tree.
func TestTheEstimateOfTauIsAWalkOverTheTrees(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	h, tr, err := newHeadTask(cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.store.Close()
	h.params.Init(3)
	got, err := tr.evaluate(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	lm, err := target.HostLMHead()
	if err != nil {
		t.Fatal(err)
	}
	hid, k := h.meta.Hidden, h.meta.Branch
	// choices returns the head's k most likely tokens of a row.
	choices := func(level, row int) []int32 {
		f := h.eval.batch.Head.Levels[level].Out.Data()[row*hid:][:hid]
		z := make([]float64, h.meta.Vocab)
		ids := make([]int32, h.meta.Vocab)
		for v := range z {
			ids[v] = int32(v)
			for j, x := range f {
				z[v] += float64(x) * float64(lm[v*hid+j])
			}
		}
		slices.SortFunc(ids, func(a, b int32) int {
			if z[a] > z[b] {
				return -1
			}
			return 1
		})
		return ids[:k]
	}
	tau, greedy, positions, deep := 0.0, 0.0, 0, 0
	for s, err := range h.held() {
		if err != nil {
			t.Fatal(err)
		}
		r := s.Record
		feat, err := h.features(context.Background(), r, false)
		if err != nil {
			t.Fatal(err)
		}
		b := h.eval.batch
		b.Reset()
		if err := b.Add(r, feat, feat, h.limit); err != nil {
			t.Fatal(err)
		}
		for i := range h.eval.terms {
			h.eval.terms[i].Set(b.Mask[i], 1)
		}
		if err := h.eval.graph.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		// A head that chooses as the target would, with greedy paths longer than one token, is
		// constructed from the labels.
		e := h.eval
		for l, s := range b.Labels {
			e.top[l] = e.top[l][:0]
			for row := range b.Head.Levels[l].Rows.N {
				e.top[l] = append(e.top[l], s.IDs[row*s.K:][:k]...)
			}
		}
		right, rightGreedy := e.tau()
		for i := range mix.Span(r, h.limit, 0) {
			if !r.LossMask[i+2] {
				continue
			}
			positions++
			nodes := h.meta.Nodes()
			tree := (i + 1) * nodes
			chosen := choices
			var walk func(n, level, row int, greedy bool) float64
			walk = func(n, level, row int, greedy bool) (sum float64) {
				for _, x := range chosen(level, row) {
					p := 0.0
					for j := range h.meta.K {
						if r.LabelIDs[(tree+n)*h.meta.K+j] == x {
							p = float64(r.LabelProbs[(tree+n)*h.meta.K+j])
							if greedy {
								p = 0
								if j == 0 {
									p = 1
								}
							}
						}
					}
					below, seen := 0.0, 0
					for c := 1; c < nodes; c++ {
						if int(r.TreeParents[tree+c]) != n || r.TreeTokens[tree+c] != x || p == 0 {
							continue
						}
						// Rows of a level are in the order of the nodes, position by position.
						at, same := -1, 0 // the tiny data have siblings of one token
						for rr, id := range b.Head.Levels[level+1].IDs {
							if int(b.Head.Levels[level+1].From[rr]) == row && id == x {
								if at = rr; same == seen {
									break
								}
								same++
							}
						}
						seen++
						more := walk(c, level+1, at, greedy)
						if below += more; greedy && more > 0 {
							deep++
						}
					}
					sum += p * (1 + below)
				}
				return sum
			}
			tau += walk(0, 0, i, false)
			greedy += walk(0, 0, i, true)
			chosen = func(level, row int) []int32 { return e.top[level][row*k:][:k] }
			right, rightGreedy = right-walk(0, 0, i, false), rightGreedy-walk(0, 0, i, true)
		}
		if math.Abs(right) > 1e-9 || math.Abs(rightGreedy) > 1e-9 {
			t.Errorf("%s: the estimate of a head that chooses as the target would is %v and %v too high", s.Place, right, rightGreedy)
		}
	}
	tau, greedy = 1+tau/float64(positions), 1+greedy/float64(positions)
	if math.Abs(got.Tau-tau) > 1e-9 || math.Abs(got.TauGreedy-greedy) > 1e-9 || got.Positions != positions || tau < 1.05 || greedy < 1.05 {
		t.Errorf("τ̂ %v and %v over %d positions, want %v and %v over %d", got.Tau, got.TauGreedy, got.Positions, tau, greedy, positions)
	}
	if deep == 0 {
		t.Error("no greedy path is longer than a token: those are not tested")
	}
}
