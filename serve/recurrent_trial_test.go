package serve_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"talf/internal/e2e/servetest"
	"talf/internal/e2e/talftest"
	"talf/model/modeltest"
)

// Requests to a model with recurrent layers, many at once and with little memory, of which some continue earlier ones and
// some are left by their clients, are answered as talf generate answers them alone. A kept prefix is of use
// only up to where there is a state.
func TestTrialRecurrentLayers(t *testing.T) {
	c, small := modeltest.Of("qwen3_next"), talftest.TinyConfig()
	c.Vocab, c.MaxPos, c.EOS = small.Vocab, small.MaxPos, small.EOS
	dir := talftest.TinyModel(t, c, 1)
	head := talftest.TinyHead(t, dir, 1)
	o := servetest.NewOracle(t, dir)
	rng := rand.New(rand.NewPCG(1, 8))
	methods, keys := servetest.Methods(t, true), []string{"a", "b"}
	for _, kind := range []struct {
		name, head, draft string
		blocks            int
		clock             bool // decides whether trees of a given size pay, so that there may be none on a slow machine
	}{{"head", head, "", 200, false}, {"draft model", "", dir, 0, false}, {"draft model, shared rows", "", dir, 0, true}} {
		t.Run(kind.name, func(t *testing.T) {
			all := drawTrials(t, o, rng, few(24), 32, methods, keys)
			var long []*trial
			for i, text := range servetest.Stock(6, 4) { // long enough for states in their middle
				q := servetest.Easy(text[:min(len(text), 500)], 12)
				q.IgnoreEOS, q.Logprobs, q.Sample.Temperature = true, true, float64(i%2)
				if n := len(o.Tokens(t, q.Prompt)); n < 80 {
					t.Fatalf("a prompt of %d tokens", n)
				}
				long = append(long, &trial{q: q, w: servetest.DrawWay(rng, methods, keys[:1]), want: plainly(t, o, q)})
			}
			setup := servetest.Setup{Dir: dir, Head: kind.head, Draft: kind.draft, Blocks: kind.blocks, Parts: servetest.Default()}
			setup.Parts.Loop.Global = kind.clock
			setup.Parts.Methods, setup.Parts.Server.Keys = methods, loadKeys(t, keys...)
			s := servetest.Start(t, setup)
			var sum tally
			asked := slices.Concat(all, long)
			askAll(t, servetest.NewClient(t, 64), s.URL, asked, 16, &sum)
			for range 2 { // the second time from kept prefixes
				askAll(t, servetest.NewClient(t, 1), s.URL, long, 1, &sum)
			}
			t.Log(&sum)
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			if int(sum.whole.Load()+sum.quit.Load()) != len(asked)+2*len(long) || sum.cached.Load() == 0 || !kind.clock && sum.drafted.Load() == 0 {
				t.Errorf("%d questions, %s", len(asked)+2*len(long), &sum)
			}
		})
	}
}
