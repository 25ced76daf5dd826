package decode_test

import (
	"errors"
	"strings"
	"testing"

	"talf/infer/decode"
	"talf/text/chat"
)

// A turn that is too long changes nothing: neither the dialogue nor the seeds of later answers.
// A reset forgets the dialogue, and the next answer has the next seed.
func TestATalkIsItsTurns(t *testing.T) {
	d := tiny(t, sampled())
	empty := chat.Begin(nil, "")
	talk := decode.NewTalk(d, empty, 7)
	say := func(text string) string {
		t.Helper()
		var parts strings.Builder
		s, err := talk.Say(t.Context(), text, func(part string) error { parts.WriteString(part); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if parts.String() != s.Text() {
			t.Errorf("emitted %q of %q", parts.String(), s.Text())
		}
		return s.Text()
	}
	// The same, by hand.
	same := empty
	want := func(text string, seed uint64) string {
		t.Helper()
		same.Say(text)
		same.Ask()
		p, err := same.Prompt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.Answer(t.Context(), p, seed, nil)
		if err != nil {
			t.Fatal(err)
		}
		same.Answer(s.Text())
		return s.Text()
	}
	first := say("Once")
	if w := want("Once", 7); first != w {
		t.Errorf("the first answer is %q, want %q", first, w)
	}
	if _, err := talk.Say(t.Context(), strings.Repeat("long ", 300), nil); !errors.Is(err, decode.ErrLongPrompt) {
		t.Fatalf("a turn of 300 words: %v", err)
	}
	if got, w := say("upon"), want("upon", decode.TurnSeed(7, 1)); got != w {
		t.Errorf("the second answer is %q, want %q", got, w)
	}
	talk.Reset()
	same = empty
	if got, w := say("Once"), want("Once", decode.TurnSeed(7, 2)); got != w {
		t.Errorf("after a reset the answer is %q, want %q", got, w)
	}
}
