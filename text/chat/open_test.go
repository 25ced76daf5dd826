package chat_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"talf/text/chat"
)

// The hash changes with everything that determines a template's output, and with
// nothing else.
func TestOpenIdentifiesWhatItOpens(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "other.jinja")
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	day := time.Date(2026, 3, 14, 9, 0, 0, 0, time.UTC)
	control := false
	open := func(file string, day time.Time) (text, hash string) {
		t.Helper()
		tmpl, hash, err := chat.Open(dir, file, day, control)
		if err != nil {
			t.Fatal(err)
		}
		if tmpl == nil {
			return "", hash
		}
		c, err := chat.ParseConversation([]byte(`{"messages":[{"role":"user","content":"a"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r, err := tmpl.Render(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return r.Text, hash
	}
	if text, hash := open("", day); text != "" || hash != "" {
		t.Errorf("a model without a template writes %q, with the hash %q", text, hash)
	}
	const source = "{{ bos_token }}{{ strftime_now('%d %b') }}"
	put(filepath.Join(dir, "tokenizer_config.json"), `{"bos_token": "<s>"}`)
	put(filepath.Join(dir, "chat_template.jinja"), source)
	put(file, "other "+source)
	seen := map[string]string{}
	look := func(what, file string, day time.Time, want string) {
		t.Helper()
		text, hash := open(file, day)
		if text != want || hash == "" || seen[hash] != "" {
			t.Errorf("%s: %q, want %q; the hash is that of %q", what, text, want, seen[hash])
		}
		seen[hash] = what
	}
	look("a template", "", day, "<s>14 Mar")
	_, hash := open("", day.Add(time.Hour))
	if seen[hash] != "a template" {
		t.Error("the hash changes with the time of day")
	}
	look("the next day", "", day.AddDate(0, 0, 1), "<s>15 Mar")
	control = true
	look("control tokens in messages", "", day, "<s>14 Mar")
	control = false
	look("another file", file, day, "other <s>14 Mar")
	put(file, "another "+source)
	look("another text", file, day, "another <s>14 Mar")
	put(filepath.Join(dir, "tokenizer_config.json"), `{"bos_token": "[s]"}`)
	look("another token", "", day, "[s]14 Mar")
	if _, _, err := chat.Open(dir, filepath.Join(dir, "none"), day, false); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a file that is not there: %v", err)
	}
}
