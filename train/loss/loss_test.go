package loss_test

import (
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/internal/spec"
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
		"eagle", "eagle:w_reg=1,w_cls=0", "eagle:w_reg=0,w_cls=0.1", "eagle:reg=l1,labels=ignore", "eagle:labels=full,temp=2",
		"hass:top=2", "hass:top=3,labels=ignore,feed=flow", "hass:w_topk=0,passes=2", "hass:w_reg=0,w_cls=0,w_topk=1,top=1", "hass:top=2,temp=1.5", "hass:top=2,decay=0.5",
		"eagle3", "eagle3:steps=3,decay=0.5,mask=eagle,feed=detach", "talf", "talf:labels=ignore", "talf:w_reg=0.5,reg=l1,decay=0.5,levels=2", "talf:temp=2,w_cls=3", "eagle:temp=0.7",
		"tv", "tv:reach=all", "tv:reach=overlap", "nla", "nla:levels=1", "nla:reach=overlap", "lk", "lk:reach=overlap", "rkl", "rkl:reach=all,feed=detach",
		"eal", "eal:form=linear,w_cls=0", "eal:w_cls=0.3,levels=2", "eal:form=linear,levels=1",
		"talf:reach=target,decay=0.8", "dflash", "dflash:gamma=0,labels=tail", "dflash:labels=full,temp=2", "dflash:labels=ignore",
		"dpace", "dpace:alpha=1", "dspark", "dspark:w_ce=0,w_sure=0", "dspark:w_l1=0,w_sure=0,gamma=2",
	} {
		l, err := loss.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(spec, func(t *testing.T) { losstest.Run(t, l, queue) })
	}
}

func TestEveryMethodParsesByItsName(t *testing.T) {
	if err := (spec.Table[loss.Method]{Lines: loss.Methods()}).Check(); err != nil {
		t.Error(err)
	}
	for _, m := range loss.Methods() {
		if _, err := loss.Parse(m.Name); err != nil {
			t.Error(err)
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
		"hinge": `unknown loss "hinge", want one of eagle, hass, talf, eagle3, tv, nla, lk, rkl, eal, dflash, dpace, dspark`, "": `unknown loss ""`,
		"talf:w_topk=1": `unknown parameter "w_topk": known are w_cls, w_reg, decay`, "eagle:w_cls": `"w_cls" has no value`,
		"eagle:w_cls=1,w_cls=2": `"w_cls" is given twice`, "eagle:w_cls=-1": "w_cls is -1, want 0..1e+06", "eagle:w_cls=x": `w_cls is "x", want a number`,
		"eagle:w_cls=NaN": "w_cls is NaN, want", "talf:temp=nan": "temp is nan, want", "talf:temp=0": "temp is 0, want 0.01..100",
		"eagle:reg=l2": `reg is "l2", want smooth or l1`, "hass:feed=on": "want detach or flow", "talf:labels=all": "want tail or ignore",
		"hass:top=0": "top is 0, want 1..", "hass:passes=0": "passes is 0, want 1..16", "hass:decay=0": "decay is 0, want 0.001..1000", "talf:decay=0": "decay is 0, want 0.001..1000", "talf:levels=-1": "levels is -1, want 0..16",
		"hass:w_reg=0,w_cls=0,w_topk=0": "nothing to learn", "talf:w_cls=0": "nothing to learn", "eagle:w_reg=0,w_cls=0": "nothing to learn",
	} {
		if _, err := loss.Parse(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", spec, err, want)
		}
	}
}
