package head_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/golden"
	"talf/model/arch"
	"talf/model/head"
)

// The configuration of a block drafter is read as the same head that it was written for.
func TestConfigurationsOfBlockDraftersSayWhatTheyAre(t *testing.T) {
	for name, change := range map[string]func(*arch.Spec){
		"dflash/a": nil, "dflash/b": nil, "dspark/a": nil, "dspark/b": nil, "jetspec/a": nil, "jetspec/b": nil,
		"dflash2/a": nil, "dflash/swa": nil,
		"a Markov head whose rows are not shifted": func(s *arch.Spec) { s.Block.Shift, s.DraftVocab = false, 32 },
		"shifted rows without a Markov head":       func(s *arch.Spec) { s.Block.Markov, s.Block.Rank, s.Block.ConfidenceMarkov = "", 0, false },
		"a recurrent Markov head in causal layers": func(s *arch.Spec) { s.Block.Markov, s.Block.Causal = arch.RNNMarkov, []bool{true, true} },
		"no confidence":                    func(s *arch.Spec) { s.Block.Confidence, s.Block.ConfidenceMarkov = false, false },
		"windows that see the whole block": func(s *arch.Spec) { s.Windows = []int{9, 9} },
		"all causal, some with windows":    func(s *arch.Spec) { s.Windows, s.Block.Causal = []int{9, 0}, []bool{true, true} },
		"the embedding alone":              func(s *arch.Spec) { s.Block.Taps = []int{0} },
	} {
		from := name
		if change != nil {
			from = "dspark/a"
		}
		want, err := arch.LoadDraft(golden.Shared(t, "data/block/"+from+"/head"))
		must(t, err)
		if change != nil {
			change(want)
		}
		raw, err := head.Config(want)
		must(t, err)
		got, err := arch.ParseDraft("config.json", raw, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(want.Canonical(), got.Canonical()); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	for name, change := range map[string]func(*arch.Spec){
		"a layer without a window alone is causal": func(s *arch.Spec) { s.Block.Causal = []bool{false, true} },
		"windows of two sizes":                     func(s *arch.Spec) { s.Windows = []int{6, 7} },
	} {
		s, err := arch.LoadDraft(golden.Shared(t, "data/block/dflash/swa/head"))
		must(t, err)
		change(s)
		if _, err := head.Config(s); err == nil {
			t.Errorf("%s: a configuration says so", name)
		}
	}
}
