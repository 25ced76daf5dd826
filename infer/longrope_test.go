package infer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/prefix"
	"talf/infer/source"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/modeltest"
)

// rereads continues a prompt as the definition has it: every token is the likeliest after a pass over the whole text, token by
// token, with the rotation of a text of its length.
func rereads(t *testing.T, m *model.Model, prompt []int32, n int) []int32 {
	t.Helper()
	text := slices.Clone(prompt)
	row := make([]float32, m.Spec().Vocab)
	for range n {
		s := m.NewSeqOf(len(text))
		for i := range text {
			o, err := s.Append(t.Context(), text[i:i+1], nil, model.WantLast)
			if err != nil {
				t.Fatal(err)
			}
			o.ReadLogits(row, 0)
		}
		s.Close()
		best := 0
		for i, x := range row {
			if x > row[best] {
				best = i
			}
		}
		text = append(text, int32(best))
	}
	return text[len(prompt):]
}

// Texts that cross the length at which longrope turns all positions otherwise are those of passes over the whole text,
// whatever drafts them, with heads of either kind, several at once, at every length of the prompt around the switch, in chunks and
// after kept prefixes of both kinds.
func TestTextsAcrossTheSwitchOfLongrope(t *testing.T) {
	const at = 24
	conf := modeltest.Of("phi3")
	conf.Window, conf.Original, conf.EOS = 0, at, -1
	dir := modeltest.Random(t, conf, 5)
	open := func(threads int) *model.Model {
		dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		m, err := model.Load(dir, dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	oracle := open(1)
	want := map[string][]int32{}
	rng := rand.New(rand.NewPCG(11, 4))
	text := make([]int32, 3*at)
	for i := range text {
		text[i] = rng.Int32N(int32(conf.Vocab))
	}
	lengths := []int{1, at - 9, at - 2, at - 1, at, at + 1, at + 2, 2 * at}
	const tokens = 14
	for _, n := range lengths {
		want[fmt.Sprint(n)] = rereads(t, oracle, text[:n], tokens)
	}
	methods := []string{"", "pld", "recycle", "lookahead", "goose:N=8", "linear:K=6", "static:kary-2-4", "beam:N=20,k=4,depth=5", "salf:th=0.1,N=24", "auto"}
	if testing.Short() {
		methods = []string{"", "recycle", "beam:N=20,k=4,depth=5", "auto"}
	}
	accepted, cached := 0, 0
	for name, network := range map[string]func(*arch.Spec) *arch.Spec{
		"EAGLE":   func(s *arch.Spec) *arch.Spec { return s.DraftFor(true) },
		"EAGLE-3": func(s *arch.Spec) *arch.Spec { return s.Eagle3For([]int{0, 1, s.Layers}, 0) },
	} {
		m := open(2)
		spec := network(m.Spec())
		h, err := head.FromTensors(spec, m, head.Default(), modeltest.Tensors(spec, false, 5)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range methods {
			for _, c := range []infer.Config{{PrefillChunk: 256, MaxNodes: 64}, {PrefillChunk: 5, MaxNodes: 64, PassRows: 20}} {
				e := &infer.Engine{Target: infer.NewTarget(m, 16), Config: c}
				src := source.NewHead(h, 16)
				for turn := range 2 { // the second finds the first's prefixes
					var jobs []*job
					for _, n := range lengths {
						jobs = append(jobs, &job{prompt: text[:n], max: tokens, method: method})
					}
					seqs := openAll(t, e, jobs, src)
					for !allDone(seqs) {
						if err := e.Step(t.Context(), seqs); err != nil {
							t.Fatal(err)
						}
					}
					for i, s := range seqs {
						n := lengths[i]
						if s.Err() != nil || !slices.Equal(s.Tokens(), want[fmt.Sprint(n)]) {
							t.Errorf("%s, %q, %+v, turn %d, a prompt of %d: %v, error %v; want %v", name, method, c, turn, n, s.Tokens(), s.Err(), want[fmt.Sprint(n)])
						}
						st := s.Stats()
						if turn == 1 {
							cached += st.Cached
						}
						accepted += st.Tokens - st.Passes
						if st.Preempted > 0 {
							t.Errorf("%d preemptions are counted", st.Preempted)
						}
						e.Close(s)
					}
				}
			}
		}
	}
	if accepted == 0 || cached < 10*at {
		t.Errorf("%d drafted tokens were accepted, %d of prompts were kept: too little was tested", accepted, cached)
	}
}

// Recordings take a target's texts up to where they would be read again.
func TestShapesWithoutASwitchEndThere(t *testing.T) {
	for _, c := range [][2]infer.Shape{
		{{MaxLen: 100, Switch: 40}, {MaxLen: 40}},
		{{MaxLen: 30, Switch: 40}, {MaxLen: 30}},
		{{MaxLen: 100}, {MaxLen: 100}},
	} {
		if got := c[0].Unswitched(); got.MaxLen != c[1].MaxLen || got.Switch != 0 {
			t.Errorf("%+v becomes %+v, want %+v", c[0], got, c[1])
		}
	}
}

// switching returns a target that turns all positions of texts of more than at tokens otherwise, with so many KV blocks (0 for no
// bound), and a head.
func switching(t testing.TB, at, blocks int) nets {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	conf := modeltest.Of("phi3")
	conf.Window, conf.Original, conf.EOS = 0, at, -1
	opt := model.Default()
	opt.KVBlocks = blocks
	m, err := model.Load(modeltest.Random(t, conf, 5), dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	spec := m.Spec().DraftFor(true)
	h, err := head.FromTensors(spec, m, head.Default(), modeltest.Tensors(spec, false, 3)...)
	if err != nil {
		t.Fatal(err)
	}
	return nets{m, h}
}

// Texts that cross the switch emit what they emit alone and undisturbed, also if they are preempted, interrupted or short of memory
// while they are read again, sampled and with drafts drawn at random. A full pool may take drawn drafts from a round.
func TestTextsAcrossTheSwitchAreDisturbed(t *testing.T) {
	trials := 40
	if testing.Short() {
		trials = 8
	}
	for _, blocks := range []int{0, 12} {
		n, free := switching(t, 40, blocks), switching(t, 40, 0)
		preempted, again := 0, 0
		for trial := range trials {
			rng := rand.New(rand.NewPCG(uint64(trial), 77))
			var jobs []*job
			for range 1 + rng.IntN(4) {
				jobs = append(jobs, someJob(rng, n.target.Spec().Vocab))
			}
			want := outcomes(t, free, jobs)
			target, src := infer.NewTarget(n.target, 3), source.NewHead(n.head, 3)
			e := &infer.Engine{
				Target: target,
				Config: infer.Config{PrefillChunk: 1 + rng.IntN(30), MaxNodes: 64, PassRows: rng.IntN(2) * 40},
			}
			seqs := openAll(t, e, jobs, src)
			for !allDone(seqs) {
				ctx := t.Context()
				if rng.IntN(3) == 0 {
					ctx = endLate(ctx, rng.IntN(100))
				}
				if err := e.Step(ctx, seqs); err != nil && ctx.Err() == nil {
					t.Fatal(err)
				}
				for _, s := range seqs {
					if s.Stats().Tokens > 1 && s.Pending() > 0 && !s.Preempted() {
						again++
					}
					if rng.IntN(8) == 0 && s.Stats().Preempted < 6 {
						e.Preempt(s)
					}
				}
			}
			for i, s := range seqs {
				preempted += s.Stats().Preempted
				if s.Err() != nil || (blocks == 0 || jobs[i].exact()) && !slices.Equal(s.Tokens(), want[i].Tokens()) {
					t.Errorf("trial %d, %d blocks, %q: %v, error %v; want %v", trial, blocks, jobs[i].method, s.Tokens(), s.Err(), want[i].Tokens())
				}
				e.Close(s)
			}
			target.Prefixes().Bound(prefix.Limit{})
			src.Prefixes().Bound(prefix.Limit{})
			if u := n.target.KV().Used + n.head.KV().Used; u != 0 {
				t.Fatalf("%d blocks are in use after all is closed", u)
			}
		}
		if preempted < trials || again < trials {
			t.Errorf("%d blocks: %d preemptions, %d steps in the midst of reading again: too little was tested", blocks, preempted, again)
		}
	}
}

// A witness notes what its drafter is told before each round.
type witness struct {
	infer.Drafter
	told []infer.Proposal
}

func (w *witness) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	if rows == nil {
		w.told = append(w.told, *p)
	}
	return w.Drafter.Grow(p, rows, c)
}

// A drafter is told how deep a tree may be before the switch, which is less than what the sequence may still emit.
func TestWhatDraftersAreToldAtTheSwitch(t *testing.T) {
	const at, prompt, most = 40, 30, 25
	n := switching(t, at, 0)
	e := &infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Config{PrefillChunk: 7, MaxNodes: 8}}
	r := (&job{prompt: make([]int32, prompt), max: most, method: "pld"}).request(t, nil)
	w := &witness{Drafter: r.Drafter}
	r.Drafter = w
	if _, err := e.Generate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	long := 0
	for _, p := range w.told {
		left, depth := prompt+most-p.Pos-1, prompt+most-p.Pos-2
		if p.Pos < at {
			depth = min(depth, at-1-p.Pos)
		} else {
			long++
		}
		if p.Left != left || p.MaxDepth != depth {
			t.Errorf("at position %d: %d left, depth %d; want %d, %d", p.Pos, p.Left, p.MaxDepth, left, depth)
		}
	}
	if long == 0 || long == len(w.told) {
		t.Errorf("%d of %d rounds were of a long text", long, len(w.told))
	}
}
