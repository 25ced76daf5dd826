package hint_test

import (
	"errors"
	"fmt"
	"testing"

	"talf/internal/hint"
)

func TestHintsAreForTheCommandLine(t *testing.T) {
	err := fmt.Errorf("head: %w", hint.Errorf("{force} loads it anyway", "trained for %s", "another"))
	other := errors.Join(hint.Errorf("give {head} CKPT or {draft} DIR", "no draft model"), errors.New("closed"))
	for _, c := range []struct {
		err       error
		text, own string
	}{
		{err, "head: trained for another: --force loads it anyway", "head: trained for another"},
		{fmt.Errorf("load: %w", other), "load: no draft model\nclosed: give --head CKPT or --draft DIR", "load: no draft model\nclosed"},
		{errors.New("plain {x}"), "plain {x}", "plain {x}"},
	} {
		if got := hint.Text(c.err); got != c.text || c.err.Error() != c.own {
			t.Errorf("%q on the command line and %q in a library, want %q and %q", got, c.err, c.text, c.own)
		}
	}
}
