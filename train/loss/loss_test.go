package loss_test

import (
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/train/loss"
	"talf/train/loss/losstest"
)

func queue(t testing.TB) compute.Queue {
	t.Helper()
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev.Queue()
}

func TestLosses(t *testing.T) {
	for _, spec := range []string{
		"eagle", "eagle:w_reg=1,w_cls=0", "eagle:w_reg=0,w_cls=0.1", "eagle:reg=l1,labels=ignore",
		"talf", "talf:labels=ignore",
	} {
		t.Run(spec, func(t *testing.T) { losstest.Run(t, spec, queue) })
	}
}

func TestEveryMethodParsesByItsName(t *testing.T) {
	for _, m := range loss.Methods() {
		if _, err := loss.Parse(m.Name); err != nil {
			t.Error(err)
		}
		if m.Doc == "" {
			t.Errorf("%s has no description", m.Name)
		}
		for _, p := range m.Params {
			if _, err := loss.Parse(m.Name + ":" + p.Name + "=" + p.Default); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestWrongParametersAreRefused(t *testing.T) {
	for spec, want := range map[string]string{
		"hinge": "not known; known: eagle, talf", "talf:w_reg=1": "known: labels", "eagle:w_cls": "known:",
		"eagle:w_cls=-1": "0 to 1e6", "eagle:w_cls=x": "want a number", "eagle:reg=l2": "smooth or l1",
		"talf:labels=all": "tail or ignore", "eagle:w_reg=0,w_cls=0": "nothing to learn", "": "not known",
	} {
		if _, err := loss.Parse(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", spec, err, want)
		}
	}
}
