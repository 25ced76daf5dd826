package infer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
)

var errMemory = errors.New("no memory")

// A scarce device refuses about every third request for memory.
type scarce struct {
	compute.Device
	rng     *rand.Rand // nil: never
	refused int
}

func (d *scarce) refuse() bool {
	if d.rng == nil || d.rng.IntN(3) > 0 {
		return false
	}
	d.refused++
	return true
}

func (d *scarce) Alloc(t compute.DType, shape ...int) (compute.Buffer, error) {
	// Not the memory for the likely tokens of a pass: it is no more than a previous pass has
	// left, and cannot fail to be allocated.
	if len(shape) > 1 && shape[1] == modeltest.Default().Hidden && d.refuse() {
		return nil, errMemory
	}
	return d.Device.Alloc(t, shape...)
}

func (d *scarce) NewKV(c compute.KVConfig) (compute.KV, error) {
	kv, err := d.Device.NewKV(c)
	return &scarceKV{kv, d}, err
}

// Abilities are none: the store is not the inner device's.
func (d *scarce) Abilities() compute.DeviceAbilities { return compute.DeviceAbilities{} }

func (d *scarce) Queue() compute.Queue { return scarceQueue{d.Device.Queue()} }

type scarceKV struct {
	compute.KV
	dev *scarce
}

func (kv *scarceKV) Grow(blocks int) error {
	if blocks > kv.Blocks() && kv.dev.refuse() {
		return errMemory
	}
	return kv.KV.Grow(blocks)
}

type scarceQueue struct{ compute.Queue }

func (q scarceQueue) Attend(dst, qkv compute.Buffer, kv compute.KV, layer int, a *compute.Attention, s *compute.Step) {
	q.Queue.Attend(dst, qkv, kv.(*scarceKV).KV, layer, a, s)
}

func (q scarceQueue) MoveKV(kv compute.KV, dst, src []int32) {
	q.Queue.MoveKV(kv.(*scarceKV).KV, dst, src)
}

// While a pass of the target runs, its device is scarce.
type scarceTarget struct {
	infer.Target
	dev *scarce
	rng *rand.Rand
}

func (*scarceTarget) Abilities() infer.Abilities { return infer.Abilities{} }

func (t *scarceTarget) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	t.dev.rng = t.rng
	defer func() { t.dev.rng = nil }()
	return t.Target.Score(ctx, jobs)
}

// While a source takes what was kept or runs a pass, its device is scarce.
type scarceSource struct {
	infer.Source
	dev *scarce
	rng *rand.Rand
}

func (*scarceSource) Abilities() infer.Abilities { return infer.Abilities{} }

func (s *scarceSource) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	s.dev.rng = s.rng
	defer func() { s.dev.rng = nil }()
	return s.Source.Rows(ctx, asks)
}

func (s *scarceSource) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, x infer.Scores) error {
	s.dev.rng = s.rng
	defer func() { s.dev.rng = nil }()
	return s.Source.Commit(id, p, v, x)
}

// If the device has no memory for a pass of the target, the round is started again when there is
// some, and nothing is lost or left over. If it has none for the draft model, rounds go without
// drafts.
func TestRoundsWithoutMemoryAreBegunAgain(t *testing.T) {
	inner, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	trials := 6
	if testing.Short() {
		trials = 4
	}
	refused, whole, undrafted := 0, 0, 0
	for trial := range trials {
		// Whose memory is scarce: the target's, the source's, or that of both.
		ofTarget, ofSource := trial%3 != 1, trial%3 != 0
		rng := rand.New(rand.NewPCG(uint64(trial), 12))
		prompts := make([][]int32, 8)
		for i := range prompts {
			prompts[i] = make([]int32, 1+rng.IntN(50))
			for j := range prompts[i] {
				prompts[i][j] = rng.Int32N(int32(modeltest.Default().Vocab))
			}
		}
		generate := func(memory *rand.Rand) (seqs []*infer.Sequence) {
			dev := &scarce{Device: inner}
			m, err := model.Load(modeltest.Random(t, modeltest.Default(), 3), dev, model.Default())
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			spec := m.Spec().DraftFor(true)
			h, err := head.FromTensors(spec, m, head.Default(), modeltest.Tensors(spec, false, 3)...)
			if err != nil {
				t.Fatal(err)
			}
			src, target := &scarceSource{Source: source.NewHead(h, 0), dev: dev}, &scarceTarget{Target: infer.NewTarget(m, 0), dev: dev}
			e := &infer.Engine{Target: target, Config: infer.Config{PrefillChunk: 100, MaxNodes: 200}}
			for i, p := range prompts {
				d, _, err := draft.New("optimal:N=70,B=20")
				if err != nil {
					t.Fatal(err)
				}
				s, err := e.Open(infer.Request{
					Prompt: p, MaxTokens: 4 + 3*i, NoEOS: true, Drafter: d, Source: src,
					Verifier: verifier(t, 0), Processor: drafttest.Plain{},
				})
				if err != nil {
					t.Fatal(err)
				}
				seqs = append(seqs, s)
			}
			if ofTarget {
				target.rng = memory
			}
			if ofSource {
				src.rng = memory
			}
			for slices.ContainsFunc(seqs, func(s *infer.Sequence) bool { _, done := s.Done(); return !done }) {
				if err := e.Step(t.Context(), seqs); err != nil && !errors.Is(err, errMemory) {
					t.Fatal(err)
				}
			}
			for _, s := range seqs {
				e.Close(s)
			}
			if used := m.KV().Used; used != 0 {
				t.Errorf("trial %d: %d blocks are in use after all is closed", trial, used)
			}
			if used := h.KV().Used; used != 0 {
				t.Errorf("trial %d: %d of the head's blocks are in use after all is closed", trial, used)
			}
			refused += dev.refused
			return seqs
		}
		want, got := generate(nil), generate(rng)
		for i, s := range got {
			w := want[i]
			if s.Err() != nil {
				// There was no memory for the store of its own features: only this sequence
				// ends.
				if !errors.Is(s.Err(), errMemory) || !slices.Equal(s.Tokens(), w.Tokens()[:len(s.Tokens())]) {
					t.Errorf("trial %d, sequence %d: %v, error %v; with memory %v", trial, i, s.Tokens(), s.Err(), w.Tokens())
				}
				continue
			}
			whole++
			undrafted += s.Stats().Undrafted
			if s.Stats().Undrafted > 0 && !errors.Is(s.Undrafted(), errMemory) {
				t.Errorf("trial %d, sequence %d: no drafts because of %v", trial, i, s.Undrafted())
			}
			if !slices.Equal(s.Tokens(), w.Tokens()) {
				t.Errorf("trial %d, sequence %d: %v; with memory %v", trial, i, s.Tokens(), w.Tokens())
			}
			if (s.Stats().Undrafted == 0 || !ofSource) && (s.Stats().Drafted != w.Stats().Drafted || s.Stats().Passes != w.Stats().Passes) {
				t.Errorf("trial %d, sequence %d: %v, %d nodes drafted in %d passes; with memory %v, %d in %d", trial, i,
					s.Tokens(), s.Stats().Drafted, s.Stats().Passes, w.Tokens(), w.Stats().Drafted, w.Stats().Passes)
			}
		}
	}
	t.Logf("memory was refused %d times, %d of %d sequences came to their end, %d rounds had no drafts", refused, whole, 8*trials, undrafted)
	if undrafted < trials {
		t.Errorf("%d rounds had no drafts, want at least %d", undrafted, trials)
	}
	if refused < 5*trials || whole < 2*trials {
		t.Errorf("memory was refused %d times, and %d sequences came to their end: want at least %d and %d", refused, whole, 5*trials, 2*trials)
	}
}
