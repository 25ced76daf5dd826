package chat_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/text/chat"
)

// transcript reads a conversation in JSON.
func transcript(t testing.TB, text string) *chat.Transcript {
	t.Helper()
	c, err := chat.ParseTranscript([]byte(text))
	if err != nil || c == nil {
		t.Fatalf("%s: %v, %v", text, c, err)
	}
	return c
}

// turns answers every turn of d with "! ", and returns the questions and the prompts.
func turns(t *testing.T, d *chat.Dialogue) (asked, prompts []string) {
	t.Helper()
	for d.Ask() {
		p, err := d.Prompt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		asked, prompts = append(asked, d.Asked()), append(prompts, p.Text)
		d.Answer("! ")
	}
	return asked, prompts
}

const marks = "{% for m in messages %}[{{ m.role[0] }}{{ m.content }}{% for c in m.tool_calls or [] %}({{ c.function.name }}){% endfor %}]{% endfor %}{% if add_generation_prompt %}>{% endif %}"

func TestDialoguesAreAnsweredTurnByTurn(t *testing.T) {
	template := parse(t, marks)
	for name, c := range map[string]struct {
		d              *chat.Dialogue
		asked, prompts []string
	}{
		"a template": {
			chat.NewDialogue(template, transcript(t, `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"old"},{"role":"user","content":"b"}]}`)),
			[]string{"a", "b"},
			[]string{"[ss][ua]>", "[ss][ua][a! ][ub]>"},
		},
		"two questions in a row": {
			chat.NewDialogue(template, transcript(t, `{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`)),
			[]string{"a", "b"},
			[]string{"[ua]>", "[ua][a! ][ub]>"},
		},
		"tool calls stay": {
			chat.NewDialogue(template, transcript(t, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"r"},{"role":"assistant","content":"old"},{"role":"assistant","content":"older"}]}`)),
			[]string{"r"},
			[]string{"[ua][a(f)][tr]>"},
		},
		"a whole answer is replaced": {
			chat.NewDialogue(template, transcript(t, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"old"},{"role":"assistant","content":"older"},{"role":"user","content":"b"}]}`)),
			[]string{"a", "b"},
			[]string{"[ua]>", "[ua][a! ][ub]>"},
		},
		"a developer message is not a question": {chat.NewDialogue(template, transcript(t, `{"messages":[{"role":"developer","content":"s"}]}`)), nil, nil},
		"no questions":                          {chat.NewDialogue(template, transcript(t, `{"messages":[{"role":"system","content":"s"}]}`)), nil, nil},
		"plain text":                            {chat.NewPlainDialogue("a", "b"), []string{"a", "b"}, []string{"User: a\nAssistant:", "User: a\nAssistant:! \nUser: b\nAssistant:"}},
		"a transcript in plain text": {
			chat.NewPlainTranscript(transcript(t, `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"old"},{"role":"user","content":"b"}]}`)),
			[]string{"a", "b"},
			[]string{"s\n\nUser: a\nAssistant:", "s\n\nUser: a\nAssistant:! \nUser: b\nAssistant:"},
		},
		"bare text": {chat.NewText("a", "b"), []string{"a", "b"}, []string{"a", "a! b"}},
		"nothing":   {chat.NewText(), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			asked, prompts := turns(t, c.d)
			if d := cmp.Diff(c.asked, asked) + cmp.Diff(c.prompts, prompts); d != "" {
				t.Error(d)
			}
		})
	}
}

// A user continues after an answer, and may take a turn back.
func TestADialogueContinues(t *testing.T) {
	d := *chat.NewDialogue(parse(t, marks), transcript(t, `{"messages":[{"role":"system","content":"s"}]}`))
	if d.Ask() {
		t.Fatal("a system message was to be answered")
	}
	say := func(text, want string) {
		t.Helper()
		d.Say(text)
		if !d.Ask() {
			t.Fatalf("%q asks nothing", text)
		}
		if p, err := d.Prompt(t.Context()); err != nil || p.Text != want || p.Special {
			t.Errorf("%+v, %v, want %s", p, err, want)
		}
	}
	say("a", "[ss][ua]>")
	d.Answer("b")
	before := d
	say("c", "[ss][ua][ab][uc]>")
	d = before
	say("d", "[ss][ua][ab][ud]>")
}

func TestATemplateThatRefusesADialogue(t *testing.T) {
	ask := func(source, text string) (chat.Prompt, error) {
		d := chat.NewDialogue(parse(t, source), transcript(t, text))
		d.Ask()
		return d.Prompt(t.Context())
	}
	_, err := ask("{{ raise_exception('not like this') }}", `{"messages":[{"role":"user","content":"a"}]}`)
	var raised *chat.RaisedError
	if !errors.Is(err, chat.ErrRefused) || !errors.As(err, &raised) || !strings.Contains(err.Error(), "not like this") {
		t.Errorf("error %v", err)
	}
	const calls = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"r"}]}`
	if _, err = ask("{% for m in messages %}{{ m.content }}{% endfor %}", calls); !errors.Is(err, chat.ErrRefused) || !errors.Is(err, chat.ErrCalls) {
		t.Errorf("error %v, want one that says that calls are missing", err)
	}
	// This template takes only contents that are strings: the form for such templates
	// is tried.
	const wantsText = "{% for m in messages %}{{ m.content + '' }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}"
	if p, err := ask(wantsText, calls); err != nil || p.Text != "afr" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestADialogueBeginsWithItsSystemMessage(t *testing.T) {
	template := parse(t, marks)
	for _, system := range []string{"", "be short"} {
		d := chat.Begin(template, system)
		d.Say("hello")
		_, prompts := turns(t, &d)
		if len(prompts) != 1 || system != "" != strings.Contains(prompts[0], "be short") {
			t.Errorf("system message %q: %q", system, prompts)
		}
	}
}

// A model that continues a dialogue in plain text writes the next turn, too, whoever's it is: the answer ends before it. A text
// that is continued has no turns.
func TestAnAnswerInPlainTextEndsBeforeTheNextTurn(t *testing.T) {
	plain, bare := chat.NewPlainDialogue("a"), chat.NewText("a")
	c := transcript(t, `{"messages":[{"role":"user","content":"a"}]}`)
	for _, d := range []*chat.Dialogue{plain, bare, chat.NewPlainTranscript(c), chat.NewDialogue(parse(t, marks), c)} {
		d.Ask()
		p, err := d.Prompt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if strings.HasPrefix(p.Text, "User: ") {
			want = []string{"\nUser:", "\nAssistant:"}
		}
		if diff := cmp.Diff(want, p.Stop); diff != "" {
			t.Errorf("%q: %s", p.Text, diff)
		}
	}
	if p := chat.PlainPrompt(c); len(p.Stop) != 2 {
		t.Errorf("%+v", p)
	}
}
