package makehead

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every prompt of the grammar can be written, with nothing of the grammar left in it.
func TestAskingIsWhole(t *testing.T) {
	g := written()
	for name, values := range g.slots {
		if slices.Contains(values, "") || len(values) < 5 {
			t.Errorf("slot %s has %d values, or an empty one", name, len(values))
		}
		if s := "{" + name; !strings.Contains(asking, s+"}") {
			t.Errorf("no prompt has the slot %s", name)
		}
	}
	for _, p := range g.prompts {
		for _, m := range slot.FindAllStringSubmatch(p, -1) {
			switch name := m[2]; {
			case name != "" && len(g.slots[name]) == 0:
				t.Errorf("%q: no slot %s", p, name)
			case m[3] != "" && strings.Count(p, "{"+name+"}") == 0:
				t.Errorf("%q: %s is the first of none", p, m[0])
			}
		}
	}
	const n = 20_000
	all := g.ask(n, 1)
	for _, p := range all {
		if strings.Contains(p, `\n`) || strings.Contains(p, "#1") || strings.Contains(p, "..") || p != strings.TrimSpace(p) && !strings.HasSuffix(p, "\n") {
			t.Errorf("%q", p)
		}
	}
	if again := g.ask(100, 1); !slices.Equal(again, all[:100]) {
		t.Error("the first prompts depend on how many there are")
	}
	if other := g.ask(100, 2); slices.Equal(other, all[:100]) {
		t.Error("prompts do not depend on the seed")
	}
}

// Whatever stands in a slot has the article that it is spoken with.
func TestArticles(t *testing.T) {
	for _, want := range []string{
		"an elephant", "a cheetah", "An umbrella", "an hour", "a house", "an honest answer", "a university", "a unit", "a useful tip", "a utility",
		"a European", "a one-way street", "an only child", "an unimportant detail", "an uninvited guest", "an 8", "an 80", "an 11", "an 18", "a 110", "a 7",
	} {
		a, word, _ := strings.Cut(want, " ")
		if got := withArticle(a[:1], word); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	// The words of the grammar need no more than their first letter.
	wrong := regexp.MustCompile(`\b([Aa] (owl|octopus|elephant|umbrella|enthusiastic|8\d)|[Aa]n (bat|camel|funny|polite|kettle|Python|1\d\d))\b`)
	seen := map[string]bool{}
	for _, p := range written().ask(5_000, 2) {
		if bad := wrong.FindString(p); bad != "" {
			t.Errorf("%q: %s", p, bad)
		}
		for _, a := range regexp.MustCompile(`\b[Aa]n (elephant|umbrella|enthusiastic)\b`).FindAllString(p, -1) {
			seen[strings.ToLower(a)] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("the prompts have only %v", seen)
	}
}
