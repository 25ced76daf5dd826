package preprocess_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"talf/compute/cpu"
	"talf/data"
	"talf/data/corpus"
	"talf/internal/golden"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// unguarded is a tokenizer without special tokens in texts.
type unguarded struct{}

func (unguarded) Controls(string) ([]int, error) { return nil, nil }

func (unguarded) EncodeLiteral(string, []int, bool) ([]int32, error) {
	return nil, errors.New("nothing asks for ids without their spans")
}

// speaking is numbers with the methods that conversations need.
type speaking struct {
	numbers
	unguarded
}

func (speaking) EncodeLiteralOffsets(text string, _ []int, _ bool) (ids []int32, at []tokenizer.Span, err error) {
	for i := 0; i < len(text); {
		if text[i] == ' ' {
			i++
			continue
		}
		n := strings.IndexByte(text[i:]+" ", ' ')
		id, err := strconv.Atoi(text[i : i+n])
		if err != nil {
			return nil, nil, err
		}
		ids, at = append(ids, int32(id)), append(at, tokenizer.Span{Start: i, End: i + n})
		i += n
	}
	return ids, at, nil
}

func (speaking) Decode(ids []int32, skipSpecial bool) string {
	var words []string
	for _, id := range ids {
		if id != 2 || !skipSpecial {
			words = append(words, strconv.Itoa(int(id)))
		}
	}
	return strings.Join(words, " ")
}

// A template over numbers: 3 begins a user's turn, 4 begins an answer, and 2 ends it.
const numberTemplate = `{%- for m in messages -%}
{%- if m.role == 'system' %}{{ raise_exception('no ' + m.content + ' here') }}{% endif -%}
{%- if m.role == 'assistant' -%}{{ ' 4 ' }}{% generation %}{{ m.content + ' 2' }}{% endgeneration %}{%- else -%}{{ ' 3 ' + m.content }}{%- endif -%}
{%- endfor -%}{%- if add_generation_prompt -%}{{ ' 4' }}{%- endif -%}`

func parse(t testing.TB, source string) *chat.Template {
	t.Helper()
	c, err := chat.Parse("test", source)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// talk returns a messages record of alternating turns.
func talk(first string, turns ...string) string {
	var b strings.Builder
	role := first
	for i, s := range turns {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":%q,"content":%q}`, role, s)
		if role == "user" {
			role = "assistant"
		} else {
			role = "user"
		}
	}
	return `{"messages":[` + b.String() + `]}`
}

// marked writes a sequence with its loss in brackets.
func marked(tokens []int32, loss []bool) string {
	var words []string
	for i, id := range tokens {
		w := strconv.Itoa(int(id))
		if loss[i] {
			w = "[" + w + "]"
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

func TestConversationsBecomeSequences(t *testing.T) {
	long := strings.Repeat("9 ", 30)
	file := write(t, "in.jsonl", strings.Join([]string{
		talk("user", "10 11", "12", "13", "14 15"),
		talk("user", "10", "11", "12"),                        // the last turn has no answer
		talk("user", "10", "11", "12", "13", "14", long, "5"), // the second answer is the last that fits
		talk("user", "10", "11", long, "12", "13", "14"),
		talk("user", long, "12"), // nothing fits
		talk("user", "10"),       // no answer at all
		talk("user", "10", "", "11", "12"),
		`{"messages":[{"role":"user","content":"10"},{"role":"assistant","content":"  ","tool_calls":[]},{"role":"user","content":"10"},{"role":"assistant","content":"11"}]}`,
		`{"messages":[{"role":"user","content":"10"},{"role":"assistant","content":"","weight":0},{"role":"user","content":"12"},{"role":"assistant","content":"13"}]}`,
		talk("system", "systems", "10"),
		talk("system", "1", "10"),
		`{"messages":[]}`,
		`{"messages":[{"role":"user","content":"1"}],"tools":[3]}`,
		`{"messages":[{"role":"assistant","content":"1"}],"tools":[3]}`,
		`{"text":"5 6 7"}`,
		`{"conversations":[{"from":"human","value":"10"},{"from":"gpt","value":"11"}]}`,
		`{"messages":[{"role":"user","content":"10"},{"role":"assistant","content":"11","weight":0},{"role":"user","content":"12"},{"role":"assistant","content":"13","weight":1}]}`,
		`{"messages":[{"role":"user","content":"10"},{"role":"assistant","content":"11","weight":0}]}`,
	}, "\n"))
	c := preprocess.Default()
	c.Files, c.MaxLen = []string{file}, 18
	var got, bad []string
	r := preprocess.Reader{Tokenizer: speaking{numbers: numbers{1}}, Chat: parse(t, numberTemplate), Vocab: 97, EOS: 2}
	for s, err := range preprocess.Samples(context.Background(), c, r, func(b corpus.BadLine) { bad = append(bad, fmt.Sprintf("%d: %s", b.Line, b.Why)) }) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Drop != "" {
			got = append(got, fmt.Sprintf("%d: %s", s.Line, s.Drop))
		} else {
			got = append(got, fmt.Sprintf("%d: %s (%d turns, %d cut)", s.Line, marked(s.Tokens, s.Loss), s.Turns, s.Cut))
		}
	}
	want := []string{
		"1: 3 10 11 4 [12] [2] 3 13 4 [14] [15] [2] (4 turns, 0 cut)",
		"2: 3 10 4 [11] [2] (2 turns, 1 cut)",
		"3: 3 10 4 [11] [2] 3 12 4 [13] [2] (4 turns, 3 cut)",
		"4: 3 10 4 [11] [2] (2 turns, 4 cut)",
		"5: too long: no assistant turn ends within the length limit",
		"6: no assistant turn",
		"7: an answer is empty: it has no text, and no call of a tool that the template writes",
		"8: an answer is empty: it has no text, and no call of a tool that the template writes",
		"9: 3 10 4 2 3 12 4 [13] [2] (4 turns, 0 cut)",
		"10: no assistant turn",
		"11: no assistant turn",
		"13: no assistant turn",
		"14: bad line",
		"15: [1] [5] [6] [7] (0 turns, 0 cut)",
		"16: 3 10 4 [11] [2] (2 turns, 0 cut)",
		"17: 3 10 4 11 2 3 12 4 [13] [2] (4 turns, 0 cut)",
		"18: no token of an answer to learn",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	wantBad := []string{
		"7: an answer is empty: it has no text, and no call of a tool that the template writes",
		"8: an answer is empty: it has no text, and no call of a tool that the template writes",
		`12: field "messages": want a list of messages`,
		"14: conversation: tools[0]: a number, want an object",
	}
	if d := cmp.Diff(wantBad, bad); d != "" {
		t.Error(d)
	}
}

// The report of a run over several files has exact counts, in the result and in
// the shards, and an interrupted run gives the same bytes.
func TestReportOfConversations(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	dir := t.TempDir()
	var a, b strings.Builder
	for i := range 30 {
		fmt.Fprintln(&a, talk("user", "10", strconv.Itoa(20+i%5), "12", "13"))
		switch {
		case i%10 == 3:
			fmt.Fprintln(&a, `{"messages":[{"role":"system","content":"rule"},{"role":"user","content":"5"},{"role":"assistant","content":"6"}]}`)
		case i%10 == 4:
			fmt.Fprintln(&a, `{"messages":3}`)
		}
	}
	for i := range 20 { // each one gives a different message
		fmt.Fprintf(&b, `{"messages":[{"role":"system","content":"rule %d"},{"role":"assistant","content":"6"}]}`+"\n", i)
	}
	fmt.Fprintln(&b, `{"text":"1 2 3 4 5"}`)
	for name, text := range map[string]string{"a.jsonl": a.String(), "b.jsonl": b.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	c := preprocess.Default()
	c.Files, c.Out, c.TopK, c.Shard, c.Tokens = []string{dir}, t.TempDir(), 6, 8, 60
	in := preprocess.Inputs{Target: m, Tokenizer: speaking{numbers: numbers{1}}, TokenizerHash: "numbers", Chat: parse(t, numberTemplate), ChatHash: "t"}
	bad := 0
	in.Bad = func(corpus.BadLine) { bad++ }
	st, err := preprocess.Run(context.Background(), c, in)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Inputs) != 2 || filepath.Base(st.Inputs[1].File) != "b.jsonl" {
		t.Fatalf("%+v", st.Inputs)
	}
	// 3 10 4 x 2 3 12 4 13 2
	wantA := data.Input{Input: 0, Rows: 30, Conversations: 33, Turns: 120, Tokens: 300, Loss: 120, Dropped: map[string]int{"template: no rule here": 3, "bad line": 3}}
	if d := cmp.Diff(wantA, st.Inputs[0].Input); d != "" {
		t.Error(d)
	}
	got := st.Inputs[1].Input
	wantB := data.Input{Input: 1, Rows: 1, Conversations: 20, Tokens: 5, Loss: 5, Dropped: map[string]int{}}
	for i := range 20 {
		wantB.Dropped[fmt.Sprintf("template: no rule %d here", i)] = 1
	}
	if d := cmp.Diff(wantB, got); d != "" {
		t.Error(d)
	}
	if st.Sequences != 31 || st.Tokens != 305 || st.LossTokens != 125 || bad != 26 {
		t.Errorf("%+v, %d bad", st, bad)
	}
	set, err := data.Open(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	sum, err := set.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]data.Input{wantA, got}, sum.Inputs); d != "" {
		t.Error(d)
	}

	// A run that is stopped after every few batches still reports and writes the same.
	again := c
	again.Out = t.TempDir()
	for stop := 1; ; stop += 2 {
		ctx, cancel := context.WithCancel(context.Background())
		calls := 0
		in.Progress = func(preprocess.Progress) {
			if calls++; calls == stop {
				cancel()
			}
		}
		st2, err := preprocess.Run(ctx, again, in)
		cancel()
		if errors.Is(err, context.Canceled) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		st2.Resumed = st.Resumed
		if d := cmp.Diff(st, st2); d != "" {
			t.Error(d)
		}
		break
	}
	sameSet(t, c.Out, again.Out)

	// Another template gives another set.
	in.ChatHash, in.Progress = "u", nil
	if _, err := preprocess.Run(context.Background(), again, in); err == nil || !strings.Contains(err.Error(), "source") {
		t.Errorf("%v, want a refusal", err)
	}
}

// Refusals with a different message for every conversation do not fill the shards.
func TestOneShardKeepsFewRefusals(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, `{"messages":[{"role":"system","content":"%s%02d"},{"role":"assistant","content":"6"}]}`+"\n", strings.Repeat("é ", 200*(i%2)), i%20)
	}
	b.WriteString(talk("user", "5", "6"))
	c := preprocess.Default()
	c.Files, c.Out, c.TopK = []string{write(t, "in.jsonl", b.String())}, t.TempDir(), 6
	st, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: speaking{numbers: numbers{1}}, Chat: parse(t, numberTemplate)})
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for why, n := range st.Dropped {
		total += n
		if len(why) > 200 || strings.Contains(why, "\uFFFD") {
			t.Errorf("%d bytes: %s", len(why), why)
		}
	}
	// All long messages begin alike; ten short ones differ.
	if total != 40 || st.Dropped["template: no 00 here"] != 2 || len(st.Dropped) != 11 {
		t.Errorf("%d: %v", total, st.Dropped)
	}
}

// Templates require messages that call tools in different forms. A template that omits
// the calls is of no use.
func TestToolCallsAreWrittenInTheFormThatTheTemplateTakes(t *testing.T) {
	const calls = `{"messages":[{"role":"user","content":"10"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"77","arguments":"{\"a\": 5}"}}]},{"role":"tool","content":"6"},{"role":"assistant","content":"7"}]}`
	turn := func(written string) string {
		return `{% if m.role == 'assistant' %} 4 {% generation %}{{ m.content or '' }}` + written + ` 2{% endgeneration %}{% else %} 3 {{ m.content }}{% endif %}`
	}
	call := func(arguments string) string {
		return turn(`{% if m.tool_calls %}{{ m.tool_calls[0].function.name }} {{ ` + arguments + ` }}{% endif %}`)
	}
	for _, c := range []struct{ body, want string }{
		{call("m.tool_calls[0].function.arguments.a"), "3 10 4 [77] [5] [2] 3 6 4 [7] [2]"},
		{call("m.tool_calls[0].function.arguments.a") + `{% if m.content is none %}{{ raise_exception('no null') }}{% endif %}`, "3 10 4 [77] [5] [2] 3 6 4 [7] [2]"},
		{call("(m.tool_calls[0].function.arguments + ' ').split(' ')[1].strip('}')"), "3 10 4 [77] [5] [2] 3 6 4 [7] [2]"},
		{call("m.tool_calls[0].function.arguments.a + m.content"), "template: TypeError"},
		{turn(""), "template: it does not write the calls of tools"},
	} {
		conf := preprocess.Default()
		conf.Files = []string{write(t, "in.jsonl", calls)}
		r := preprocess.Reader{Tokenizer: speaking{numbers: numbers{1}}, Chat: parse(t, "{% for m in messages %}"+c.body+"{% endfor %}"), Vocab: 97, EOS: 2}
		for s, err := range preprocess.Samples(context.Background(), conf, r, nil) {
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Drop + marked(s.Tokens, s.Loss); !strings.HasPrefix(got, c.want) || s.Drop == "" && got != c.want {
				t.Errorf("%s: %s, want %s", c.body, got, c.want)
			}
		}
	}
}

// A message that holds the text of a special token neither ends its turn nor teaches the model to
// end its own there.
func TestMessagesHoldNoSpecialTokens(t *testing.T) {
	tok, err := tokenizer.Load("../internal/demo/target")
	if err != nil {
		t.Fatal(err)
	}
	const source = "{% for m in messages %}<|begin|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>{% endgeneration %}{% else %}{{ m.content }}<|end|>{% endif %}{% endfor %}"
	conf := preprocess.Default()
	conf.Files = []string{write(t, "in.jsonl", `{"messages":[{"role":"user","content":"a<|end|><|begin|>b"},{"role":"assistant","content":"c <|end|> d"}]}`)}
	for _, c := range []struct {
		template       *chat.Template
		special, learn int
	}{
		{parse(t, source), 4, 1},
		{parse(t, source).WithControlTokens(), 7, 2},
	} {
		for s, err := range preprocess.Samples(t.Context(), conf, preprocess.Reader{Tokenizer: tok, Chat: c.template, Vocab: tok.VocabSize(), EOS: -1}, nil) {
			if err != nil || s.Drop != "" {
				t.Fatalf("%v %s", err, s.Drop)
			}
			special, learn := 0, 0
			for i, id := range s.Tokens {
				if tok.Special(id) {
					special++
					if s.Loss[i] {
						learn++
					}
				}
			}
			if special != c.special || learn != c.learn {
				t.Errorf("%d special tokens, %d of them learnt, want %d and %d", special, learn, c.special, c.learn)
			}
			if text, want := tok.Decode(s.Tokens, false), "<|begin|>a<|end|><|begin|>b<|end|><|begin|>c <|end|> d<|end|>"; text != want {
				t.Errorf("the tokens spell %q, want %q", text, want)
			}
		}
	}
}

// A text that starts with the beginning token does not get a second one.
func TestTemplatedTextGetsOneBeginningToken(t *testing.T) {
	c := preprocess.Default()
	c.Files = []string{write(t, "in.jsonl", `{"text":"1 5 6"}`+"\n"+`{"text":"5 6"}`+"\n"+`{"text":"5 1 6"}`)}
	var got []string
	for s, err := range preprocess.Samples(context.Background(), c, preprocess.Reader{Tokenizer: numbers{1}, Vocab: 97, EOS: 2}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(s.Tokens))
	}
	if d := cmp.Diff([]string{"[1 5 6]", "[1 5 6]", "[1 5 1 6]"}, got); d != "" {
		t.Error(d)
	}
}

func TestConversationsNeedATemplateAndOffsets(t *testing.T) {
	c := preprocess.Default()
	c.Files = []string{write(t, "in.jsonl", talk("user", "1", "2"))}
	for _, r := range []preprocess.Reader{
		{Tokenizer: speaking{numbers: numbers{1}}, Vocab: 97},
		{Tokenizer: numbers{1}, Chat: parse(t, numberTemplate), Vocab: 97},
		{Tokenizer: speaking{numbers: numbers{1}}, Chat: parse(t, numberTemplate), Vocab: 4},
	} {
		var last error
		for _, last = range preprocess.Samples(context.Background(), c, r, nil) {
		}
		if last == nil || !strings.Contains(last.Error(), "in.jsonl:1") || (r.Chat == nil) != errors.Is(last, preprocess.ErrNoTemplate) {
			t.Errorf("%v", last)
		}
	}
}

// echo answers with the last number of the prompt's user turn plus 30, and the end
// token unless the answer has no room for it.
type echo struct{ prompts []string }

func (g *echo) Generate(_ context.Context, prompts []preprocess.Prompt) ([][]int32, error) {
	var out [][]int32
	for _, p := range prompts {
		g.prompts = append(g.prompts, strings.Trim(fmt.Sprint(p.Tokens), "[]"))
		a := []int32{p.Tokens[len(p.Tokens)-2] + 30, 2}
		out = append(out, a[:min(len(a), p.Max)])
	}
	return out, nil
}

func TestConversationsAreAnsweredThroughTheTemplate(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	file := write(t, "in.jsonl", strings.Join([]string{
		talk("user", "10 11", "12", "13", "14"),
		`{"turns":["10","11"]}`,
		`{"prompt":"12"}`,
		`{"text":"5 6"}`,                                       // continued as it is
		talk("user", "10", "1", strings.Repeat("9 ", 40), "1"), // the second prompt is too long
		talk("user", strings.Repeat("9 ", 40), "1"),
		talk("assistant", "7", "10", "8", "9"), // begins with a given answer, ends with a question
		talk("assistant", "7"),
		`{"messages":[{"role":"system","content":"rule"},{"role":"user","content":"5"}]}`,
		`{"messages":[{"role":"user","content":"10"},{"role":"assistant","content":"77","tool_calls":[{}]},{"role":"tool","content":"11"},{"role":"assistant","content":"1"},{"role":"assistant","content":"2"},{"role":"user","content":"12"}]}`,
	}, "\n"))
	c := preprocess.Default()
	c.Files, c.Out, c.TopK, c.MaxLen = []string{file}, t.TempDir(), 6, 30
	g := &echo{}
	in := preprocess.Inputs{Target: m, Tokenizer: speaking{numbers: numbers{1}}, Chat: parse(t, numberTemplate), ChatHash: "t", Generator: g, Sampling: "echo"}
	st, err := preprocess.Run(context.Background(), c, in)
	if err != nil {
		t.Fatal(err)
	}
	_, got := rows(t, c.Out)
	var show []string
	for _, r := range got {
		show = append(show, marked(r.Tokens, r.LossMask))
	}
	want := []string{
		"3 10 11 4 [41] [2] 3 13 4 [43] [2]",
		"3 10 4 [40] [2] 3 11 4 [41] [2]",
		"3 12 4 [42] [2]",
		"1 5 6 [35] [2]",
		"3 10 4 [40] [2]",
		"4 [7] [2] 3 10 4 [40] [2] 3 9 4 [39] [2]",
		"3 10 4 [77] [2] 3 11 4 [41] [2] 3 12 4 [42] [2]",
	}
	if d := cmp.Diff(want, show); d != "" {
		t.Error(d)
	}
	wantDropped := map[string]int{"prompt leaves no room for an answer": 1, "no assistant turn": 1, "template: no rule here": 1}
	if d := cmp.Diff(wantDropped, st.Dropped); d != "" {
		t.Error(d)
	}
	if in := st.Inputs[0]; in.Conversations != 9 || in.Turns != 4+4+2+2+5+6 || in.Cut != 2 {
		t.Errorf("%+v", in)
	}
	again := c
	again.Out, again.Prompts = t.TempDir(), 2
	if _, err := preprocess.Run(context.Background(), again, in); err != nil {
		t.Fatal(err)
	}
	sameSet(t, c.Out, again.Out)
}

// A chatCase is a line of data/chat.
type chatCase struct {
	Name     string            `json:"name"`
	Messages []json.RawMessage `json:"messages"`
	Tools    json.RawMessage   `json:"tools"`
	Prompt   bool              `json:"add_generation_prompt"`
	Date     string            `json:"date_string"`
	Text     string            `json:"text"`
	Spans    [][2]int          `json:"assistant_spans"`
}

func chatCases(t *testing.T, name string) []chatCase {
	t.Helper()
	var out []chatCase
	lines := bufio.NewScanner(bytes.NewReader(golden.Read(t, "chat/"+name+".jsonl")))
	for lines.Scan() {
		var c chatCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

// The loss covers what transformers marks: a messages file of the cases with
// assistant_spans goes through real tokenizers. A token is in the loss if and only if
// its first byte that is not white space is in a span of the reference, and all bytes
// of the spans except white space are in such tokens.
func TestLossIsOnTheSpansOfTheReference(t *testing.T) {
	for _, family := range []string{"llama3-style", "gpt2", "gpt-neox", "llama2", "phi3"} {
		t.Run(family, func(t *testing.T) {
			var dir string
			if family == "llama3-style" {
				dir = golden.File(t, "tokenizers/"+family)
			} else {
				dir = golden.Shared(t, "data/tokenizers/"+family)
			}
			tok, err := tokenizer.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			lossIsOnTheSpansOfTheReference(t, tok)
		})
	}
}

func lossIsOnTheSpansOfTheReference(t *testing.T, tok *tokenizer.Tokenizer) {
	checked := 0
	for _, name := range []string{"chatml", "llama-2-chat", "vicuna-v1.1", "zephyr"} {
		template, err := chat.LoadFile(golden.File(t, "chat/"+name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		var file strings.Builder
		var cases []chatCase
		for _, c := range chatCases(t, name) {
			if len(c.Spans) == 0 || c.Prompt {
				continue
			}
			cases = append(cases, c)
			line, err := json.Marshal(map[string]any{
				"messages": c.Messages, "id": c.Name,
				"chat_template_kwargs": map[string]string{"bos_token": "<s>", "eos_token": "</s>", "date_string": c.Date},
			})
			if err != nil {
				t.Fatal(err)
			}
			file.Write(append(line, '\n'))
		}
		conf := preprocess.Default()
		conf.Files = []string{write(t, "in.jsonl", file.String())}
		i := 0
		for s, err := range preprocess.Samples(context.Background(), conf, preprocess.Reader{Tokenizer: tok, Chat: template, Vocab: tok.VocabSize(), EOS: -1}, nil) {
			if err != nil || s.Drop != "" {
				t.Fatalf("%s: %s: %v %s", name, s.ID, err, s.Drop)
			}
			c := cases[i]
			i++
			end := c.Spans[len(c.Spans)-1][1]
			for ; end < len(c.Text) && c.Text[end] == '\n'; end++ { // these templates write line breaks after an answer
			}
			ids, at, err := tok.EncodeOffsets(c.Text[:end], false)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ids, s.Tokens) {
				t.Fatalf("%s: %s: tokens %v, want %v", name, c.Name, s.Tokens, ids)
			}
			in := make([]bool, len(c.Text))
			for _, sp := range c.Spans {
				for b := sp[0]; b < sp[1]; b++ {
					in[b] = true
				}
			}
			learnt := make([]bool, len(c.Text))
			for j, tok := range at {
				word := strings.TrimLeft(c.Text[tok.Start:tok.End], " \n")
				first := tok.End - max(1, len(word)) // of only white space: the last byte
				if want := first >= 0 && in[first]; s.Loss[j] != want {
					t.Errorf("%s: %s: token %d %q: loss %v, want %v", name, c.Name, j, c.Text[tok.Start:tok.End], s.Loss[j], want)
				}
				for b := tok.Start; b < tok.End; b++ {
					learnt[b] = learnt[b] || s.Loss[j]
				}
			}
			for b := range c.Text {
				if in[b] && !learnt[b] && strings.TrimSpace(c.Text[b:b+1]) != "" {
					t.Errorf("%s: %s: byte %d of an answer, %q, is not in the loss", name, c.Name, b, c.Text[b])
				}
			}
			checked++
		}
		if i != len(cases) {
			t.Errorf("%s: %d sequences of %d cases", name, i, len(cases))
		}
	}
	if checked == 0 {
		t.Error("no cases")
	}
	t.Logf("%d sequences", checked)
}

// letters is a tokenizer whose tokens are characters.
type letters struct{ unguarded }

func (letters) Encode(text string, _ bool) ([]int32, error) { return []rune(text), nil }

func (letters) EncodeLiteralOffsets(text string, _ []int, _ bool) (ids []int32, at []tokenizer.Span, err error) {
	for i, r := range text {
		ids, at = append(ids, r), append(at, tokenizer.Span{Start: i, End: i + utf8.RuneLen(r)})
	}
	return ids, at, nil
}

// Templates without marks: the loss begins and ends where the assistant's words do,
// except for white space and the token at the end.
func TestLossOfTemplatesWithoutMarks(t *testing.T) {
	turns := []string{"Hi", "Hello there.", "And then?", "Nothing more, I fear."}
	for _, c := range []struct{ name, end string }{
		{"Qwen-Qwen2.5-7B-Instruct", "<|im_end|>"},
		{"Qwen-Qwen3-0.6B", "<|im_end|>"},
		{"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "<｜end▁of▁sentence｜>"},
		{"google-gemma-2-2b-it", "<end_of_turn>"},
		{"meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|>"},
		{"microsoft-Phi-3.5-mini-instruct", "<|end|>"},
		{"mistralai-Mistral-Nemo-Instruct-2407", "</s>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			template, err := chat.LoadFile(golden.Shared(t, "data/chat/"+c.name+".jinja"))
			if err != nil {
				t.Fatal(err)
			}
			conf := preprocess.Default()
			record := strings.Replace(talk("user", turns...), "{", `{"chat_template_kwargs":{"bos_token":"<s>","eos_token":"</s>","date_string":"26 Jul 2024"},`, 1)
			conf.Files = []string{write(t, "in.jsonl", record)}
			for s, err := range preprocess.Samples(context.Background(), conf, preprocess.Reader{Tokenizer: letters{}, Chat: template, Vocab: utf8.MaxRune + 1, EOS: -1}, nil) {
				if err != nil || s.Drop != "" {
					t.Fatalf("%s: %v %s", c.name, err, s.Drop)
				}
				var answers []string
				open := false
				for i, id := range s.Tokens {
					if s.Loss[i] && !open {
						answers = append(answers, "")
					}
					if open = s.Loss[i]; open {
						answers[len(answers)-1] += string(rune(id))
					}
				}
				for i := range answers {
					for _, end := range []string{"</s>", c.end} { // some end the whole conversation too
						answers[i] = strings.TrimSpace(strings.TrimSuffix(answers[i], end))
					}
				}
				want := []string{turns[1], turns[3]}
				if c.name == "Qwen-Qwen3-0.6B" { // this template puts empty reasoning before the last answer
					want[1] = "<think>\n\n</think>\n\n" + want[1]
				}
				if d := cmp.Diff(want, answers); d != "" {
					t.Errorf("%s: %s", c.name, d)
				}
			}
		})
	}
}

// For any records: no panic, sequences within the limit with a loss value per token,
// and a token to train on in every sequence that is kept.
func FuzzConversations(f *testing.F) {
	f.Add(talk("user", "Hi", "Hello.", "And?", "No.")+"\n"+talk("system", "x", "y"), 30)
	f.Add(`{"conversations":[{"from":"human","value":"a"},{"from":"function_call","value":"{\"name\":\"f\"}"},{"from":"gpt","value":""}]}`+"\n"+`{"turns":["a","b"]}`, 3)
	f.Add(`{"messages":[{"role":"assistant","content":"a","weight":0},{"role":"assistant","content":"b"}],"chat_template_kwargs":{"m":1}}`, 90)
	unmarked := strings.NewReplacer("{% generation %}", "", "{% endgeneration %}", "").Replace(numberTemplate)
	f.Fuzz(func(t *testing.T, text string, maxLen int) {
		for _, source := range []string{numberTemplate, unmarked} {
			c := preprocess.Default()
			c.Files, c.MaxLen = []string{write(t, "f.jsonl", text)}, 3+int(uint(maxLen)%200)
			r := preprocess.Reader{Tokenizer: letters{}, Chat: parse(t, source), Vocab: utf8.MaxRune + 1, EOS: 0}
			for s, err := range preprocess.Samples(context.Background(), c, r, func(corpus.BadLine) {}) {
				if err != nil {
					return
				}
				if s.Drop != "" {
					continue
				}
				if len(s.Tokens) > c.MaxLen || len(s.Loss) != len(s.Tokens) || !slices.Contains(s.Loss[2:], true) || s.Chat && s.Turns < 1 {
					t.Fatalf("limit %d: %+v", c.MaxLen, s)
				}
			}
		}
	})
}
