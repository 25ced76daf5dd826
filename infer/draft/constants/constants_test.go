package constants_test

import (
	"math"
	"testing"

	"talf/infer/draft"
	"talf/infer/draft/constants"
)

// The values in use are those of the file, which says what they were fitted on.
func TestValuesAreThoseOfTheFit(t *testing.T) {
	r := constants.Fit()
	if err := r.Values.Validate(); err != nil {
		t.Error(err)
	}
	if r.Command == "" || r.Date == "" || r.Prompts < 1 || r.Part != "tune" || len(r.Texts) != 64 || len(r.Costs) != 64 {
		t.Errorf("fitted.json does not say what was fitted: %+v", r)
	}
	for spec, want := range map[string]string{
		"recycle": constants.List(r.Values.Recycle), "sequoia": constants.List(r.Values.Sequoia),
	} {
		if _, v, err := draft.Find(spec); err != nil || v.Text("accept") != want {
			t.Errorf("%s has accept=%s, the fit %s, %v", spec, v.Text("accept"), want, err)
		}
	}
	if _, v, err := draft.Find("fuse"); err != nil || v.Float("th") != r.Values.Fuse.Th {
		t.Errorf("fuse has th=%v, the fit %v, %v", v.Float("th"), r.Values.Fuse.Th, err)
	}
}

func TestValuesOutOfRangeAreRefused(t *testing.T) {
	for name, change := range map[string]func(s *constants.Set){
		"th":      func(s *constants.Set) { s.Fuse.Th = 1 },
		"shrink":  func(s *constants.Set) { s.Fuse.Shrink = math.NaN() },
		"memory":  func(s *constants.Set) { s.Fuse.Memory = 0 },
		"empty":   func(s *constants.Set) { s.Recycle = nil },
		"the sum": func(s *constants.Set) { s.Sequoia = []float64{0.9, 0.2} },
		"below 0": func(s *constants.Set) { s.Sequoia = []float64{-0.1} },
	} {
		s := *constants.Fitted()
		change(&s)
		if s.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
