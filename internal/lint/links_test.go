package lint_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	unspoken = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// deadLinks returns the relative links of a Markdown file that lead to no file, or to no heading
// in one.
func deadLinks(name, text string, read func(string) (string, bool)) []string {
	var dead []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		file, anchor, _ := strings.Cut(m[1], "#")
		target := text
		if file != "" {
			var ok bool
			if target, ok = read(path.Join(path.Dir(name), file)); !ok {
				dead = append(dead, name+": "+m[1])
				continue
			}
		}
		found := anchor == ""
		for _, h := range heading.FindAllStringSubmatch(target, -1) {
			found = found || anchor == strings.ReplaceAll(unspoken.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
		}
		if !found {
			dead = append(dead, name+": "+m[1])
		}
	}
	return dead
}

func TestLinksLeadSomewhere(t *testing.T) {
	n := 0
	for _, name := range tracked(t) {
		if path.Ext(name) != ".md" || strings.Contains(name, "testdata/") {
			continue
		}
		n++
		for _, l := range deadLinks(name, read(t, name), func(to string) (string, bool) {
			info, err := os.Stat(filepath.Join(root, to))
			if err != nil || info.IsDir() {
				return "", err == nil
			}
			return read(t, to), true
		}) {
			t.Errorf("dead link: %s", l)
		}
	}
	if n < 10 {
		t.Errorf("git names %d Markdown files", n)
	}
}

func TestDeadLinksAreFound(t *testing.T) {
	files := map[string]string{"docs/a.md": "# One `thing`: two\n"}
	text := "[x](docs/a.md) [x](docs/a.md#one-thing-two) [x](docs/a.md#one) [x](a.md) [x](https://example.org/a.md) [x](#self)\n## Self\n"
	got := deadLinks("README.md", text, func(to string) (string, bool) { s, ok := files[to]; return s, ok })
	if want := "README.md: docs/a.md#one, README.md: a.md"; strings.Join(got, ", ") != want {
		t.Errorf("dead links %q, want %s", got, want)
	}
}
