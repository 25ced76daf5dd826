package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"talf/checkpoints"
	"talf/data"
	"talf/train/dist"
	"talf/train/mix"
)

// A ranked run is one of n ranks, each with a device, a target and data of its own, as
// processes would have.
type ranked struct {
	t    testing.TB
	cfg  Config // Accum is of all ranks together
	data string // directory
	out  string
	// job, if not nil, changes a rank's job.
	job func(rank int, j *HeadJob)
	// ctx, if not nil, returns a rank's context.
	ctx func(rank int) context.Context
}

// run trains on n ranks and returns each one's result; n = 0 is a run without a group.
func (r ranked) run(n int) ([]Result, []error) {
	r.t.Helper()
	group := dist.Local(max(n, 1), nil)
	res, errs := make([]Result, len(group)), make([]error, len(group))
	var wg sync.WaitGroup
	for i, m := range group {
		target := tinyTarget(r.t, device(r.t, 1))
		set, err := data.Open(r.data)
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { set.Close() })
		job := HeadJob{Target: target, Data: mix.Only(set), Out: r.out, Group: m}
		if n == 0 {
			job.Group = nil
		}
		cfg := r.cfg
		ctx := r.t.(*testing.T).Context()
		if r.ctx != nil {
			ctx = r.ctx(i)
		}
		if r.job != nil {
			r.job(i, &job)
		}
		wg.Go(func() { res[i], errs[i] = Head(ctx, cfg, job) })
	}
	wg.Wait()
	return res, errs
}

// ready makes launch run an existing trainer.
func ready(t *trainer) func() (*trainer, error) {
	return func() (*trainer, error) { return t, nil }
}

// trains is run without errors.
func (r ranked) trains(n int) []Result {
	r.t.Helper()
	res, errs := r.run(n)
	if err := errors.Join(errs...); err != nil {
		r.t.Fatalf("%d ranks: %v", n, err)
	}
	return res
}

// newRanked returns data for ranks that train on a few batches per step.
func newRanked(t testing.TB, accum int) ranked {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	tinyDataIn(t, dir, tinyTarget(t, device(t, 1)), 40, data.BF16)
	cfg := tinyConfig()
	cfg.Accum, cfg.Noise, cfg.EvalEvery, cfg.SaveEvery, cfg.Keep = accum, 0.01, 5, 5, 0
	return ranked{t: t, cfg: cfg, data: dir, out: filepath.Join(t.TempDir(), "run")}
}

// weightsOf reads the weights of a run's last checkpoint.
func weightsOf(t testing.TB, out string) map[string][]float32 {
	t.Helper()
	dir, err := checkpoints.Find(out)
	if err != nil {
		t.Fatal(err)
	}
	s, err := checkpoints.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := map[string][]float32{}
	for _, name := range s.Weights.Names() {
		x, err := s.Weights.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = x.Float32s(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// apart returns the largest difference between two runs' weights, relative to the largest weight
// of the tensor.
func apart(t testing.TB, a, b map[string][]float32) (worst float64) {
	t.Helper()
	if len(a) != len(b) || len(a) == 0 {
		t.Fatalf("%d tensors and %d", len(a), len(b))
	}
	for name, x := range a {
		size, diff := 0.0, 0.0
		for i, v := range x {
			size = max(size, math.Abs(float64(v)))
			diff = max(diff, math.Abs(float64(v-b[name][i])))
		}
		worst = max(worst, diff/size)
	}
	return worst
}

// Ranks make the same steps as one process that runs their batches one after another. With one
// batch each, added in the order of the ranks, they have the same bits; with more, the sums are
// rounded differently.
func TestRanksMakeTheStepsOfOneProcess(t *testing.T) {
	for _, c := range []struct {
		loss         string
		network      string
		accum, ranks int
		steps        int
		tolerance    float64
	}{
		{"talf", "", 2, 2, 50, 0},
		{"eagle", "", 4, 2, 50, 1e-6},
		{"hass:top=2", "", 3, 3, 10, 0},
		{"dspark", "block:size=3,taps=0+1,shift=on,markov=vanilla,rank=4,confidence=on", 2, 2, 10, 0},
	} {
		if testing.Short() {
			c.steps = 6
		}
		r := newRanked(t, c.accum)
		r.cfg.Loss, r.cfg.Network, r.cfg.Steps = c.loss, c.network, c.steps
		r.cfg.LR = 1e-3
		many, one := r, r
		one.out += "-one"
		got, want := many.trains(c.ranks), one.trains(0)[0]
		what := fmt.Sprintf("%s, %d ranks", c.loss, c.ranks)
		d := apart(t, weightsOf(t, many.out), weightsOf(t, one.out))
		t.Logf("%s: weights apart by %.2g after %d steps", what, d, c.steps)
		if d > c.tolerance {
			t.Errorf("%s: weights differ by %g, want at most %g", what, d, c.tolerance)
		}
		for rank, g := range got {
			if rank > 0 && (g.Dir != "" || g.Best != "") {
				t.Errorf("%s: rank %d names checkpoints: %+v", what, rank, g)
			}
			if !g.Done || g.Step != c.steps || math.Abs(g.Loss-want.Loss) > c.tolerance*want.Loss || math.Abs(g.Eval.Tau-want.Eval.Tau) > c.tolerance {
				t.Errorf("%s: rank %d: %+v %+v, one process: %+v %+v", what, rank, g, g.Eval, want, want.Eval)
			}
		}
		if c.tolerance > 0 {
			continue
		}
		// Checkpoints are also those of one process, and so is the log.
		sameFiles(t, what, files(t, many.out), files(t, one.out))
		a, b := logOf(t, many.out), logOf(t, one.out)
		for i := range a {
			a[i].Seconds, b[i].Seconds = 0, 0
			if !reflect.DeepEqual(a[i], b[i]) {
				t.Errorf("%s: step %d of the logs: %+v and %+v", what, i+1, a[i], b[i])
			}
		}
	}
}

// A run continues with any number of ranks that keeps its steps; otherwise it is refused with an
// error that says what must stay the same.
func TestARunContinuesWithOtherRanks(t *testing.T) {
	r := newRanked(t, 4)
	whole, parts := r, r
	whole.cfg.Steps, whole.out = 8, r.out+"-whole"
	parts.cfg.Steps = 8
	whole.trains(0)
	for i, n := range []int{4, 1, 2, 0} {
		ctx, cancel := context.WithCancel(t.Context())
		parts.ctx = func(int) context.Context { return ctx }
		parts.job = func(rank int, j *HeadJob) {
			if rank == 0 {
				j.Report = func(p Progress) {
					if p.Step == 2*i+2 && i < 3 {
						cancel() // all ranks hear of it
					}
				}
			}
		}
		_, errs := parts.run(n)
		for rank, err := range errs {
			if (i < 3) != errors.Is(err, context.Canceled) || i == 3 && err != nil {
				t.Fatalf("%d ranks: rank %d: %v", n, rank, err)
			}
		}
		cancel()
	}
	if d := apart(t, weightsOf(t, whole.out), weightsOf(t, parts.out)); d > 1e-6 {
		t.Errorf("weights differ by %g", d)
	}
	parts.cfg.Accum, parts.ctx, parts.job = 6, nil, nil
	for n, want := range map[int]string{
		3: "a step had 4 batches of all ranks together, now 6, of 3 ranks with 2 each; ranks × accum may be 1 × 4, 2 × 2, 4 × 1",
		0: "a step had 4 batches of all ranks together, now 6; ranks × accum may be",
		4: "accum is 6, want a multiple of the 4 ranks",
	} {
		_, errs := parts.run(n)
		for rank, err := range errs {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%d ranks with 6 batches: rank %d: %v, want %q in it", n, rank, err, want)
			}
		}
	}
}

// One rank that is interrupted stops all after the same step, with one checkpoint.
func TestOneInterruptedRankStopsAll(t *testing.T) {
	for _, who := range []int{0, 1} {
		r := newRanked(t, 2)
		r.cfg.Steps, r.cfg.SaveEvery, r.cfg.EvalEvery = 1000, 0, 0
		ctx, cancel := context.WithCancel(t.Context())
		r.ctx = func(rank int) context.Context {
			if rank == who {
				return ctx
			}
			return t.Context()
		}
		r.job = func(rank int, j *HeadJob) {
			if rank == who {
				j.Report = func(p Progress) {
					if p.Step == 3 {
						cancel()
					}
				}
			}
		}
		res, errs := r.run(2)
		for rank, err := range errs {
			if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "\n") || res[rank].Step != 3 {
				t.Errorf("rank %d was interrupted; rank %d: %v after step %d", who, rank, err, res[rank].Step)
			}
		}
		if steps, err := filepath.Glob(filepath.Join(r.out, "step-*")); err != nil || len(steps) != 1 || steps[0] != res[0].Dir {
			t.Errorf("checkpoints %v, want %s alone: %v", steps, res[0].Dir, err)
		}
		cancel()
	}
}

// If a rank dies, the others wait until they are told to stop: the first saves what was learned,
// and the error names the missing rank.
func TestALostRankEndsTheRunWithACheckpoint(t *testing.T) {
	for _, dies := range []int{1, 0} {
		r := newRanked(t, 2)
		r.cfg.Steps, r.cfg.SaveEvery, r.cfg.EvalEvery = 1000, 2, 0
		group := dist.Local(2, nil)
		ctx, cancel := context.WithCancel(t.Context())
		died := make(chan struct{})
		errs := make(chan error, 1)
		var res Result
		for rank, m := range group {
			set, err := data.Open(r.data)
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			job := HeadJob{Target: tinyTarget(t, device(t, 1)), Data: mix.Only(set), Out: r.out, Group: m}
			if rank == dies {
				job.Report = func(p Progress) {
					if p.Step == 5 {
						m.Leave()
						close(died)
						<-t.Context().Done() // as good as dead
						runtime.Goexit()
					}
				}
			}
			_, tr, err := newHeadTask(r.cfg, job)
			if err != nil {
				t.Fatal(err)
			}
			tr.peers.Grace = 50 * time.Millisecond
			go func() {
				re, err := launch(ctx, m, ready(tr))
				if rank != dies {
					res = re
					errs <- err
				}
			}()
		}
		<-died
		cancel() // what mpirun's SIGTERM does
		err := <-errs
		if !errors.Is(err, dist.ErrLost) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d has ended", dies)) {
			t.Errorf("rank %d died: %v", dies, err)
		}
		want := map[int]int{1: 5, 0: 4}[dies] // rank 0 saves; if it died, its last checkpoint stays
		if dies == 1 && res.Dir == "" {
			t.Error("no checkpoint is named")
		}
		dir, err := checkpoints.Find(r.out)
		if err != nil {
			t.Fatal(err)
		}
		s, err := checkpoints.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if s.Manifest.Step != want {
			t.Errorf("rank %d died: the last checkpoint is of step %d, want %d", dies, s.Manifest.Step, want)
		}
		s.Close()
	}
}

// A quitter dies when the ranks compare their weights before a checkpoint, after the given
// number of such comparisons.
type quitter struct {
	*dist.Member
	left int
	quit func()
}

func (q *quitter) Gather(ctx context.Context, msg []byte) ([][]byte, error) {
	if bytes.Contains(msg, []byte(`"body":["`)) {
		if q.left--; q.left == 0 {
			q.quit()
		}
	}
	return q.Member.Gather(ctx, msg)
}

// A rank that dies between a step and its checkpoint does not lose the step.
func TestARankLostBeforeACheckpointCostsNoStep(t *testing.T) {
	r := newRanked(t, 2)
	r.cfg.Steps, r.cfg.SaveEvery, r.cfg.EvalEvery = 1000, 2, 0
	group := dist.Local(2, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type end struct {
		res Result
		err error
	}
	ends := make(chan end, 1)
	for rank, m := range group {
		set, err := data.Open(r.data)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		job := HeadJob{Target: tinyTarget(t, device(t, 1)), Data: mix.Only(set), Out: r.out, Group: m}
		var g dist.Group = m
		if rank == 1 {
			// Configurations, the initial weights, those of step 2, and those of step 4.
			g = &quitter{m, 4, func() {
				m.Leave()
				cancel()
				<-t.Context().Done() // as good as dead
				runtime.Goexit()
			}}
			job.Group = g
		}
		_, tr, err := newHeadTask(r.cfg, job)
		if err != nil {
			t.Fatal(err)
		}
		tr.peers.Grace = 50 * time.Millisecond
		go func() {
			res, err := launch(ctx, g, ready(tr))
			ends <- end{res, err}
		}()
	}
	e := <-ends
	if !errors.Is(e.err, dist.ErrLost) || !strings.Contains(e.err.Error(), "save step 4: ") || !strings.Contains(e.err.Error(), "rank 1 has ended") || strings.Contains(e.err.Error(), "\n") {
		t.Errorf("rank 1 died: %v", e.err)
	}
	dir, err := checkpoints.Find(r.out)
	if err != nil {
		t.Fatal(err)
	}
	s, err := checkpoints.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Manifest.Step != 4 || e.res.Dir != dir {
		t.Errorf("the last checkpoint is %s, named %q, want step 4", dir, e.res.Dir)
	}
}

// A hooked member calls a function after every message.
type hooked struct {
	*dist.Member
	after func()
}

func (h hooked) Gather(ctx context.Context, msg []byte) ([][]byte, error) {
	got, err := h.Member.Gather(ctx, msg)
	h.after()
	return got, err
}

// If rank 0 cannot record something after the very last step, all ranks report it.
func TestABestThatCannotBeMarkedIsReportedAtTheEnd(t *testing.T) {
	r := newRanked(t, 2)
	r.cfg.Steps, r.cfg.SaveEvery, r.cfg.EvalEvery = 2, 0, 0 // evaluated and saved once, at the end
	r.job = func(rank int, j *HeadJob) {
		if rank != 0 {
			return
		}
		j.Group = hooked{j.Group.(*dist.Member), func() {
			if _, err := os.Stat(filepath.Join(r.out, "step-00000002", checkpoints.ManifestFile)); err != nil {
				return
			}
			if err := os.MkdirAll(filepath.Join(r.out, checkpoints.BestFile, "in the way"), 0o777); err != nil {
				t.Error(err)
			}
		}}
	}
	res, errs := r.run(2)
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "checkpoints: best: ") || strings.Contains(err.Error(), "\n") || res[rank].Done {
			t.Errorf("rank %d: %v, done: %v", rank, err, res[rank].Done)
		}
	}
	if _, err := os.Stat(filepath.Join(r.out, "step-00000002", checkpoints.ManifestFile)); err != nil {
		t.Error(err)
	}
}

// An error on one rank stops all of them with the same message.
func TestAnErrorOfOneRankIsEveryones(t *testing.T) {
	r := newRanked(t, 2)
	r.cfg.Steps = 4
	set, err := data.Open(r.data)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	poisoned := rewrite(t, set, func(_ int, rec *data.Record) {
		data.AppendBF16(rec.Features[:6], []float32{float32(math.Inf(1))})
	})
	other := tinyData(t, tinyTarget(t, device(t, 1)), 11, data.BF16)
	gone := filepath.Join(t.TempDir(), "gone")
	for name, c := range map[string]struct {
		job  func(rank int, j *HeadJob)
		want string
	}{
		"data": {func(rank int, j *HeadJob) {
			if rank == 1 {
				j.Data = mix.Only(other)
			}
		}, "rank 1 has other target, data or sizes than rank 0"},
		"initial head": {func(rank int, j *HeadJob) {
			if rank == 1 {
				j.Init = gone
			}
		}, "rank 1: initial head: "},
		"output": {func(_ int, j *HeadJob) {
			j.Out = filepath.Join(gone, "\x00")
		}, "rank 0: "},
		"no data": {func(rank int, j *HeadJob) {
			if rank == 1 {
				j.Data = nil
			}
		}, "rank 1: train: no data"},
	} {
		bad := r
		bad.job, bad.out = c.job, filepath.Join(t.TempDir(), "run")
		_, errs := bad.run(2)
		for rank, err := range errs {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: rank %d: %v, want %q in it", name, rank, err, c.want)
			}
		}
	}
	// Non-finite values that all ranks have are named once, wherever they occur.
	bad := r
	bad.job = func(_ int, j *HeadJob) { j.Data = mix.Only(poisoned) }
	bad.out = filepath.Join(t.TempDir(), "run")
	_, errs := bad.run(2)
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "first in the input feature, row 0: +Inf, with ") || err.Error() != errs[0].Error() {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if ms, _ := filepath.Glob(filepath.Join(bad.out, "step-*")); len(ms) > 0 {
		t.Errorf("checkpoints %v of a run that diverged", ms)
	}
}

// Early stops and best checkpoints are decided alike on all ranks: a run with patience and two
// stages has the files of one process.
func TestRanksStopEarlyTogether(t *testing.T) {
	r := newRanked(t, 2)
	r.cfg.EvalEvery, r.cfg.Patience, r.cfg.LR = 1, 2, 0.1
	r.cfg.Stages = []Stage{{Loss: "eagle", Steps: 30, LR: 0.1}, {Loss: "talf", Steps: 4, LR: 1e-3}}
	many, one := r, r
	one.out += "-one"
	got, want := many.trains(2), one.trains(0)[0]
	if got[0].Step != got[1].Step || got[0].Step != want.Step || want.Step >= 34 || filepath.Base(got[0].Best) != filepath.Base(want.Best) {
		t.Errorf("%+v, want %+v before step 34", got, want)
	}
	sameFiles(t, "with patience", files(t, many.out), files(t, one.out))
}

// Ranks whose weights have diverged are stopped before they save.
func TestWeightsThatDivergeAreNoticed(t *testing.T) {
	r := newRanked(t, 2)
	group := dist.Local(2, nil)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for rank, m := range group {
		set, err := data.Open(r.data)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		job := HeadJob{Target: tinyTarget(t, device(t, 1)), Data: mix.Only(set), Out: r.out, Group: m}
		h, tr, err := newHeadTask(r.cfg, job)
		if err != nil {
			t.Fatal(err)
		}
		if rank == 1 {
			tr.report = func(p Progress) {
				if p.Step == 2 {
					h.params.Tensors()[3].Data[1] += 1e-7
				}
			}
		}
		wg.Go(func() { _, errs[rank] = launch(t.Context(), m, ready(tr)) })
	}
	wg.Wait()
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "save step 5: rank 1 has other weights than rank 0") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if steps, _ := filepath.Glob(filepath.Join(r.out, "step-*")); len(steps) > 0 {
		t.Errorf("saved %v", steps)
	}
}

// The ranks of a language model are also equal to one process.
func TestRanksTrainALanguageModel(t *testing.T) {
	docs := make([][]int32, 40)
	for i := range docs {
		for j := range 12 + i%9 {
			docs[i] = append(docs[i], int32((i*7+j*j)%40))
		}
	}
	cfg := tinyConfig()
	cfg.Accum, cfg.Steps = 2, 4
	run := func(out string, g dist.Group) error {
		_, err := LM(t.Context(), cfg, LMJob{Device: device(t, 1), Spec: tinySpec(), Docs: docs, Window: 24, Out: out, Group: g})
		return err
	}
	one, many := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "many")
	if err := run(one, nil); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for rank, m := range dist.Local(2, nil) {
		wg.Go(func() { errs[rank] = run(many, m) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, "language model", files(t, one), files(t, many))
}
