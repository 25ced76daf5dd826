package prompts_test

import (
	"fmt"
	"testing"

	"talf/infer/prompts"
)

// The rule is part of every reported figure: it must never change. The hashes of these texts begin
// with 5e, 2c, ba and e3 (sha256sum).
func TestTheSplitIsTheFirstBitOfTheHash(t *testing.T) {
	for text, tune := range map[string]bool{"password": true, "hello": true, "abc": false, "": false} {
		p := &prompts.Prompt{Turns: []string{" \n" + text + " ", "later turns do not count"}}
		if text == "" {
			p.Turns = nil
		}
		if prompts.Tune.Has(p) != tune || prompts.Report.Has(p) == tune || !prompts.All.Has(p) {
			t.Errorf("%q: in tune %v, in report %v", text, prompts.Tune.Has(p), prompts.Report.Has(p))
		}
	}
	n := 0
	for i := range 1000 {
		if prompts.Tune.Has(&prompts.Prompt{Turns: []string{fmt.Sprint("prompt ", i)}}) {
			n++
		}
	}
	if n < 450 || n > 550 { // 3.2 standard deviations
		t.Errorf("%d of 1000 prompts to tune on", n)
	}
	if s, err := prompts.ParseSplit("test"); err == nil {
		t.Errorf("a part called %q", s)
	}
}
