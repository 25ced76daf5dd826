package train

import (
	"strings"
	"testing"
)

func TestStagesAreRead(t *testing.T) {
	base := Default()
	base.LR, base.MinLR, base.Warmup = 1e-3, 0.1, 7
	for s, want := range map[string]Planned{
		"eagle:400":                    {Stage: Stage{Loss: "eagle", Steps: 400, LR: 1e-3, MinLR: 0.1, Warmup: 7}},
		"talf:3e":                      {Stage: Stage{Loss: "talf", LR: 1e-3, MinLR: 0.1, Warmup: 7}, Epochs: 3},
		"talf:0.5e":                    {Stage: Stage{Loss: "talf", LR: 1e-3, MinLR: 0.1, Warmup: 7}, Epochs: 0.5},
		"hass:top=4,feed=flow:10:lr=2": {Stage: Stage{Loss: "hass:top=4,feed=flow", Steps: 10, LR: 2, MinLR: 0.1, Warmup: 7}},
		"talf:2e:lr=1e-4,min-lr=0,warmup=0": {
			Stage: Stage{Loss: "talf", LR: 1e-4}, Epochs: 2,
		},
	} {
		if got, err := ParseStage(s, base); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", s, got, err, want)
		}
	}
	for s, want := range map[string]string{
		"": "LOSS:STEPS", "talf": "LOSS:STEPS", "talf:": "LOSS:STEPS", "talf:0": "1 or more", "talf:1.5": "1.5e", "talf:0e": "more than 0",
		"hinge:3": "unknown loss", "talf:3:lr": `"lr" has no value`, "talf:3:x=1": "known are lr, min-lr, warmup", "talf:3:lr=1,lr=2": "given twice", "talf:3:lr=11": "lr is 11, want 0..10", "talf:3:": "empty", "talf:3:lr=1:warmup=2": "LOSS:STEPS", "talf:labels=no:3": "tail or ignore",
	} {
		if _, err := ParseStage(s, base); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", s, err, want)
		}
	}
}

func FuzzParseStage(f *testing.F) {
	for _, s := range []string{"eagle:10e", "talf:labels=ignore:400:lr=1e-4", "hass:1e2e", ":", "talf:1e9e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		st, err := ParseStage(s, Default())
		if err == nil && (st.Steps < 1) == (st.Epochs <= 0) {
			t.Errorf("%q: %d steps and %v epochs", s, st.Steps, st.Epochs)
		}
	})
}
