package infer_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/prefix"
	"talf/infer/source"
	"talf/internal/demo"
	"talf/internal/e2e/talftest"
	"talf/model"
	"talf/model/modeltest"
	"talf/text/tokenizer"
)

// Dialogues over a target with recurrent layers, or with windows in some layers, drafted by the same model, by tables or not at all, several at once
// in a small pool, preempted and continued from kept prefixes, are those of plain decoding. A prefix is used up to
// where there is a state or a window, and all of these are given back. So are dialogues that grow beyond the length at which
// longrope turns all positions otherwise.
func TestDialoguesAreThoseOfPlainDecodingWhereverTheyGoOn(t *testing.T) {
	windows := modeltest.Of("gemma3_text")
	windows.Layers = 5 // in as many groups with blocks of their own
	t.Run("recurrent layers", func(t *testing.T) { dialogues(t, modeltest.Of("qwen3_next"), 30) })
	t.Run("windows", func(t *testing.T) { dialogues(t, windows, 90) })
	long := modeltest.Of("phi3")
	long.Original = 70 // turns begin on either side
	t.Run("longrope and windows", func(t *testing.T) { dialogues(t, long, 60) })
	long.Window = 0
	t.Run("longrope", func(t *testing.T) { dialogues(t, long, 60) })
}

func dialogues(t *testing.T, conf modeltest.Config, blocks int) {
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	conf.Vocab, conf.EOS = demo.VocabSize, -1
	dir := talftest.TinyModel(t, conf, 3)
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	vocab, err := source.NewVocab(tok, tok, conf.Vocab, conf.Vocab)
	if err != nil {
		t.Fatal(err)
	}
	open := func(blocks int) *model.Model {
		opt := model.Default()
		opt.KVBlocks = blocks
		m, err := model.Load(dir, dev, opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	free := open(0)
	trials := 6
	if testing.Short() {
		trials = 2
	}
	var sum infer.Stats
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 41))
		m, small := open(blocks), open(0)
		target, src := infer.NewTarget(m, 4), source.NewLM(small, vocab, 4)
		e := &infer.Engine{Target: target, Config: infer.Config{PrefillChunk: 1 + rng.IntN(60), MaxNodes: 64, PassRows: rng.IntN(2) * 20}}
		prompts := make([][]int32, 4)
		for i := range prompts {
			prompts[i] = make([]int32, 1+rng.IntN(100))
			for k := range prompts[i] {
				prompts[i][k] = rng.Int32N(int32(conf.Vocab))
			}
		}
		for turn := range 4 {
			var jobs []*job
			for i := range prompts {
				jobs = append(jobs, &job{
					prompt: prompts[i], max: 1 + rng.IntN(30), seed: rng.Uint64(), temperature: float64(rng.IntN(2)),
					method: []string{"", "pld", "recycle", "beam:N=12,k=4,depth=3", "salf:th=0.1,N=30"}[rng.IntN(5)],
				})
			}
			seqs := openAll(t, e, jobs, src)
			for !allDone(seqs) {
				if err := e.Step(t.Context(), seqs); err != nil {
					t.Fatal(err)
				}
				for _, s := range seqs {
					if rng.IntN(12) == 0 && s.Stats().Preempted < 4 {
						e.Preempt(s)
					}
				}
			}
			for i, s := range seqs {
				j := *jobs[i]
				j.method = ""
				alone := &infer.Engine{Target: infer.NewTarget(free, 0), Config: infer.Default()}
				want, err := alone.Generate(t.Context(), j.request(t, nil))
				if err != nil {
					t.Fatal(err)
				}
				if s.Err() != nil || !slices.Equal(s.Tokens(), want.Tokens()) {
					t.Fatalf("trial %d, turn %d, %q, %d tokens kept, preempted %d times: %v, error %v; want %v",
						trial, turn, jobs[i].method, s.Stats().Cached, s.Stats().Preempted, s.Tokens(), s.Err(), want.Tokens())
				}
				sum.Add(s.Stats())
				// The next turn goes on from all, or from some of it.
				said := slices.Concat(prompts[i], s.Tokens())
				prompts[i] = append(said[:len(said)-rng.IntN(2)*rng.IntN(len(said))], rng.Int32N(int32(conf.Vocab)))
				e.Close(s)
			}
		}
		target.Prefixes().Bound(prefix.Limit{})
		src.Prefixes().Bound(prefix.Limit{})
		if u := m.KV().Used + small.KV().Used; u != 0 {
			t.Fatalf("trial %d: %d blocks are in use after all is closed", trial, u)
		}
	}
	t.Logf("%d of %d tokens of prompts were kept, %d preemptions, %d tokens in %d passes", sum.Cached, sum.Prompt, sum.Preempted, sum.Tokens, sum.Passes)
	if sum.Cached == 0 || sum.Preempted < trials || sum.Passes == sum.Tokens {
		t.Error("too little was tested")
	}
}
