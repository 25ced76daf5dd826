package makehead

import (
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
			switch name := m[1]; {
			case name != "" && len(g.slots[name]) == 0:
				t.Errorf("%q: no slot %s", p, name)
			case m[2] != "" && strings.Count(p, "{"+name+"}") == 0:
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
