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
		"hass:top=2", "hass:top=3,labels=ignore,feed=flow", "hass:w_topk=0,passes=2", "hass:w_reg=0,w_cls=0,w_topk=1,top=1", "hass:top=2,temp=1.5",
		"talf", "talf:labels=ignore", "talf:w_reg=0.5,reg=l1,decay=0.5,levels=2", "talf:temp=2,w_cls=3", "eagle:temp=0.7",
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
		"hinge": "not known; known: eagle, hass, talf", "talf:w_topk=1": "known: decay, feed, labels", "eagle:w_cls": "known:",
		"eagle:w_cls=-1": "0 to 1e6", "eagle:w_cls=x": "want a number", "eagle:w_cls=NaN": "want a number", "talf:temp=nan": "want a number", "eagle:reg=l2": "smooth or l1",
		"hass:w_reg=0,w_cls=0,w_topk=0": "nothing to learn", "hass:top=0": "1 to", "hass:passes=0": "1 to 16", "hass:feed=on": "detach or flow",
		"talf:w_cls=0": "nothing to learn", "talf:decay=0": "0.001 to 1000", "talf:levels=-1": "0 to 16", "talf:temp=0": "0.01 to 100",
		"talf:labels=all": "tail or ignore", "eagle:w_reg=0,w_cls=0": "nothing to learn", "": "not known",
	} {
		if _, err := loss.Parse(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", spec, err, want)
		}
	}
}
