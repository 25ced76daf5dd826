package serve

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/text/chat"
)

// What a template refuses is told without the path of its file, which is the server's.
func TestARefusalNamesNoFile(t *testing.T) {
	dir := t.TempDir()
	for source, want := range map[string]string{
		"\n{{ raise_exception('no tools') }}": "chat template, line 2: TemplateError: no tools",
		"{{ messages[0].content.x.y }}":       "chat template, line 1: UndefinedError:",
	} {
		file := filepath.Join(dir, "chat_template.jinja")
		if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		template, err := chat.LoadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := chat.Begin(template, "")
		d.Say("Hello")
		d.Ask()
		if _, err = d.Prompt(t.Context()); !errors.Is(err, chat.ErrRefused) || !strings.Contains(err.Error(), file) {
			t.Fatalf("%v, want a refusal that names %s", err, file)
		}
		if bad := refusal(t.Context(), "messages", err); bad.Status != 400 || strings.Contains(bad.Error(), dir) || !strings.Contains(bad.Message, want) {
			t.Errorf("status %d, %q, want %q in it and no path", bad.Status, bad.Message, want)
		}
	}
}
