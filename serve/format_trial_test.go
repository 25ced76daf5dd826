package serve_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/infer/constrain"
	"talf/internal/e2e/servetest"
	"talf/model/sample"
	"talf/text/grammar/grammartest"
)

// drawFormatted draws a question whose answer has to match a format, at temperature 0 or 1, with
// some of what changes a distribution.
func drawFormatted(rng *rand.Rand, stock []string, f constrain.Format, temperature float64) servetest.Question {
	q := servetest.Easy(stock[rng.IntN(len(stock))], 8+rng.IntN(33))
	q.Prompt = q.Prompt[:min(len(q.Prompt), 40+rng.IntN(120))]
	q.Chat, q.Format, q.Seed = rng.IntN(4) > 0, f, rng.Uint64()>>11
	q.Logprobs, q.Top = true, rng.IntN(4)
	p := &q.Sample
	p.Temperature = temperature
	sometimes := func(of int, do func()) {
		if rng.IntN(of) == 0 {
			do()
		}
	}
	sometimes(2, func() { p.TopP = 0.5 + rng.Float64()/2 })
	sometimes(5, func() { p.TopK = 1 + rng.IntN(60) })
	sometimes(5, func() { p.MinP = rng.Float64() / 5 })
	sometimes(3, func() { p.PresencePenalty, p.FrequencyPenalty = 4*rng.Float64()-2, rng.Float64() })
	sometimes(4, func() { p.RepetitionPenalty = 0.8 + rng.Float64() })
	sometimes(3, func() {
		for id := rng.Int32N(64); id < 1024; id += 1 + rng.Int32N(400) {
			p.LogitBias = append(p.LogitBias, sample.Bias{Token: id, By: 0.5 + float64(rng.IntN(100)-50)})
		}
	})
	return q
}

// matches reports an answer that has come to its end and does not match its format.
func matches(q *servetest.Question, a *servetest.Answer) error {
	c, err := constrain.New(q.Format, grammartest.Bytes(), nil)
	if err != nil {
		return err
	}
	for _, choice := range a.Choices {
		s := c.Automaton.Read(c.Automaton.Start(), []byte(choice.Text))
		if choice.Finish == "stop" && (s == nil || !s.Accepting()) {
			return fmt.Errorf("%q ended and does not match %s", choice.Text, q.Format.Text)
		}
	}
	return nil
}

// formatServers starts a server for each source of drafts, with the methods that more names, too.
func formatServers(t *testing.T, threads, cached int, methods func(with bool) []string) (servers []*servetest.Server) {
	dir, head := subject(t)
	setups := []servetest.Setup{{Dir: dir, Draft: dir}}
	if *trialDraft != "" {
		setups[0].Draft = *trialDraft
	}
	if head != "" {
		setups = append(setups, servetest.Setup{Dir: dir, Head: head})
	}
	if *trials == 0 { // the random head
		setups = setups[1:]
	}
	for _, s := range setups {
		s.Threads, s.Parts = threads, servetest.Default()
		s.Parts.Methods, s.Parts.Cached, s.Parts.Loop.Global = methods(true), cached, false
		servers = append(servers, servetest.Start(t, s))
	}
	return servers
}

// An answer in a format is that of constrained plain decoding, to the last bit of its log
// probabilities: with every method and both verifiers that promise it, alone and among others, with its
// prompt in the prefix cache and without. One that ends matches its format.
func TestTrialAnswersInAFormatAreThoseOfPlainDecoding(t *testing.T) {
	methods := func(with bool) []string {
		var all []string
		for _, m := range servetest.Methods(t, with) {
			all = append(all, m)
			if m != "ar" {
				all = append(all, m+"@target") // above temperature 0 the same
			}
		}
		return all
	}
	threads := 2
	if *trials > 0 {
		threads = 1 // of which the answers do not depend; long trials run beside other work
	}
	servers := formatServers(t, threads, 64, methods)
	dir, _ := subject(t)
	o := servetest.NewOracle(t, dir)
	rng := rand.New(rand.NewPCG(20, uint64(*trials)))
	n := few(24)
	stock := servetest.Stock(rng.Uint64(), max(4, n/16))
	fixed := servetest.Formats()
	formats := map[constrain.Format]bool{}
	ended := map[float64]int{}
	var all []*trial
	for i := range n {
		f := servetest.DrawFormat(rng)
		if *trials > 0 && i/2 < len(fixed) { // each of them at both temperatures
			f = fixed[i/2]
		}
		x := &trial{q: drawFormatted(rng, stock, f, float64(i%2))}
		x.want = plainly(t, o, x.q)
		if err := matches(&x.q, x.want); err != nil {
			t.Errorf("question %d: %v", i, err)
		}
		if formats[f] = true; x.want.Choices[0].Finish == "stop" {
			ended[x.q.Sample.Temperature]++
		}
		all = append(all, x)
	}
	names := methods(true)
	for k, s := range servers {
		client := servetest.NewClient(t, 16)
		for pass, atOnce := range []int{1, 16, 4} {
			var asked []*trial
			for i, x := range all {
				for j, m := range append(slices.Clone(names), "off") {
					// A third of the methods for each question, with -trials; few without.
					if *trials == 0 && (i*3+j)%len(names) > 1 || *trials > 0 && (4*i+j)%9 != pass {
						continue
					}
					y := *x
					y.w = servetest.Way{Method: m, Stream: rng.IntN(2) == 0}
					if m == "off" {
						y.w.Method, y.w.Off = "", true
					}
					y.w.Usage = y.w.Stream
					asked = append(asked, &y)
				}
			}
			rng.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
			var sum tally
			askAll(t, client, s.URL, asked, atOnce, &sum)
			t.Logf("server %d, %d at once: %s", k, atOnce, &sum)
			if int(sum.whole.Load()) != len(asked) || sum.cached.Load() == 0 || sum.accepted.Load() == 0 {
				t.Errorf("%d questions, %s", len(asked), &sum)
			}
		}
	}
	t.Logf("%d prompts with %d formats and %d methods: %d answers at temperature 0 and %d at 1 come to their end", n, len(formats), len(names)+1, ended[0], ended[1])
	if ended[0] == 0 || ended[1] == 0 {
		t.Error("no answer of one temperature comes to its end")
	}
}

// Verifiers that promise a distribution alone, which they keep under a grammar (infer/constrain), answer
// with the same bytes for the same seed, among others and alone, on one thread and on two, with the
// prompt in the cache and without; and what ends matches.
func TestTrialDrawnAnswersInAFormatFollowTheirSeed(t *testing.T) {
	drawn := []string{
		"static:binary-4,draw=distinct@traversal", "static:binary-4,draw=distinct@rrsw", "static:binary-4,draw=repeated@rrs",
		"static:chain-4,draw=distinct@block", "static:chain-4,draw=repeated@block",
	}
	methods := func(bool) []string { return drawn }
	calm, busy := formatServers(t, 1, 0, methods), formatServers(t, 2, 64, methods)
	rng := rand.New(rand.NewPCG(21, uint64(*trials)))
	stock := servetest.Stock(rng.Uint64(), max(4, *trials/16))
	for k := range calm {
		client := servetest.NewClient(t, 16)
		var all []*trial
		ended := 0
		for range few(6) {
			q := drawFormatted(rng, stock, servetest.DrawFormat(rng), 1)
			for _, m := range drawn {
				w := servetest.Way{Method: m, Stream: true, Usage: true}
				want, err := servetest.Ask(t.Context(), client, calm[k].URL, &q, w)
				if err != nil {
					t.Fatalf("%s: %v", q.Body(&w), err)
				}
				if err := matches(&q, want); err != nil {
					t.Errorf("%s: %v", m, err)
				}
				ended += strings.Count(want.Choices[0].Finish, "stop")
				all = append(all, &trial{q: q, w: w, want: want})
			}
		}
		for _, atOnce := range []int{16, 1} {
			var sum tally
			askAll(t, client, busy[k].URL, all, atOnce, &sum)
			t.Logf("server %d, %d at once: %s", k, atOnce, &sum)
			if int(sum.whole.Load()) != len(all) || *trials > 0 && ended == 0 {
				t.Errorf("%d questions, %d of their answers come to their end, %s", len(all), ended, &sum)
			}
		}
	}
}
