package serve_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"talf/internal/e2e/servetest"
)

// traced asks a question and returns the answer with its rounds.
func traced(t testing.TB, client *http.Client, url string, x *trial, key string) *servetest.Answer {
	t.Helper()
	w := servetest.Way{Method: x.w.Method, Stream: true, Usage: true, Trace: true, Key: key}
	got, err := servetest.Ask(context.Background(), client, url, &x.q, w)
	if err != nil {
		t.Fatal(err)
	}
	if d := servetest.Differ(got, x.want, &w); d != "" {
		t.Errorf("%s: %s", w.Method, d)
	}
	return got
}

// A request that finds its prompt in the prefix cache is drafted as one that does not, round by
// round: the same trees, with the same probabilities of draft and target, the same path accepted. The
// state of the head lives and dies with the prefix. Tenants find nothing of each other.
func TestTrialPrefixesChangeNothing(t *testing.T) {
	dir, head := subject(t)
	o := servetest.NewOracle(t, dir)
	t.Run("head", func(t *testing.T) {
		prefixesChangeNothing(t, o, servetest.Setup{Dir: dir, Head: head}, []string{
			"beam:N=24,k=4,depth=4", "salf:th=0.3,N=30", "linear", "dynatree", "goose:N=12", "pld", "fixed", "static:chain-3",
		})
	})
	t.Run("draft model", func(t *testing.T) {
		prefixesChangeNothing(t, o, servetest.Setup{Dir: dir, Draft: dir}, []string{"beam:N=24,k=4,depth=4", "salf:th=0.3,N=30"})
	})
}

func prefixesChangeNothing(t *testing.T, o *servetest.Oracle, setup servetest.Setup, methods []string) {
	start := func(cached int, keys ...string) (*servetest.Server, *http.Client) {
		setup := setup
		setup.Parts = servetest.Default()
		setup.Parts.Methods, setup.Parts.Cached = methods, cached
		setup.Parts.Loop.Global = false // the global budget's trees depend on what passes cost
		if len(keys) > 0 {
			setup.Parts.Server.Keys = loadKeys(t, keys...)
		}
		return servetest.Start(t, setup), servetest.NewClient(t, 1)
	}
	cold, coldClient := start(0)
	warm, warmClient := start(64, "a", "b")
	stock := servetest.Stock(4, 6)
	hits, rounds, accepted := 0, 0, 0
	for i, method := range methods {
		for _, temperature := range []float64{0, 0.8} {
			// Three turns of one dialogue, the last of them asked twice.
			prompt := stock[i%len(stock)][:200]
			var same string
			for turn := range 4 {
				q := servetest.Easy(prompt, 16)
				q.Sample.Temperature, q.IgnoreEOS, q.Logprobs, q.Seed = temperature, true, true, uint64(i)
				x := &trial{q: q, w: servetest.Way{Method: method}, want: plainly(t, o, q)}
				without, with := traced(t, coldClient, cold.URL, x, ""), traced(t, warmClient, warm.URL, x, "a")
				if without.Cached != 0 || turn > 0 && with.Cached == 0 && method != "goose:N=12" { // which reads the model's view of every prompt
					t.Errorf("%s, turn %d: %d and %d tokens from the cache", method, turn, without.Cached, with.Cached)
				}
				hits += with.Cached
				a, b := without.Choices[0], with.Choices[0]
				if len(a.Rounds) != a.Draft.Rounds || a.Draft.Tau != b.Draft.Tau {
					t.Errorf("%s, turn %d: %d rounds and τ %v, with the cache %v; %d are traced", method, turn, a.Draft.Rounds, a.Draft.Tau, b.Draft.Tau, len(a.Rounds))
				}
				for n, round := range a.Rounds {
					if n >= len(b.Rounds) || b.Rounds[n] != round {
						t.Errorf("%s at temperature %v, turn %d, %d tokens from the cache: round %d of %d is not %.300s", method, temperature, turn, with.Cached, n+1, len(b.Rounds), round)
						break
					}
				}
				rounds, accepted = rounds+a.Draft.Rounds, accepted+a.Draft.Accepted
				if turn == 3 { // another tenant begins with nothing
					if other := traced(t, warmClient, warm.URL, x, "b"); other.Cached > 0 && i == 0 && temperature == 0 {
						t.Errorf("%d tokens come from another tenant's prompt", other.Cached)
					}
				}
				if turn < 2 {
					prompt += x.want.Choices[0].Text + fmt.Sprintf(" Then %d", turn)
				} else {
					same = prompt
				}
			}
			if same != prompt {
				t.Error("the last turn was not asked twice")
			}
		}
	}
	t.Logf("%d rounds with %d accepted tokens are the same; %d tokens of prompts came from the cache", rounds, accepted, hits)
	if hits == 0 || accepted == 0 {
		t.Error("nothing was tested")
	}
}

// With memory for a part of what is kept, prefixes come and go while requests run, and no answer
// shows it.
func TestTrialPrefixesUnderPressure(t *testing.T) {
	dir, head := subject(t)
	o := servetest.NewOracle(t, dir)
	rng := rand.New(rand.NewPCG(3, 9))
	methods := []string{"beam:N=12,k=4,depth=3", "salf:th=0.3,N=12", "goose:N=8", "recycle"}
	keys := []string{"a", "b"}
	setup := servetest.Setup{Dir: dir, Head: head, Blocks: 24, Parts: servetest.Default()}
	setup.Parts.Methods, setup.Parts.Server.Keys, setup.Parts.Cached = methods, loadKeys(t, keys...), 64
	setup.Parts.Loop.Global = false
	s := servetest.Start(t, setup)
	var all []*trial
	for _, text := range servetest.Stock(6, 6) {
		prompt := text[:60]
		for turn := range few(16) / 4 {
			q := servetest.Easy(prompt, 12)
			q.IgnoreEOS, q.Logprobs, q.Sample.Temperature = true, true, float64(turn%2)
			x := &trial{q: q, w: servetest.DrawWay(rng, methods, keys), want: plainly(t, o, q)}
			all = append(all, x)
			if prompt += x.want.Choices[0].Text; len(o.Tokens(t, prompt)) > 180 {
				break
			}
		}
	}
	var sum tally
	client := servetest.NewClient(t, 8)
	asked := slices.Concat(all, all, all)
	rng.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
	askAll(t, client, s.URL, asked, 8, &sum)
	t.Log(&sum)
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if int(sum.whole.Load()) != len(asked) || sum.cached.Load() == 0 {
		t.Errorf("%d questions, %s", len(asked), &sum)
	}
}
