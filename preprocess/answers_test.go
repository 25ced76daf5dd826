package preprocess_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute/cpu"
	"talf/data/corpus"
	"talf/internal/golden"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
	"talf/text/tokenizer"
)

// distant answers as echo does, in text.
type distant struct {
	answer func(q *preprocess.Question, last int) (preprocess.Answer, error) // nil: as echo

	mu    sync.Mutex
	asked []string
	open  int
	most  int // questions at a time
}

func (g *distant) Answer(ctx context.Context, q *preprocess.Question) (preprocess.Answer, error) {
	words := strings.Fields(q.Text)
	if q.Conversation != nil {
		var c struct{ Messages []struct{ Content string } }
		if err := json.Unmarshal(q.Conversation, &c); err != nil {
			return preprocess.Answer{}, err
		}
		words = strings.Fields(c.Messages[len(c.Messages)-1].Content)
	}
	last, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return preprocess.Answer{}, err
	}
	g.mu.Lock()
	g.asked = append(g.asked, fmt.Sprintf("%s%s max %d seed %d", q.Conversation, q.Text, q.Max, q.Seed))
	g.open++
	g.most = max(g.most, g.open)
	g.mu.Unlock()
	runtime.Gosched()
	defer func() {
		g.mu.Lock()
		g.open--
		g.mu.Unlock()
	}()
	a, err := preprocess.Answer{Text: strconv.Itoa(last + 30)}, ctx.Err()
	if g.answer != nil {
		a, err = g.answer(q, last)
	}
	if q.Conversation == nil {
		a.Text = " " + a.Text // the text goes on
	}
	return a, err
}

// echoed answers prompts of a text as distant does, in tokens: the end token follows.
type echoed struct{ echo }

func (g *echoed) Generate(ctx context.Context, prompts []preprocess.Prompt) ([][]int32, error) {
	all, err := g.echo.Generate(ctx, prompts)
	for i, p := range prompts {
		if n := len(p.Tokens); p.Tokens[0] == 1 { // a text, not a template's
			all[i][0] = p.Tokens[n-1] + 30
		}
	}
	return all, err
}

// mute is a Generator whose answers end at once, but for one in so many.
type mute struct{ calls, speaks int }

func (g *mute) Generate(_ context.Context, prompts []preprocess.Prompt) ([][]int32, error) {
	out := make([][]int32, len(prompts))
	for i := range prompts {
		if g.calls++; g.speaks > 0 && g.calls%g.speaks == 1 {
			out[i] = []int32{5, 2}
		} else {
			out[i] = []int32{2}
		}
	}
	return out, nil
}

// A run whose answers mostly end at once says so, with the likely reason, before it has ended.
func TestARunSaysThatAnswersEndAtOnce(t *testing.T) {
	conf := modeltest.Default()
	conf.EOS = 2
	m := target(t, modeltest.Random(t, conf, 5), cpu.Default(), model.Default())
	lines := func(record string, n int) string { return strings.Repeat(record+"\n", n) }
	text, asked := lines(`{"text":"5 6 7"}`, 60), lines(`{"prompt":"12 13"}`, 10)
	quiet := preprocess.Answer{}
	for _, c := range []struct {
		name, text string
		generator  *mute
		answerer   *distant
		template   bool
		want       string
	}{
		{"text", text, &mute{}, nil, true, "32 of 32 answers end with their first token: these prompts are plain text without the chat template, as "},
		{"few texts", lines(`{"text":"5 6 7"}`, 3), &mute{}, nil, true, "3 of 3 answers"},
		{"prompts without a template", asked, &mute{}, nil, false, "10 of 10 answers end with their first token: these prompts are plain text"},
		{"prompts", asked, &mute{}, nil, true, "10 of 10 answers end with their first token: is the chat template the model's own?"},
		{"half", text, &mute{speaks: 2}, nil, true, ""},
		{"most", text, &mute{speaks: 3}, nil, true, "21 of 32 answers"},
		{"a server's", text, nil, &distant{answer: func(*preprocess.Question, int) (preprocess.Answer, error) { return quiet, nil }}, true, "32 of 32 answers end with their first token: these prompts"},
		{"a server's answers", asked, nil, &distant{}, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said []string
			in := preprocess.Inputs{Target: m, Tokenizer: speaking{numbers: numbers{1}}, Sampling: "mute", ChatHash: "t", Warn: func(s string) { said = append(said, s) }}
			if c.generator != nil {
				in.Generator = c.generator
			} else {
				in.Answerer = c.answerer
			}
			if c.template {
				in.Chat = parse(t, numberTemplate)
			}
			p := preprocess.Default()
			p.Files, p.Out, p.TopK, p.MaxLen, p.Prompts = []string{write(t, "in.jsonl", c.text)}, t.TempDir(), 6, 30, 1
			if _, err := preprocess.Run(t.Context(), p, in); err != nil {
				t.Fatal(err)
			}
			if (c.want == "") != (len(said) == 0) || len(said) > 1 || !strings.Contains(strings.Join(said, ""), c.want) {
				t.Errorf("said %q, want %q", said, c.want)
			}
		})
	}
}

// Answers in text give the rows that the same answers in tokens give, whatever the order in which
// they arrive.
func TestAnswersInTextAreThoseInTokens(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	lines := []string{
		talk("user", "10 11", "12", "13", "14"),
		`{"turns":["10","11"]}`,
		`{"prompt":"12"}`,
		`{"text":"5 6"}`,
		talk("user", "10", "1", strings.Repeat("9 ", 40), "1"), // the second prompt is too long
		talk("user", strings.Repeat("9 ", 40), "1"),
		talk("assistant", "7", "10", "8", "9"),
		talk("assistant", "7"),
		`{"messages":[{"role":"system","content":"rule"},{"role":"user","content":"5"}]}`,
		`{"messages":[{"role":"user","content":"10"},{"role":"assistant","content":"77","tool_calls":[{"function":{"name":"77","arguments":{"a":1}}}]},{"role":"tool","content":"11"},{"role":"assistant","content":"1"},{"role":"user","content":"12"}]}`,
	}
	for i := range 20 {
		lines = append(lines, fmt.Sprintf(`{"prompt":"%d"}`, 10+i))
	}
	c := preprocess.Default()
	c.Files, c.TopK, c.MaxLen, c.Shard = []string{write(t, "in.jsonl", strings.Join(lines, "\n"))}, 6, 30, 7
	in := preprocess.Inputs{Target: m, Tokenizer: speaking{numbers: numbers{1}}, Sampling: "echo", ChatHash: "t"}
	for _, template := range []bool{true, false} {
		c := c
		if in.Chat = nil; template {
			in.Chat = parse(t, strings.Replace(numberTemplate, "m.content +", "(m.content ~ '') +", 1))
		} else {
			c.Files = []string{write(t, "text.jsonl", `{"turns":["5 6","7 8 9","4"]}`+"\n"+`{"prompt":"10"}`+"\n"+`{"prompt":"`+strings.Repeat("4 ", 30)+`"}`+"\n"+
				`{"turns":["5 6","`+strings.Repeat("4 ", 25)+`","4"]}`)}
		}
		in.Answerer, in.Generator = nil, &echoed{}
		c.Out = t.TempDir()
		want, err := preprocess.Run(t.Context(), c, in)
		if err != nil {
			t.Fatal(err)
		}
		for _, prompts := range []int{1, 3, 16} {
			g := &distant{}
			in.Answerer, in.Generator = g, nil
			again := c
			again.Out, again.Prompts = t.TempDir(), prompts
			got, err := preprocess.Run(t.Context(), again, in)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("template %t, %d prompts: %s", template, prompts, d)
			}
			if g.most > prompts {
				t.Errorf("%d questions at a time, want at most %d", g.most, prompts)
			}
			sameSet(t, c.Out, again.Out)
			if i := slices.IndexFunc(g.asked, func(s string) bool { return strings.Contains(s, "tool_calls") }); template && (i < 0 || !strings.Contains(g.asked[i], `"arguments":"{\"a\":1}"`)) {
				t.Errorf("arguments of calls are no texts: %v", g.asked)
			}
		}
	}
}

// An answer without an end has no end token, a refused prompt is left out, and thoughts stand where
// the template writes them.
func TestAnswersThatAreMoreOrLessThanText(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	file := write(t, "in.jsonl", strings.Join([]string{
		`{"turns":["10","20"]}`, `{"turns":["11","21"]}`, `{"turns":["12","22"]}`, `{"turns":["13","23"]}`, `{"turns":["14","24"]}`, `{"turns":["15","25"]}`, `{"turns":["16","26"]}`,
	}, "\n"))
	template := strings.Replace(numberTemplate, "{{ m.content + ' 2' }}", "{{ (m.reasoning_content ~ ' 9 ' if m.reasoning_content else '') + m.content + ' 2' }}", 1)
	answer := func(_ *preprocess.Question, last int) (preprocess.Answer, error) {
		a := preprocess.Answer{Text: strconv.Itoa(last + 30)}
		switch last {
		case 10, 21: // cut off in the first turn, or in the second
			a.Text, a.Cut = "61 62 63", true
		case 12:
			return a, fmt.Errorf("status 400: %w", preprocess.ErrRefused)
		case 23:
			return a, preprocess.ErrRefused
		case 14:
			a.Reasoning = "70 71"
		case 15, 26: // cut off after thoughts
			a.Reasoning, a.Cut = "70 71", true
		}
		return a, nil
	}
	for _, templated := range []bool{true, false} {
		var bad []string
		in := preprocess.Inputs{Target: m, Tokenizer: speaking{numbers: numbers{1}}, ChatHash: "t", Answerer: &distant{answer: answer}, Sampling: "distant", Bad: func(b corpus.BadLine) {
			bad = append(bad, fmt.Sprintf("%d: %s", b.Line, b.Why))
		}}
		if templated {
			in.Chat = parse(t, template)
		}
		c := preprocess.Default()
		c.Files, c.Out, c.TopK, c.MaxLen = []string{file}, t.TempDir(), 6, 30
		st, err := preprocess.Run(t.Context(), c, in)
		if err != nil {
			t.Fatal(err)
		}
		_, got := rows(t, c.Out)
		var show []string
		for _, r := range got {
			show = append(show, marked(r.Tokens, r.LossMask))
		}
		want := []string{
			"3 10 4 [61] [62] [63]",
			"3 11 4 [41] [2] 3 21 4 [61] [62] [63]",
			"3 13 4 [43] [2]",
			"3 14 4 [70] [71] [9] [44] [2] 3 24 4 [54] [2]",
			"3 16 4 [46] [2]",
		}
		dropped := map[string]int{"the server refused the prompt": 1, "the target gave no answer": 1}
		if !templated {
			want = []string{
				"1 10 [61] [62] [63]",
				"1 11 [41] 21 [61] [62] [63]",
				"1 13 [43] [2]",
				"1 14 [44] 24 [54] [2]",
				"1 15 [45]",
				"1 16 [46] 26 [56]",
			}
			delete(dropped, "the target gave no answer")
		}
		if d := cmp.Diff(want, show); d != "" {
			t.Errorf("template %t: %s", templated, d)
		}
		if d := cmp.Diff(dropped, st.Dropped); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{"3: status 400: the prompt is refused"}, bad); d != "" {
			t.Error(d)
		}
	}
}

// Text after the last end of a sequence's room is cut off, and nothing is learnt of the questions.
func TestAnswersFillTheRoomThatTheyHave(t *testing.T) {
	tok, err := tokenizer.Load(golden.File(t, "tokenizers/llama3-style"))
	if err != nil {
		t.Fatal(err)
	}
	o := modeltest.Default()
	o.Vocab = tok.VocabSize()
	m := target(t, modeltest.Random(t, o, 5), cpu.Default(), model.Default())
	long := preprocess.Answer{Text: strings.Repeat(" and on", 40)}
	g := answers(func(*preprocess.Question) (preprocess.Answer, error) { return long, nil })
	c := preprocess.Default()
	c.Files, c.Out, c.TopK, c.MaxLen = []string{write(t, "in.jsonl", `{"prompt":"It goes on"}`)}, t.TempDir(), 6, 24
	in := preprocess.Inputs{Target: m, Tokenizer: tok, TokenizerHash: tok.Hash(), Answerer: g, Sampling: "long"}
	if _, err := preprocess.Run(t.Context(), c, in); err != nil {
		t.Fatal(err)
	}
	_, got := rows(t, c.Out)
	ids, err := tok.Encode("It goes on"+long.Text, true)
	if err != nil {
		t.Fatal(err)
	}
	before, err := tok.Encode("It goes on", true)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || !slices.Equal(got[0].Tokens, ids[:24]) || slices.Index(got[0].LossMask, true) != len(before) {
		t.Errorf("%+v", got)
	}
}

type answers func(q *preprocess.Question) (preprocess.Answer, error)

func (f answers) Answer(_ context.Context, q *preprocess.Question) (preprocess.Answer, error) {
	return f(q)
}

// The first failure in the order of the input ends a run, with all its goroutines.
func TestFailedAnswersEndTheRun(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	var lines []string
	for i := range 60 {
		lines = append(lines, fmt.Sprintf(`{"prompt":"%d"}`, 10+i))
	}
	file := write(t, "in.jsonl", strings.Join(lines, "\n"))
	in := preprocess.Inputs{Target: m, Tokenizer: numbers{1}, Sampling: "distant"}
	before := runtime.NumGoroutine()
	in.Answerer = &distant{answer: func(q *preprocess.Question, last int) (preprocess.Answer, error) {
		if last > 40 {
			return preprocess.Answer{}, fmt.Errorf("%s: the line is dead", q.Place)
		}
		return preprocess.Answer{Text: "5"}, nil
	}}
	c := preprocess.Default()
	c.Files, c.Out, c.TopK, c.Shard, c.Prompts = []string{file}, t.TempDir(), 6, 10, 4
	_, err := preprocess.Run(t.Context(), c, in)
	if want := "preprocess: regenerate: " + file + ":32: the line is dead"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	ended(t, before)
	ctx, cancel := context.WithCancel(t.Context())
	in.Answerer = &distant{answer: func(_ *preprocess.Question, last int) (preprocess.Answer, error) {
		if last == 45 {
			cancel()
		}
		return preprocess.Answer{Text: "5"}, ctx.Err()
	}}
	if _, err := preprocess.Run(ctx, c, in); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was cancelled", err)
	}
	ended(t, before)
	in.Answerer = &distant{answer: func(*preprocess.Question, int) (preprocess.Answer, error) { return preprocess.Answer{Text: "5"}, nil }}
	st, err := preprocess.Run(t.Context(), c, in)
	if err != nil || st.Sequences != 60 || st.Resumed == 0 {
		t.Errorf("%+v, %v: want that the finished shards are kept", st, err)
	}
}
