package draft_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/internal/golden"
	"talf/tree"
)

// Both rules copy what the published function and transformers' do, in every recorded case.
func TestPromptLookupIsTheAuthors(t *testing.T) {
	var all struct {
		Cases []struct {
			Context               []int32
			Most                  int `json:"max_ngram"`
			Tokens                int
			Authors, Transformers []int32
		}
	}
	if err := json.Unmarshal(golden.Read(t, "methods/pld/cases.json"), &all); err != nil {
		t.Fatal(err)
	}
	agree := map[string]int{}
	for _, x := range all.Cases {
		for rule, want := range map[string][]int32{"paper": x.Authors, "transformers": x.Transformers, "latest": x.Authors} {
			d := open(t, fmt.Sprintf("pld:rule=%s,K=%d,lo=1,hi=%d", rule, x.Tokens, x.Most), draft.Env{}).New()
			if err := d.Start(x.Context); err != nil {
				t.Fatal(err)
			}
			last := len(x.Context) - 1
			p := infer.Proposal{Tree: tree.New(x.Context[last], 100), Pos: last, MaxNodes: 100, MaxDepth: 99}
			if _, err := d.Grow(&p, nil, nil); err != nil {
				t.Fatal(err)
			}
			if got := p.Tree.Tokens()[1:]; slices.Equal(got, want) {
				agree[rule]++
			} else if rule != "latest" {
				t.Errorf("%s after %v: %v, want %v", rule, x.Context, got, want)
			}
		}
	}
	if agree["paper"] != 60 || agree["transformers"] != 60 || agree["latest"] > 40 {
		t.Errorf("of 60 cases agree %v", agree)
	}
}
