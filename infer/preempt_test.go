package infer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"talf/compute"
	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/prefix"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/model/sample"
)

// pooled returns a target and a head whose KV pools have so many blocks, 0 for no bound.
func pooled(t testing.TB, targetBlocks, headBlocks int) nets {
	t.Helper()
	return pooledWith(t, targetBlocks, headBlocks, func(s *arch.Spec) *arch.Spec { return s.DraftFor(true) })
}

// pooledBlock is pooled with a block drafter that has a state for each path.
func pooledBlock(t testing.TB, targetBlocks, headBlocks int) nets {
	t.Helper()
	return pooledWith(t, targetBlocks, headBlocks, func(s *arch.Spec) *arch.Spec {
		return s.BlockFor(arch.Block{Size: 5, Taps: []int{1, 0}, Mask: 3, Shift: true, Markov: arch.RNNMarkov, Rank: 6, Confidence: true}, 2, 0)
	})
}

// pooledLinear is pooled with a block drafter without layers.
func pooledLinear(t testing.TB, targetBlocks, headBlocks int) nets {
	t.Helper()
	return pooledWith(t, targetBlocks, headBlocks, func(s *arch.Spec) *arch.Spec {
		return s.BlockFor(arch.Block{Size: 4, Taps: []int{1, s.Layers}, Shift: true, Linear: true, Markov: arch.VanillaMarkov, Rank: 6}, 0, 0)
	})
}

// kinds runs a test with the heads of each kind.
func kinds(t *testing.T, f func(t *testing.T, pooled func(t testing.TB, targetBlocks, headBlocks int) nets)) {
	t.Run("EAGLE", func(t *testing.T) { f(t, pooled) })
	t.Run("block", func(t *testing.T) { f(t, pooledBlock) })
	t.Run("linear block", func(t *testing.T) { f(t, pooledLinear) })
}

func (n nets) source(keep int) source.Keeper {
	if n.head.Spec().Block.On {
		return source.NewBlock(n.head, keep)
	}
	return source.NewHead(n.head, keep)
}

func pooledWith(t testing.TB, targetBlocks, headBlocks int, of func(*arch.Spec) *arch.Spec) nets {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	conf := modeltest.Default()
	conf.EOS = -1
	opt := model.Default()
	opt.KVBlocks = targetBlocks
	m, err := model.Load(modeltest.Random(t, conf, 3), dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	spec := of(m.Spec())
	ho := head.Default()
	ho.Model.KVBlocks = headBlocks
	h, err := head.FromTensors(spec, m, ho, modeltest.Tensors(spec, false, 3)...)
	if err != nil {
		t.Fatal(err)
	}
	return nets{m, h}
}

// A job is a request that can be made any number of times.
type job struct {
	prompt      []int32
	max         int
	seed        uint64
	temperature float64
	method      string // "": plain
	verify      string
}

func (j *job) request(t testing.TB, src infer.Source) infer.Request {
	t.Helper()
	v, err := verify.New(j.verify, j.temperature)
	if err != nil {
		t.Fatal(err)
	}
	p := sample.Default()
	p.Temperature = j.temperature
	proc, err := infer.NewSampling(p, len(j.prompt))
	if err != nil {
		t.Fatal(err)
	}
	r := infer.Request{
		Prompt: j.prompt, MaxTokens: j.max, NoEOS: true, Seed: j.seed,
		Verifier: v, Processor: proc,
	}
	if j.method != "" {
		mk, m, err := draft.Open(j.method, draft.Env{Temperature: j.temperature, Source: true})
		if err != nil {
			t.Fatal(err)
		}
		r.Drafter = mk.New()
		if m.Source || m.May {
			r.Source = src
		}
	}
	return r
}

// exact says that drafts never have a say in the output, so that it is the same without them.
func (j *job) exact() bool { return j.verify == "" }

func someJob(rng *rand.Rand, vocab int) *job {
	methods := []struct {
		spec, verify string
		temperature  float64
	}{
		{"", "", 0},
		{"", "", 1},
		{"beam:N=12,k=4,depth=3", "", 0},
		{"salf:th=0.1,N=30", "", 1},
		{"goose", "", 0},
		{"recycle", "", 0},
		{"static:binary-3,draw=distinct", "rrsw", 1},
		{"linear:draw=distinct", "block", 1},
	}
	m := methods[rng.IntN(len(methods))]
	j := &job{max: 1 + rng.IntN(40), seed: rng.Uint64(), method: m.spec, verify: m.verify, temperature: m.temperature}
	for range 1 + rng.IntN(90) {
		j.prompt = append(j.prompt, rng.Int32N(int32(vocab)))
	}
	return j
}

func allDone(seqs []*infer.Sequence) bool {
	return !slices.ContainsFunc(seqs, func(s *infer.Sequence) bool { _, done := s.Done(); return !done })
}

// outcomes decodes jobs one by one with a pool without bound.
func outcomes(t testing.TB, free nets, jobs []*job) (out []*infer.Sequence) {
	t.Helper()
	for _, j := range jobs {
		e := &infer.Engine{Target: infer.NewTarget(free.target, 0), Config: infer.Config{PrefillChunk: 256, MaxNodes: 64}}
		s, err := e.Generate(t.Context(), j.request(t, free.source(0)))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

func openAll(t testing.TB, e *infer.Engine, jobs []*job, src infer.Source) (seqs []*infer.Sequence) {
	t.Helper()
	for _, j := range jobs {
		s, err := e.Open(j.request(t, src))
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, s)
	}
	return seqs
}

// Sequences that are preempted at any time, any number of times, in rounds that are interrupted
// and with any number of rows in a pass, emit what they emit undisturbed: also where drafts are
// drawn at random.
func TestPreemptedSequencesGoOnAsIfNothingHadHappened(t *testing.T) {
	kinds(t, preemptedSequencesGoOnAsIfNothingHadHappened)
}

func preemptedSequencesGoOnAsIfNothingHadHappened(t *testing.T, pooled func(t testing.TB, targetBlocks, headBlocks int) nets) {
	n, free := pooled(t, 0, 0), pooled(t, 0, 0)
	preempted := 0
	rapid.Check(t, func(r *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 7))
		var jobs []*job
		for range 1 + rng.IntN(4) {
			jobs = append(jobs, someJob(rng, n.target.Spec().Vocab))
		}
		want := outcomes(t, free, jobs)
		keep := rng.IntN(3)
		target, src := infer.NewTarget(n.target, keep), n.source(keep)
		e := &infer.Engine{
			Target: target,
			Config: infer.Config{PrefillChunk: 1 + rng.IntN(40), MaxNodes: 64, PassRows: rng.IntN(3) * 10},
		}
		seqs := openAll(t, e, jobs, src)
		for !allDone(seqs) {
			ctx := t.Context()
			if rng.IntN(3) == 0 {
				ctx = endLate(ctx, rng.IntN(100))
			}
			if err := e.Step(ctx, seqs); err != nil && !errors.Is(err, context.Canceled) {
				r.Fatal(err)
			}
			for _, s := range seqs {
				if rng.IntN(8) == 0 && s.Stats().Preempted < 6 { // or a long prompt would never be read
					e.Preempt(s)
				}
			}
		}
		for i, s := range seqs {
			preempted += s.Stats().Preempted
			if s.Err() != nil || !slices.Equal(s.Tokens(), want[i].Tokens()) {
				r.Fatalf("%s, preempted %d times: %v, error %v; undisturbed %v", jobs[i].method, s.Stats().Preempted, s.Tokens(), s.Err(), want[i].Tokens())
			}
			// Drafters learn the same.
			if got, want := s.Stats(), want[i].Stats(); keep == 0 && (got.Drafted != want.Drafted || got.Passes != want.Passes) {
				r.Fatalf("%s, preempted %d times: %d nodes drafted in %d passes; undisturbed %d in %d",
					jobs[i].method, got.Preempted, got.Drafted, got.Passes, want.Drafted, want.Passes)
			}
			e.Close(s)
		}
		target.Prefixes().Bound(prefix.Limit{})
		src.Prefixes().Bound(prefix.Limit{})
		if u := n.target.KV().Used + n.head.KV().Used; u != 0 {
			r.Fatalf("%d blocks are in use after all is closed", u)
		}
	})
	if preempted < 100 {
		t.Errorf("%d preemptions, want more", preempted)
	}
}

// A pool that has just enough blocks for the largest request decodes any number of them at once:
// all end, with the output of a pool without bound.
func TestAPoolForOneServesMany(t *testing.T) { kinds(t, aPoolForOneServesMany) }

func aPoolForOneServesMany(t *testing.T, pooled func(t testing.TB, targetBlocks, headBlocks int) nets) {
	free := pooled(t, 0, 0)
	trials := 40
	if testing.Short() {
		trials = 8
	}
	var sum infer.Stats
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 31))
		var jobs []*job
		longest := 0
		for range 6 {
			j := someJob(rng, free.target.Spec().Vocab)
			longest = max(longest, len(j.prompt)+j.max-1)
			jobs = append(jobs, j)
		}
		want := outcomes(t, free, jobs)
		blocks := (longest + compute.BlockLen - 1) / compute.BlockLen
		headBlocks := blocks
		if trial%2 == 0 {
			headBlocks = 0
		}
		n := pooled(t, blocks, headBlocks)
		keep := trial % 3
		e := &infer.Engine{Target: asked{infer.NewTarget(n.target, keep), t}, Config: infer.Config{PrefillChunk: 1 + rng.IntN(100), MaxNodes: 64, PassRows: rng.IntN(2) * 20}}
		seqs := openAll(t, e, jobs, n.source(keep))
		for steps := 0; !allDone(seqs); steps++ {
			before := seqs[0].Stats().Tokens - seqs[0].Pending()
			if err := e.Step(t.Context(), seqs); err != nil {
				t.Fatal(err)
			}
			if after := seqs[0].Stats().Tokens - seqs[0].Pending(); after <= before {
				t.Fatalf("trial %d: the first sequence made no progress in step %d", trial, steps)
			}
			seqs = slices.DeleteFunc(seqs, func(s *infer.Sequence) bool {
				reason, done := s.Done()
				if !done {
					return false
				}
				i := slices.IndexFunc(jobs, func(j *job) bool { return &j.prompt[0] == &s.Prompt()[0] || slices.Equal(j.prompt, s.Prompt()) })
				if reason != infer.Length || jobs[i].exact() && !slices.Equal(s.Tokens(), want[i].Tokens()) {
					t.Fatalf("trial %d: %s: reason %q, error %v, %v; want %v", trial, jobs[i].method, reason, s.Err(), s.Tokens(), want[i])
				}
				sum.Add(s.Stats())
				e.Close(s)
				return true
			})
		}
	}
	t.Logf("%d preemptions; %d of %d rounds without drafts", sum.Preempted, sum.Undrafted, sum.Passes)
	if sum.Preempted < trials || sum.Undrafted < trials {
		t.Error("too little was tested")
	}
}

// A pool that holds a text but not the trees that are drawn for it ends as plain decoding, and asks passes for no more tokens than
// those have rows.
func TestAPoolTooSmallForDrawnTrees(t *testing.T) {
	n := pooled(t, 1, 0)
	j := &job{prompt: []int32{1, 2, 3}, max: compute.BlockLen - 2, seed: 5, method: "static:binary-3,draw=distinct", verify: "rrsw", temperature: 1}
	e := &infer.Engine{Target: asked{infer.NewTarget(n.target, 0), t}, Config: infer.Config{PrefillChunk: 16, MaxNodes: 64}}
	s, err := e.Generate(t.Context(), j.request(t, source.NewHead(n.head, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if reason, _ := s.Done(); reason != infer.Length || s.Stats().Undrafted == 0 {
		t.Errorf("reason %q, error %v, %+v", reason, s.Err(), s.Stats())
	}
}

// Where drafts are drawn at random, too, a text depends on its seed alone, and not on the pools and on who else is served, as long
// as the pools can hold it and its trees.
func TestDrawnDraftsDependOnNoPool(t *testing.T) { kinds(t, drawnDraftsDependOnNoPool) }

func drawnDraftsDependOnNoPool(t *testing.T, pooled func(t testing.TB, targetBlocks, headBlocks int) nets) {
	free := pooled(t, 0, 0)
	trials := 40
	enough := trials
	if testing.Short() {
		trials, enough = 8, 1
	}
	var sum infer.Stats
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 32))
		var jobs []*job
		longest := 0
		for range 6 {
			j := someJob(rng, free.target.Spec().Vocab)
			longest = max(longest, len(j.prompt)+j.max-1)
			jobs = append(jobs, j)
		}
		want := outcomes(t, free, jobs)
		// A tree of at most 15 nodes begins in a block of its own.
		blocks := (longest+compute.BlockLen-1)/compute.BlockLen + 1
		n := pooled(t, [3]int{0, blocks, blocks}[trial%3], [3]int{blocks, 0, blocks}[trial%3])
		keep := trial % 2
		e := &infer.Engine{Target: asked{infer.NewTarget(n.target, keep), t}, Config: infer.Config{PrefillChunk: 1 + rng.IntN(100), MaxNodes: 64, PassRows: rng.IntN(2) * 20}}
		seqs := openAll(t, e, jobs, n.source(keep))
		for step := 0; !allDone(seqs); step++ {
			if step == 10000 {
				t.Fatalf("trial %d does not end", trial)
			}
			if err := e.Step(t.Context(), seqs); err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range seqs {
			if s.Err() != nil || !slices.Equal(s.Tokens(), want[i].Tokens()) {
				t.Fatalf("trial %d: %s: error %v, %v; want %v", trial, jobs[i].method, s.Err(), s.Tokens(), want[i].Tokens())
			}
			if !jobs[i].exact() {
				sum.Add(s.Stats())
			}
			e.Close(s)
		}
	}
	t.Logf("%d preemptions; %d of %d rounds without drafts", sum.Preempted, sum.Undrafted, sum.Passes)
	if sum.Preempted < enough {
		t.Error("too little was tested")
	}
}

// A request that the pool cannot hold ends alone, with a typed error.
func TestARequestThatNeverFitsEndsAlone(t *testing.T) {
	n := pooled(t, 3, 0)
	e := &infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Default()}
	large, small := plainRequest(t, make([]int32, 90)...), plainRequest(t, 1, 2, 3)
	large.MaxTokens, large.NoEOS = 20, true
	var seqs []*infer.Sequence
	for _, r := range []infer.Request{large, small} {
		s, err := e.Open(r)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, s)
	}
	for range 40 {
		if err := e.Step(t.Context(), seqs); err != nil {
			t.Fatal(err)
		}
	}
	if r, _ := seqs[0].Done(); r != infer.Failed || !errors.Is(seqs[0].Err(), model.ErrKVFull) || len(seqs[0].Tokens()) != 7 {
		t.Errorf("the large request: reason %q, error %v, %d tokens; want 7, with which the pool is full", r, seqs[0].Err(), len(seqs[0].Tokens()))
	}
	if r, _ := seqs[1].Done(); r != infer.Length {
		t.Errorf("the small request: reason %q, error %v", r, seqs[1].Err())
	}
}
