package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/data"
	"talf/internal/demo"
	"talf/internal/e2e/servetest"
	"talf/internal/e2e/talftest"
	"talf/internal/golden"
	"talf/preprocess"
	"talf/text/chat"
	"talf/text/tokenizer"

	"talf/preprocess/samples"
)

// The published file of 500 conversations goes through preprocess; the result equals a plain
// rendering and counting.
func TestShareGPTGoesThroughPreprocess(t *testing.T) {
	file := golden.Shared(t, "data/prompts/sharegpt_style_dummy_conversation.json")
	dir := talftest.ChatModel(t)
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Conversations []struct{ From, Value string }
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	limit := len(all)
	if testing.Short() {
		limit = 60
	}
	const maxLen = 50
	want := data.Input{Conversations: limit}
	for _, c := range all[:limit] {
		text, best, turns := "", []int32(nil), 0
		for i, m := range c.Conversations {
			if m.From == "human" {
				text += "Q: " + m.Value + "\n"
				continue
			}
			text += "A: " + m.Value + "<|end|>\n"
			ids, err := tok.Encode(text, false)
			if err != nil {
				t.Fatal(err)
			}
			if len(ids) <= maxLen {
				best, turns = ids, i+1
			}
		}
		if best == nil {
			if want.Dropped == nil {
				want.Dropped = map[string]int{}
			}
			want.Dropped["too long: no assistant turn ends within the length limit"]++
			continue
		}
		want.Rows++
		want.Turns += turns
		want.Cut += len(c.Conversations) - turns
		want.Tokens += int64(len(best))
	}
	out := t.TempDir()
	args := []string{"preprocess", "--model", dir, "--data", file, "--out", out, "--depth", "1", "--label-k", "1", "--features", "none", "--max-len", fmt.Sprint(maxLen), "--limit", fmt.Sprint(limit)}
	var st preprocess.Stats
	if err := json.Unmarshal([]byte(talftest.OK(t, "", append(args, "--json")...)), &st); err != nil {
		t.Fatal(err)
	}
	got := st.Inputs[0].Input
	want.Loss = got.Loss // of tokens that begin in answers: preprocess's own tests
	if d := cmp.Diff(want, got); d != "" || len(st.Inputs) != 1 || st.Inputs[0].File != file {
		t.Errorf("%s: %s", st.Inputs[0].File, d)
	}
	if want.Cut == 0 || want.Dropped == nil || got.Loss == 0 || got.Loss >= got.Tokens {
		t.Errorf("the limit cuts nothing: %+v", got)
	}
	// A second run finds everything done and prints the same.
	text := talftest.OK(t, "", args...)
	for _, s := range []string{
		fmt.Sprintf("%d conversations, %d turns (%d cut off), %d sequences of %d tokens, %d to learn\n", limit, want.Turns, want.Cut, want.Rows, want.Tokens, want.Loss),
		fmt.Sprintf("left out: %d: too long", want.Dropped["too long: no assistant turn ends within the length limit"]),
	} {
		if !strings.Contains(text, s) {
			t.Errorf("%q is not in:\n%s", s, text)
		}
	}
	if text := talftest.OK(t, "", "inspect", out); !strings.Contains(text, fmt.Sprintf("input 0       %d conversations, %d turns (%d cut off), %d rows", limit, want.Turns, want.Cut, want.Rows)) {
		t.Errorf("inspect says:\n%s", text)
	}
}

// A directory with files of all kinds, some of them useless: what was left out is reported file
// by file.
func TestMixedFilesGoThroughPreprocess(t *testing.T) {
	dir, in := talftest.ChatModel(t), t.TempDir()
	for name, text := range map[string]string{
		"a.jsonl": `{"messages":[{"role":"user","content":"Two and two?"},{"role":"assistant","content":"Four."},{"role":"user","content":"Sure?"}]}
{"messages":[{"role":"system","content":"Be brief."},{"role":"assistant","content":"No."}]}
{"messages":[{"role":"user","content":"Hello?"}]}
{"messages":[{"role":"user"}]}
{"text":"Once upon a time there was a cat."}
not JSON
`,
		"b.json":  `[{"conversations":[{"from":"human","value":"Hi"},{"from":"gpt","value":"Hello."}]},{"conversations":[{"from":"alien","value":"x"}]}]`,
		"c.txt":   "A story.\n\nAnother story.\n",
		"d.ipynb": "no",
	} {
		if err := os.WriteFile(filepath.Join(in, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "set")
	args := []string{"preprocess", "--model", dir, "--data", in, "--out", out, "--depth", "1", "--label-k", "1"}
	var st preprocess.Stats
	if err := json.Unmarshal([]byte(talftest.OK(t, "", append(args, "--json")...)), &st); err != nil {
		t.Fatal(err)
	}
	type counts struct {
		Rows, Conversations, Turns, Cut int
		Dropped                         map[string]int
	}
	var got []counts
	for _, x := range st.Inputs {
		got = append(got, counts{x.Rows, x.Conversations, x.Turns, x.Cut, x.Dropped})
	}
	want := []counts{
		{2, 3, 2, 1, map[string]int{"bad line": 2, "no assistant turn": 1, "template: no system": 1}},
		{1, 1, 2, 0, map[string]int{"bad line": 1}},
		{2, 0, 0, 0, nil},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	r := talftest.Run(t, "", append(args[:len(args):len(args)], "--out", out+"2")...)
	for _, s := range []string{"a.jsonl:2: template: no system", "a.jsonl:4: field", "a.jsonl:6: not a JSON object", "b.json:1: item 2: field"} {
		if !strings.Contains(r.Err, s) {
			t.Errorf("%q is not in:\n%s", s, r.Err)
		}
	}
	for _, s := range []string{"a.jsonl: 3 conversations, 2 turns (1 cut off), 2 sequences", "b.json: 1 conversations, 2 turns (0 cut off), 1 sequences", "c.txt: 2 sequences", "left out: 1: template: no system\n", "left out: 1: no assistant turn\n"} {
		if !strings.Contains(r.Out, s) {
			t.Errorf("%q is not in:\n%s", s, r.Out)
		}
	}
}

func TestPreprocessRefusesConversationsThatItCannotRender(t *testing.T) {
	plain := talftest.TinyModel(t, talftest.TinyConfig(), 3)
	in, out := t.TempDir(), t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(in, name)
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	talk := file("a.jsonl", `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."}]}`)
	broken := file("broken.jinja", "{% for m in messages %}")
	good := file("good.jinja", talftest.TurnTemplate)
	cut := file("cut.json", `[{"text":"x"}`)
	args := func(data string, more ...string) []string {
		return append([]string{"preprocess", "--model", plain, "--data", data, "--out", out, "--depth", "1"}, more...)
	}
	talftest.Run(t, "", args(talk)...).Refuses(t, ExitFailure, "a.jsonl:1", "no chat template", "--chat-template FILE")
	talftest.Run(t, "", args(talk, "--chat-template", "none")...).Refuses(t, ExitFailure, "a.jsonl:1", "--chat-template FILE")
	talftest.Run(t, "", args(talk, "--chat-template", broken)...).Refuses(t, ExitFailure, "broken.jinja")
	talftest.Run(t, "", args(talk, "--chat-template", filepath.Join(in, "none.jinja"))...).Refuses(t, ExitFailure, "none.jinja")
	talftest.Run(t, "", args(talk, "--chat-template", good, "--date", "today")...).Refuses(t, ExitUsage, "--date", "today")
	talftest.Run(t, "", args(cut)...).Refuses(t, ExitFailure, "cut.json", "the file ends at byte 13")
	talftest.OK(t, "", args(talk, "--chat-template", good)...)
	alone := file("b.jsonl", `{"messages":[{"role":"user","content":"Hi"}]}`)
	r := talftest.Run(t, "", args(alone, "--chat-template", good, "--out", out+"2")...)
	r.Refuses(t, ExitFailure, "everything was left out")
	if !strings.Contains(r.Out, "left out: 1: no assistant turn") {
		t.Errorf("the report is missing:\n%s", r.Out)
	}
}

// A messages file with the cases that transformers marks: the rows are the tokens of its text up
// to the last answer, and the loss covers those whose first character that is not white space is
// in one of its assistant_spans.
func TestMessagesGetTheLossOfTheReference(t *testing.T) {
	b := golden.Read(t, "chat/chatml.jsonl")
	type reference struct {
		Messages json.RawMessage `json:"messages"`
		Text     string          `json:"text"`
		Spans    [][2]int        `json:"assistant_spans"`
		Prompt   bool            `json:"add_generation_prompt"`
	}
	var cases []reference
	var file strings.Builder
	silent := 0
	for line := range strings.Lines(string(b)) {
		var c reference
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		if c.Prompt || c.Spans == nil || len(c.Spans) == 0 && strings.Contains(string(c.Messages), `"assistant"`) {
			continue // the reference raises, or does not mark its answers
		}
		fmt.Fprintf(&file, `{"messages":%s}`+"\n", c.Messages)
		if len(c.Spans) == 0 {
			silent++
			continue
		}
		cases = append(cases, c)
	}
	dir, in, out := talftest.TinyModel(t, talftest.TinyConfig(), 3), filepath.Join(t.TempDir(), "in.jsonl"), t.TempDir()
	if err := os.WriteFile(in, []byte(file.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	var st preprocess.Stats
	args := []string{"preprocess", "--model", dir, "--data", in, "--out", out, "--depth", "1", "--label-k", "1", "--features", "none", "--json"}
	if err := json.Unmarshal([]byte(talftest.OK(t, "", append(args, "--chat-template", golden.File(t, "chat/chatml.jinja"))...)), &st); err != nil {
		t.Fatal(err)
	}
	if st.Sequences != len(cases) || st.Inputs[0].Conversations != len(cases)+silent || st.Dropped["no assistant turn"] != silent || len(cases) < 4 || silent < 1 {
		t.Fatalf("%+v of %d cases with answers and %d without", st, len(cases), silent)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	set, err := data.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	rows, err := set.Sequential(data.Everything())
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		row, err := rows.Next()
		if err != nil {
			t.Fatal(err)
		}
		text := c.Text[:c.Spans[len(c.Spans)-1][1]+len("\n")]
		ids, at, err := tok.EncodeOffsets(text, false)
		if err != nil {
			t.Fatal(err)
		}
		loss := make([]bool, len(ids))
		for j, s := range at {
			first := s.End - max(1, len(strings.TrimLeft(text[s.Start:s.End], " \n")))
			for _, sp := range c.Spans {
				loss[j] = loss[j] || sp[0] <= first && first < sp[1]
			}
		}
		if d := cmp.Diff(ids, row.Tokens); d != "" {
			t.Errorf("case %d: %s", i, d)
		}
		if d := cmp.Diff(loss, row.LossMask); d != "" {
			t.Errorf("case %d: %s", i, d)
		}
	}
}

// With a template the model answers as it would answer people; without one, as before, it
// continues the text.
func TestRegeneratedDialoguesGoThroughTheTemplate(t *testing.T) {
	dir := talftest.ChatModel(t)
	file := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(file, []byte(`{"turns":["Two and two?","And three?"]}`+"\n"+`{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"No."}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	type sample struct{ Runs []samples.Run }
	show := func(more ...string) []sample {
		t.Helper()
		out := t.TempDir()
		talftest.OK(t, "", append([]string{"preprocess", "--model", dir, "--data", file, "--out", out, "--depth", "1", "--max-len", "60", "--regenerate"}, more...)...)
		var s struct{ Samples []sample }
		if err := json.Unmarshal([]byte(talftest.OK(t, "", "inspect", "data", out, "--model", dir, "--json")), &s); err != nil {
			t.Fatal(err)
		}
		return s.Samples
	}
	s := show()
	if len(s) != 2 || s[0].Runs[0].Text != "Q: Two and two?\nA:" || s[0].Runs[0].Loss || !s[0].Runs[1].Loss || s[1].Runs[0].Text != "Q: Hi\nA:" {
		t.Errorf("%+v", s)
	}
	for _, r := range s[1].Runs {
		if strings.Contains(r.Text, "No.") {
			t.Errorf("the file's own answer is still there: %+v", s[1])
		}
	}
	if err := os.WriteFile(file, []byte(`{"turns":["Two and two?"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if s := show("--chat-template", "none"); len(s) != 1 || !strings.HasSuffix(s[0].Runs[0].Text, "Two and two?") || strings.Contains(s[0].Runs[0].Text, "A:") {
		t.Errorf("%+v", s)
	}
}

// A server of the same model writes the answers that the model itself would: the rows are equal, of
// texts and of conversations.
func TestAnswersOfAServerAreThoseOfTheModel(t *testing.T) {
	dir := t.TempDir()
	if err := demo.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, filepath.Join(dir, "chat_template.jinja"), `{%- for m in messages -%}
{%- if m.role == 'assistant' -%}{{ ' A:' }}{% generation %}{{ m.content + eos_token }}{% endgeneration %}{%- else -%}{{ 'Q: ' + m.content }}{%- endif -%}
{%- endfor -%}{%- if add_generation_prompt -%}{{ ' A:' }}{%- endif -%}`)
	parts := servetest.Default()
	var err error
	if parts.Template, err = chat.Load(dir); err != nil {
		t.Fatal(err)
	}
	server := servetest.Start(t, servetest.Setup{Dir: dir, Parts: parts})
	file := filepath.Join(t.TempDir(), "in.jsonl")
	rows := func(out string, more ...string) []data.Record {
		t.Helper()
		talftest.OK(t, "", append([]string{"preprocess", "--model", dir, "--data", file, "--out", out, "--depth", "1", "--max-len", "60"}, more...)...)
		set, err := data.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		r, err := set.Sequential(data.Everything())
		if err != nil {
			t.Fatal(err)
		}
		var all []data.Record
		for {
			x, err := r.Next()
			if errors.Is(err, io.EOF) {
				return all
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, *x)
		}
	}
	talk := `{"messages":[{"role":"user","content":"What is 2 + 3?"},{"role":"assistant","content":"No."}]}` + "\n"
	turns := `{"turns":["There was a cat.","What is 4 + 5?"]}` + "\n" + `{"text":"One day"}`
	for template, text := range map[string]string{filepath.Join(dir, "chat_template.jinja"): talk + turns, "none": turns} {
		talftest.Write(t, file, text)
		want := rows(t.TempDir(), "--regenerate", "--chat-template", template)
		got := rows(t.TempDir(), "--regenerate-url", server.URL, "--chat-template", template, "--concurrency", "2")
		for i := range want {
			if d := cmp.Diff(want[i].Tokens, got[i].Tokens); d != "" {
				t.Errorf("template %s, row %d: %s", template, i, d)
			}
		}
		if d := cmp.Diff(want, got); d != "" || len(got) != 1+strings.Count(text, "\n") {
			t.Errorf("template %s: %d rows: %s", template, len(got), d)
		}
	}
}
