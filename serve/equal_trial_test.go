package serve_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"talf/internal/demo"
	"talf/internal/e2e/servetest"
	"talf/internal/e2e/talftest"
	"talf/model/sample"
	"talf/serve"
)

// The long form of the trials, by hand:
//
//	go test ./serve -run Trial -timeout 2h -args -trials 2000 -trial-head HEAD
//
// asks the demo's model, with a head that talf quickstart has trained, in place of random ones.
var (
	trials    = flag.Int("trials", 0, "questions of the trials, with the demo's model (0: few, with a random model)")
	trialHead = flag.String("trial-head", "", "trained `head` of the model, for -trials")
	// Models other than the demo's answer the trial of formats.
	trialModel = flag.String("trial-model", "", "`directory` of a model in place of the demo's, for -trials")
	trialDraft = flag.String("trial-draft", "", "`directory` of a small model that drafts for -trial-model; it drafts for itself if none is given")
)

// subject returns a model and a head for it.
func subject(t testing.TB) (dir, head string) {
	t.Helper()
	if *trials == 0 {
		dir = talftest.TinyModel(t, talftest.TinyConfig(), 1)
		return dir, talftest.TinyHead(t, dir, 1)
	}
	if *trialModel != "" {
		return *trialModel, *trialHead
	}
	dir = filepath.Join(t.TempDir(), "model")
	if err := demo.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	return dir, *trialHead
}

// few returns the number of questions of a short trial, fewer with -short.
func few(n int) int {
	if *trials > 0 {
		return *trials
	}
	if testing.Short() {
		return n / 2
	}
	return n
}

// A trial is a question with its answer.
type trial struct {
	q    servetest.Question
	w    servetest.Way
	want *servetest.Answer
}

// drawTrials draws questions, and finds their answers by plain decoding. One in four continues an
// earlier question with its answer, as the turns of a dialogue do.
func drawTrials(t testing.TB, o *servetest.Oracle, rng *rand.Rand, n, most int, methods, keys []string) []*trial {
	t.Helper()
	stock := servetest.Stock(rng.Uint64(), max(4, n/16))
	var all []*trial
	for i := range n {
		x := &trial{q: servetest.Draw(rng, stock, most), w: servetest.DrawWay(rng, methods, keys)}
		if i > 8 && rng.IntN(4) == 0 {
			then := all[rng.IntN(i)]
			if text := then.q.Prompt + then.want.Choices[0].Text + x.q.Prompt[:min(len(x.q.Prompt), 8)]; len(o.Tokens(t, text)) < 200 {
				x.q.Prompt = text
			}
		}
		if !x.q.Chat && rng.IntN(4) == 0 {
			x.q.Tokens = o.Tokens(t, x.q.Prompt)
		}
		if rng.IntN(6) == 0 {
			x.w.Quit = 1 + rng.IntN(8)
		}
		var err error
		if x.want, err = o.Answer(t.Context(), &x.q); err != nil {
			t.Fatalf("question %d, %s: %v", i, x.q.Body(&x.w), err)
		}
		if said := x.want.Choices[0].Text; rng.IntN(5) == 0 && !x.w.Off && said != "" { // all of it, a part, or another text
			x.w.Predict = []string{said, said[len(said)/2:], said + " and more", x.q.Prompt}[rng.IntN(4)]
		}
		all = append(all, x)
	}
	return all
}

// A tally counts what became of questions.
type tally struct{ whole, quit, cached, drafted, accepted, rounds, wrong atomic.Int64 }

// ask asks one question and checks the answer.
func (x *trial) ask(t testing.TB, client *http.Client, url string, sum *tally) {
	t.Helper()
	got, err := servetest.Ask(context.Background(), client, url, &x.q, x.w)
	wrong := ""
	if err != nil {
		wrong = err.Error()
	} else {
		wrong = servetest.Differ(got, x.want, &x.w)
	}
	if wrong != "" {
		if sum.wrong.Add(1) <= 5 {
			t.Errorf("%s: %s", x.q.Body(&x.w), wrong)
		}
		return
	}
	if !got.Whole {
		sum.quit.Add(1)
		return
	}
	sum.whole.Add(1)
	sum.cached.Add(int64(got.Cached))
	for _, c := range got.Choices {
		sum.rounds.Add(int64(c.Draft.Rounds))
		sum.drafted.Add(int64(c.Draft.Drafted))
		sum.accepted.Add(int64(c.Draft.Accepted))
	}
}

func (s *tally) String() string {
	return fmt.Sprintf("%d whole, %d left by their clients, %d wrong; %d tokens of prompts from the cache; %d drafted and %d accepted in %d rounds",
		s.whole.Load(), s.quit.Load(), s.wrong.Load(), s.cached.Load(), s.drafted.Load(), s.accepted.Load(), s.rounds.Load())
}

// However many requests there are at once, whatever drafts them, whoever goes away in the middle,
// and however little memory there is: each answer has the bytes that talf generate writes for it
// alone, its log probabilities the same bits, its usage the same counts.
func TestTrialAnswersUnderLoadAreThoseOfPlainDecoding(t *testing.T) {
	dir, head := subject(t)
	o := servetest.NewOracle(t, dir)
	keys := []string{"a", "b", "c"}
	kinds := []struct {
		name    string
		head    string
		draft   string
		methods []string
		blocks  int
		global  bool // a budget for all drafts, which leaves few where they do not pay
	}{
		{"head", head, "", servetest.Methods(t, true), 90, false},
		{"global budget", head, "", servetest.Methods(t, true), 90, true},
		{"draft model", "", dir, servetest.Methods(t, true), 0, false},
	}
	for k, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(1+*trials), uint64(k)))
			n := few(160)
			if k > 0 {
				n /= 4
			}
			all := drawTrials(t, o, rng, n, 32, kind.methods, keys)
			setup := servetest.Setup{Dir: dir, Head: kind.head, Draft: kind.draft, Blocks: kind.blocks, Parts: servetest.Default()}
			setup.Parts.Methods, setup.Parts.Server.Keys, setup.Parts.Loop.Global = kind.methods, loadKeys(t, keys...), kind.global
			s := servetest.Start(t, setup)
			client := servetest.NewClient(t, 64)
			for i, atOnce := range []int{64, 16, 4, 1} {
				var sum tally
				part := all[i*n/4 : (i+1)*n/4]
				askAll(t, client, s.URL, part, atOnce, &sum)
				t.Logf("%d at once: %s", atOnce, &sum)
				if int(sum.whole.Load()+sum.quit.Load()) != len(part) {
					t.Errorf("%d questions, %s", len(part), &sum)
				}
			}
		})
	}
}

// askAll asks questions, so many at once, some of them after a while.
func askAll(t testing.TB, client *http.Client, url string, all []*trial, atOnce int, sum *tally) {
	t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for c := range atOnce {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 1))
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				if rng.IntN(2) == 0 {
					time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				}
				all[i].ask(t, client, url, sum)
			}
		})
	}
	wg.Wait()
}

// loadKeys returns keys.
func loadKeys(t testing.TB, keys ...string) *serve.Keys {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Join(keys, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := serve.LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Each parameter that plain decoding knows does the same with every method, to the last bit of the
// log probabilities. None is refused because a method drafts.
func TestTrialParametersWithMethods(t *testing.T) {
	dir, head := subject(t)
	o := servetest.NewOracle(t, dir)
	type parameter struct {
		name   string
		change func(q *servetest.Question)
	}
	sampled := func(q *servetest.Question) { q.Sample.Temperature = 1 }
	and := func(a, b func(q *servetest.Question)) func(q *servetest.Question) {
		return func(q *servetest.Question) { a(q); b(q) }
	}
	params := []parameter{
		{"temperature", func(q *servetest.Question) { q.Sample.Temperature = 0.7 }},
		{"temperature 2", func(q *servetest.Question) { q.Sample.Temperature = 2 }},
		{"seed", func(q *servetest.Question) { q.Sample.Temperature, q.Seed = 1, 1<<63-1 }},
		{"n", and(sampled, func(q *servetest.Question) { q.N = 3 })},
		{"top_p", and(sampled, func(q *servetest.Question) { q.Sample.TopP = 0.4 })},
		{"top_k", and(sampled, func(q *servetest.Question) { q.Sample.TopK = 3 })},
		{"min_p", and(sampled, func(q *servetest.Question) { q.Sample.MinP = 0.3 })},
		{"presence_penalty", func(q *servetest.Question) { q.Sample.PresencePenalty = 2 }},
		{"negative presence_penalty", func(q *servetest.Question) { q.Sample.PresencePenalty = -2 }},
		{"frequency_penalty", and(sampled, func(q *servetest.Question) { q.Sample.FrequencyPenalty = 2 })},
		{"repetition_penalty", func(q *servetest.Question) { q.Sample.RepetitionPenalty = 8 }},
		{"logit_bias", func(q *servetest.Question) {
			q.Sample.LogitBias = []sample.Bias{{Token: 70, By: 5.5}, {Token: 71, By: -100}, {Token: 300, By: 60}}
		}},
		{"stop", func(q *servetest.Question) { q.Stop = []string{"zzz", "o", "e", "a"} }},
		{"stop across tokens", func(q *servetest.Question) { q.Stop = []string{q.Prompt} }}, // replaced by a part of the answer below
		{"stop_token_ids", func(q *servetest.Question) { q.StopIDs = nil }},                 // replaced below, too
		{"min_tokens", func(q *servetest.Question) { q.Sample.MinTokens = 9 }},              // with stop_token_ids
		{"max_tokens", func(q *servetest.Question) { q.MaxTokens = 3 }},
		{"logprobs", func(q *servetest.Question) { q.Logprobs = true }},
		{"top_logprobs", and(sampled, func(q *servetest.Question) { q.Logprobs, q.Top = true, 20 })},
		{"echo", func(q *servetest.Question) { q.Echo, q.Chat = true, false }},
		{"all", func(q *servetest.Question) {
			q.N, q.MaxTokens, q.Logprobs, q.Top, q.Stop, q.IgnoreEOS = 2, 20, true, 5, []string{"th", "!!"}, true
			q.Sample = sample.Params{
				Temperature: 1.1, TopK: 80, TopP: 0.95, MinP: 0.01, RepetitionPenalty: 1.1, FrequencyPenalty: 0.5, PresencePenalty: -0.5,
				LogitBias: []sample.Bias{{Token: 90, By: 3}},
			}
		}},
	}
	prompts := demo.Prompts(5, 2)
	bite := map[string]bool{}
	var all []trial
	for k, text := range prompts {
		for i, p := range params {
			q := servetest.Easy(text, 12)
			q.IgnoreEOS, q.Chat = true, (i+k)%2 == 0
			base := plainly(t, o, q)
			before := q
			p.change(&q)
			switch p.name {
			case "stop across tokens":
				said := []rune(base.Choices[0].Text)
				q.Stop = []string{string(said[len(said)/3 : len(said)/3+6])}
			case "stop_token_ids", "min_tokens":
				before.Logprobs = true
				said := plainly(t, o, before).Choices[0].Tokens
				q.StopIDs = o.Tokens(t, said[len(said)/2].Text)
				q.StopIDs = q.StopIDs[len(q.StopIDs)-1:]
			}
			want := plainly(t, o, q)
			bite[p.name] = bite[p.name] || !reflect.DeepEqual(base.Choices, want.Choices)
			all = append(all, trial{q: q, want: want})
		}
	}
	for _, p := range params {
		if !bite[p.name] {
			t.Errorf("%s: the questions are answered as without it", p.name)
		}
	}
	for _, with := range []servetest.Setup{{Dir: dir, Head: head}, {Dir: dir, Draft: dir}} {
		with.Parts = servetest.Default()
		with.Parts.Methods, with.Parts.Loop.Global = servetest.Methods(t, true), false
		s := servetest.Start(t, with)
		client := servetest.NewClient(t, 16)
		var asked []*trial
		for i, x := range all {
			for j, method := range append(with.Parts.Methods, "off") {
				if testing.Short() && *trials == 0 && (i+j)%5 > 0 {
					continue
				}
				y := x
				y.w = servetest.Way{Method: method, Stream: (i+j)%2 == 0, Usage: true}
				if method == "off" {
					y.w.Method, y.w.Off = "", true
				}
				y.w.Usage = y.w.Stream
				asked = append(asked, &y)
			}
		}
		var sum tally
		askAll(t, client, s.URL, asked, 16, &sum)
		t.Logf("%d parameters, %d methods: %s", len(params), len(with.Parts.Methods), &sum)
		if int(sum.whole.Load()) != len(asked) {
			t.Errorf("%d questions, %s", len(asked), &sum)
		}
	}
}

func plainly(t testing.TB, o *servetest.Oracle, q servetest.Question) *servetest.Answer {
	t.Helper()
	a, err := o.Answer(t.Context(), &q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
