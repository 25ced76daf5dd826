package score

import (
	"strings"
	"testing"

	"talf/model/modeltest"
)

// A tree that crosses the length at which longrope turns all positions otherwise is refused: its prefix would have two sets of keys.
func TestTreesAcrossTheSwitchOfLongropeAreRefused(t *testing.T) {
	conf := modeltest.Of("phi3")
	conf.Window, conf.Original = 0, 5
	spec := conf.Spec()
	chain := &Tree{Parents: []int{-1, 0}, Tokens: []int32{3, 4}}
	for n, want := range map[int]string{3: "", 4: "rotate otherwise", 5: "rotate otherwise", 6: ""} {
		in := Input{IDs: make([]int32, n), Tree: chain}
		if err := in.Fits(spec); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d ids and a tree of depth 2: %v, want %q", n, err, want)
		}
	}
}
