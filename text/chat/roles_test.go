package chat_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"talf/text/chat"
)

// rendered is what a template makes of a conversation.
func rendered(t *testing.T, tmpl *chat.Template, conversation string) (string, error) {
	t.Helper()
	c, err := chat.ParseConversation([]byte(conversation))
	if err != nil {
		t.Fatalf("%s: %v", conversation, err)
	}
	r, err := tmpl.WithClock(clock).Render(t.Context(), c)
	if err != nil {
		return "", err
	}
	return r.Text, nil
}

// No template of these knows the role developer: each writes what it writes of the system, or refuses both.
func TestDevelopersAreTheSystemOfTemplatesWithoutThem(t *testing.T) {
	for _, name := range slices.Concat(own, published) {
		t.Run(name, func(t *testing.T) {
			tmpl, err := chat.LoadFile(template(t, name))
			if err != nil {
				t.Fatal(err)
			}
			const talk = `{"messages":[{"role":"%s","content":"Speak as a PIRATE."},{"role":"user","content":"Hi"}],"add_generation_prompt":true,"bos_token":"<s>","eos_token":"</s>"}`
			got, err := rendered(t, tmpl, fmt.Sprintf(talk, "developer"))
			want, refused := rendered(t, tmpl, fmt.Sprintf(talk, "system"))
			if got != want || fmt.Sprint(err) != fmt.Sprint(refused) {
				t.Errorf("%q, %v, want %q, %v", got, err, want, refused)
			}
			if refused == nil && strings.Contains(got, "PIRATE") == (name == "vicuna-v1.1") { // which writes no system
				t.Errorf("%q: what the developer says", got)
			}
		})
	}
	knows := parse(t, "{% for m in messages %}{{ m.role }}{% if m.role == 'developer' %}!{% endif %} {% endfor %}")
	if got, err := rendered(t, knows, `{"messages":[{"role":"developer","content":""},{"role":"system","content":""}]}`); got != "developer! system " || err != nil {
		t.Errorf("%q, %v: a template that knows the role does not get it", got, err)
	}
}

// The text of a conversation whose last message goes on is that of the whole, up to the end of the message's content.
func TestTheLastMessageIsContinued(t *testing.T) {
	for _, name := range slices.Concat(own, published) {
		t.Run(name, func(t *testing.T) {
			tmpl, err := chat.LoadFile(template(t, name))
			if err != nil {
				t.Fatal(err)
			}
			// "a" and "end" occur within marks of templates.
			for _, content := range []string{"Sure: 1. ", "a", "end", "{\n  \"", "assistant", "Hi", "é"} {
				talk := fmt.Sprintf(`{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":%q}],"bos_token":"<s>","eos_token":"</s>"`, content)
				got, err := rendered(t, tmpl, talk+`,"continue_final_message":true}`)
				if err != nil {
					t.Fatal(err)
				}
				whole, err := rendered(t, tmpl, talk+`}`)
				if err != nil {
					t.Fatal(err)
				}
				// Many templates trim what ends.
				rest, ok := strings.CutPrefix(whole, strings.TrimRight(got, " "))
				if !ok || !strings.HasSuffix(got, content) || rest == "" || utf8.RuneCountInString(rest) > 20 {
					t.Errorf("%q of %q, want it up to %q", got, whole, content)
				}
			}
		})
	}
	tmpl := parse(t, turns2)
	for talk, want := range map[string]string{
		`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":""}],"continue_final_message":true}`: "<|a|>user:q<|b|><|a|>assistant:",
		`{"messages":[{"role":"assistant","content":"t</think>y"}],"continue_final_message":true}`:                     "<|a|>assistant:y",
	} {
		if got, err := rendered(t, tmpl, talk); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", talk, got, err, want)
		}
	}
	for talk, want := range map[string]string{
		`{"messages":[],"continue_final_message":true}`:                                                      "there is no message",
		`{"messages":[{"role":"assistant","content":null}],"continue_final_message":true}`:                   "messages[0]: its content is null",
		`{"messages":[{"role":"assistant","content":"` + "\U0001FFFE" + `"}],"continue_final_message":true}`: "messages[0]: the template does not write its content once",
	} {
		if got, err := rendered(t, tmpl, talk); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %q", talk, got, err, want)
		}
	}
	silent := parse(t, "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
	if got, err := rendered(t, silent, `{"messages":[{"role":"assistant","content":"x"}],"continue_final_message":true}`); err == nil {
		t.Errorf("%q of a template that does not write the message", got)
	}
	if _, err := chat.ParseConversation([]byte(`{"messages":[],"continue_final_message":true,"add_generation_prompt":true}`)); err == nil {
		t.Error("both a message that goes on and a new one")
	}
}

// What goes on may look like a special token, and stays text.
func TestTextThatIsContinuedStaysText(t *testing.T) {
	tok := guard(t)
	c, err := chat.ParseConversation([]byte(`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"x<|b|>"}],"continue_final_message":true}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := parse(t, turns2).Prompt(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	e, err := chat.NewEncoder(tok)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := e.Prompt(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	special := 0
	for _, id := range ids {
		if tok.Special(id) {
			special++
		}
	}
	if special != 3 || tok.Decode(ids, false) != "<|a|>user:q<|b|><|a|>assistant:x<|b|>" {
		t.Errorf("%d special tokens in %q, want the template's three", special, tok.Decode(ids, false))
	}
}

// Renderings of one prompt have one time, whatever the clock says meanwhile.
func TestPromptsHaveOneTime(t *testing.T) {
	tmpl := parse(t, "{{ strftime_now('%Y-%m-%d %S') }}"+turns2)
	seconds := 0
	tmpl = tmpl.WithClock(func() time.Time { seconds++; return time.Date(2026, 11, 29, 12, 0, seconds, 0, time.UTC) })
	c, err := chat.ParseConversation([]byte(`{"messages":[{"role":"user","content":"<|b|>"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := tmpl.Prompt(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	e, err := chat.NewEncoder(guard(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Prompt(t.Context(), p); err != nil || !strings.HasPrefix(p.Text, "2026-11-29 01") {
		t.Errorf("%q: %v", p.Text, err)
	}
	if r, err := tmpl.Render(t.Context(), c); err != nil || !strings.HasPrefix(r.Text, "2026-11-29 02") {
		t.Errorf("the clock stands still for the next: %q, %v", r.Text, err)
	}
}
