package loop_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/loop"
	"talf/infer/prefix"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/internal/await"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// poison is a token whose embedding is not a number.
const poison = 77

// nets returns a random target, in which every text with the poison has logits that are not
// numbers, and a random head for it, with pools of so many blocks (0: no bound).
func nets(t testing.TB, blocks int) (*model.Model, *head.Head) {
	t.Helper()
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	conf := modeltest.Default()
	conf.EOS, conf.Tied = 5, false
	all := modeltest.Tensors(conf.Spec(), false, 3)
	modeltest.Plant(all, "model.embed_tokens.weight", poison*conf.Hidden, float32(math.NaN()))
	opt := model.Default()
	opt.AllowNonFinite, opt.KVBlocks = true, blocks
	m, err := model.New(conf.Spec(), safetensors.Of("soak", all...), dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	spec := m.Spec().DraftFor(true)
	ho := head.Default()
	ho.Model.KVBlocks = blocks
	h, err := head.FromTensors(spec, m, ho, modeltest.Tensors(spec, false, 3)...)
	if err != nil {
		t.Fatal(err)
	}
	return m, h
}

// A bomb panics at its nth call.
type bomb struct {
	infer.Drafter
	infer.Processor
	left int
}

func (b *bomb) tick() {
	if b.left--; b.left == 0 {
		panic("planted")
	}
}

type bombDrafter struct{ *bomb }

func (b bombDrafter) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	b.tick()
	return b.Drafter.Grow(p, rows, c)
}

type bombProcessor struct{ *bomb }

func (bombProcessor) Abilities() infer.ProcessorAbilities { return infer.ProcessorAbilities{} }

func (b bombProcessor) Plain() bool { return false }

func (b bombProcessor) Argmax(logits []float32, context []int32) int32 {
	b.tick()
	return b.Processor.Argmax(logits, context)
}

func (b bombProcessor) Dist(dst infer.Dist, logits []float32, context []int32) {
	b.tick()
	b.Processor.Dist(dst, logits, context)
}

// A question has what plain decoding answers.
type question struct {
	prompt      []int32
	max         int
	temperature float64
	want        []int32
	reason      infer.Reason
}

func (q *question) request(t testing.TB, method string, src infer.Source) infer.Request {
	t.Helper()
	v, err := verify.New("", q.temperature)
	if err != nil {
		t.Fatal(err)
	}
	r := infer.Request{Prompt: q.prompt, MaxTokens: q.max, Seed: 9, Verifier: v, Processor: drafttest.Plain{Temperature: q.temperature}}
	if method != "" {
		d, m, err := draft.New(method)
		if err != nil {
			t.Fatal(err)
		}
		r.Drafter = d
		if m.Source {
			r.Source = src
		}
	}
	return r
}

func questions(t testing.TB, rng *rand.Rand, n, vocab int) (all []*question, demand int) {
	t.Helper()
	m, _ := nets(t, 0)
	e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
	for len(all) < n {
		i := len(all)
		q := &question{max: 1 + rng.IntN(40), temperature: float64(i % 2)}
		for range 1 + rng.IntN(100) {
			token := rng.Int32N(int32(vocab) - 1)
			if token >= poison {
				token++
			}
			q.prompt = append(q.prompt, token)
		}
		poisoned := i%20 == 7
		if poisoned {
			q.prompt[rng.IntN(len(q.prompt))] = poison
		}
		s, err := e.Generate(t.Context(), q.request(t, "", nil))
		var odd *model.NonFiniteError
		if err != nil && !errors.As(err, &odd) {
			t.Fatal(err)
		}
		q.want = slices.Clone(s.Tokens())
		if q.reason, _ = s.Done(); (q.reason == infer.Failed) != poisoned {
			continue // it came to the poison by itself
		}
		demand += (len(q.prompt) + q.max + 31) / 32
		all = append(all, q)
	}
	return all, demand
}

// resident returns the memory of the process in bytes, 0 if the system does not say.
func resident() (bytes int) {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0
	}
	return pages * os.Getpagesize()
}

// Ten thousand requests, 64 at once, with a pool for a quarter of them: one in twenty has a part
// that panics, one in twenty has logits that are not numbers, one in five is cancelled. All
// others get the answers of plain decoding, byte for byte, and nothing is left of any.
func TestSoak(t *testing.T) {
	requests, settled := 10_000, 3000
	if testing.Short() {
		requests, settled = 600, 300
	}
	const atOnce = 64
	rng := rand.New(rand.NewPCG(1, 2))
	base := modeltest.Default()
	qs, demand := questions(t, rng, 200, base.Vocab)
	blocks := demand * atOnce / len(qs) / 4
	m, h := nets(t, blocks)
	target, src := infer.NewTarget(m, 2), source.NewHead(h, 2)
	l := start(t, target, loop.Config{MaxRunning: atOnce, MaxQueue: atOnce, Stretch: 2.5})
	running(t, l)
	methods := []string{"", "beam:N=12,k=4,depth=3", "salf:th=0.1,N=20", "pld", "recycle"}

	var next, whole, panicked, odd, cancelled, wrong atomic.Int64
	one := func(i int, rng *rand.Rand) {
		q := qs[rng.IntN(len(qs))]
		req := q.request(t, methods[rng.IntN(len(methods))], src)
		b := &bomb{Drafter: req.Drafter, Processor: req.Processor}
		if i%20 == 3 {
			b.left = 1 + rng.IntN(12)
			if i%40 == 3 && req.Drafter != nil {
				req.Drafter = bombDrafter{b}
			} else {
				req.Processor = bombProcessor{b}
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stop := -1
		if i%5 == 1 {
			stop = rng.IntN(8)
		}
		x, err := l.Submit(ctx, req, loop.Options{Priority: rng.IntN(2)})
		if err != nil {
			t.Error(err)
			return
		}
		if stop == 0 {
			cancel()
		}
		var got []int32
		for {
			d, err := x.Next(context.Background())
			if err != nil {
				break
			}
			if got = append(got, d.Tokens...); stop >= 0 && len(got) >= stop {
				cancel()
			}
		}
		s, err := x.Result()
		reason := infer.Cancelled
		if s != nil {
			reason, _ = s.Done()
		}
		var p *infer.PanicError
		var n *model.NonFiniteError
		begins := len(got) <= len(q.want) && slices.Equal(got, q.want[:len(got)])
		switch {
		case stop >= 0 && reason == infer.Cancelled && errors.Is(err, context.Canceled) && begins:
			cancelled.Add(1)
		case b.left == 0 && i%20 == 3 && errors.As(err, &p) && strings.Contains(string(p.Stack), "tick") && begins:
			panicked.Add(1)
		case q.reason == infer.Failed && errors.As(err, &n) && slices.Equal(got, q.want):
			odd.Add(1)
		case err == nil && reason == q.reason && slices.Equal(got, q.want):
			whole.Add(1)
		default:
			if wrong.Add(1) < 10 {
				t.Errorf("request %d: reason %q, error %v, %v; want %q, %v", i, reason, err, got, q.reason, q.want)
			}
		}
	}
	run := func(until int) {
		var wg sync.WaitGroup
		for k := range atOnce {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(until), uint64(k)))
				for {
					i := int(next.Add(1)) - 1
					if i >= until {
						next.Add(-1)
						return
					}
					one(i, rng)
				}
			})
		}
		wg.Wait()
	}
	run(settled)
	before, goroutines := resident(), runtime.NumGoroutine()
	run(requests)
	after := resident()
	st := l.Stats()
	t.Logf("%d requests: %d whole, %d cancelled, %d panicked, %d not finite, %d wrong", requests, whole.Load(), cancelled.Load(), panicked.Load(), odd.Load(), wrong.Load())
	t.Logf("%d blocks for a demand of %d; %d preemptions, %d prompts delayed, %d passes of %.1f rows; resident %.1f MiB after %d requests, %.1f MiB at the end",
		blocks, demand*atOnce/len(qs), st.Preemptions, st.Delayed, st.Passes, float64(st.Rows)/float64(st.Passes),
		float64(before)/(1<<20), settled, float64(after)/(1<<20))
	if k := requests / 100; int(whole.Load()) < 60*k || int(cancelled.Load()) < 8*k || int(panicked.Load()) < 2*k || int(odd.Load()) < 2*k || st.Preemptions < k/2 {
		t.Error("too little was tested")
	}
	await.Until(t, fmt.Sprintf("%d goroutines, as after %d requests", goroutines, settled), func() bool { return runtime.NumGoroutine() <= goroutines })
	if before > 0 && after > before+16<<20 {
		t.Errorf("resident memory has grown from %d to %d bytes", before, after)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	target.Prefixes().Bound(prefix.Limit{})
	src.Prefixes().Bound(prefix.Limit{})
	if u := m.KV().Used + h.KV().Used; u != 0 {
		t.Errorf("%d blocks are in use at the end", u)
	}
}
