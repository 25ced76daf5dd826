package draft_test

import (
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
)

func TestEveryMethodConforms(t *testing.T) {
	for _, spec := range []string{
		"ar", "beam", "beam:N=7,k=2,depth=2", "beam:N=1", "beam:depth=0,k=3", "optimal", "optimal:N=9,B=2",
		"salf", "salf:th=0.1,N=30,B=3", "salf:finish=literal", "salf:finish=fill,th=0.9", "salf:N=1", "salf:N=2,B=1",
	} {
		t.Run(spec, func(t *testing.T) {
			drafttest.Run(t, func() infer.Drafter {
				d, _, err := draft.New(spec)
				if err != nil {
					t.Fatal(err)
				}
				return d
			})
		})
	}
}

func TestSpecificationsAreCheckedAgainstTheTable(t *testing.T) {
	for spec, want := range map[string]string{
		"":                  "want one of ar, beam, optimal, salf",
		"slaf":              `unknown method "slaf"`,
		"salf:threshold=1":  `unknown parameter "threshold": known are N, B, th, finish`,
		"ar:N=3":            "it has no parameters",
		"salf:th":           "has no value",
		"salf:N=1,N=2":      "given twice",
		"salf:N=many":       "N is \"many\", want a whole number",
		"salf:th=1":         "want 0 <= th < 1",
		"salf:finish=early": "want topn, fill or literal",
		"optimal:th=0.5":    `unknown parameter "th": known are N, B, finish`,
		"beam:k=0":          "beam: k is 0",
	} {
		if _, _, err := draft.New(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", spec, err, want)
		}
	}
	for _, m := range draft.Methods() {
		if _, _, err := draft.New(m.Name); err != nil {
			t.Errorf("%s: the defaults are refused: %v", m.Name, err)
		}
		if m.Doc == "" {
			t.Errorf("%s has no description", m.Name)
		}
	}
}
