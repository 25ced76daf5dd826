package computetest

import (
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"talf/compute"
)

// A wrapper changes abilities and nothing else.
type wrapper struct {
	compute.Queue
	change func(*compute.Abilities)
}

func (w wrapper) Abilities() compute.Abilities {
	can := w.Queue.Abilities()
	w.change(&can)
	return can
}

var everything = map[string]Treatment{
	"Peaks": Passed, "Replay": Passed, "Choose": Passed, "Draw": Passed, "Bulk": Passed, "BF16": Passed, "Train": Passed, "Block": Passed, "Remote": Passed, "Stash": Passed, "Check": Passed, "Cancel": Passed, "Variants": Passed, "Latent": Passed, "Recur": Passed,
}

func with(name string, t Treatment) map[string]Treatment {
	m := maps.Clone(everything)
	m[name] = t
	return m
}

var mistakes = map[string]struct {
	change func(*compute.Abilities)
	want   map[string]Treatment
	says   string
}{
	"nothing":  {func(*compute.Abilities) {}, everything, ""},
	"forgets":  {func(c *compute.Abilities) { c.Peaks = nil }, everything, "ability Peaks is not passed on"},
	"unheeded": {func(*compute.Abilities) {}, with("Train", Wrapped), "ability Train is not wrapped"},
	"leaks":    {func(*compute.Abilities) {}, with("Bulk", Withheld), "ability Bulk is not withheld"},
	"replaces": {func(c *compute.Abilities) { c.Bulk = &struct{ compute.Bulker }{} }, with("Bulk", Withheld), "ability Bulk is not withheld"},
	"invents":  {func(c *compute.Abilities) { c.Stash = struct{ compute.Stasher }{} }, everything, "ability Stash is claimed, but the inner queue lacks it"},
	"unknown":  {func(*compute.Abilities) {}, with("Speed", Passed), "there is no ability Speed"},
	"undecided": {func(*compute.Abilities) {}, func() map[string]Treatment {
		m := maps.Clone(everything)
		delete(m, "Remote")
		return m
	}(), "ability Remote: not decided on"},
}

// Each mistake is made in a process of its own, whose test must fail with its message.
func TestDecoratesFindsMistakes(t *testing.T) {
	const env = "TALF_TEST_MISTAKE"
	if name := os.Getenv(env); name != "" {
		m := mistakes[name]
		Decorates(t, func(q compute.Queue) compute.Queue { return wrapper{q, m.change} }, m.want)
		return
	}
	for name, m := range mistakes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDecoratesFindsMistakes$")
		cmd.Env = append(os.Environ(), env+"="+name)
		out, err := cmd.CombinedOutput()
		if failed := err != nil; failed != (m.says != "") || !strings.Contains(string(out), m.says) {
			t.Errorf("%s: error %v, want %q in:\n%s", name, err, m.says, out)
		}
	}
}
