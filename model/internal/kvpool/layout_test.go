package kvpool

import (
	"slices"
	"testing"
)

// Layouts of published models, by how many layers come before the next that sees everything.
func TestGroupsOfLayers(t *testing.T) {
	for _, c := range []struct {
		name                           string
		layers, every, window          int
		size, groups, full, keep, most int
	}{
		{"Llama 3.2 1B", 16, 1, 512, 16, 1, 1, 512, 512},
		{"Mistral 7B v0.1", 32, 1000, 4096, 32, 1, 0, 130, 512},
		{"Gemma 3 1B", 26, 6, 512, 2, 13, 2, 2*512 + 11*18, 2*512 + 11*4*18},
		{"Gemma 3 4B", 34, 6, 1024, 5, 7, 1, 512 + 6*34, 512 + 6*4*34},
		{"gpt-oss 20B", 24, 2, 128, 12, 2, 1, 512 + 6, 512 + 4*6},
	} {
		windows := make([]int, c.layers)
		for i := range windows {
			if (i+1)%c.every != 0 {
				windows[i] = c.window
			}
		}
		l, places := Arrange(windows)
		if l.Layers != c.size || len(l.Windows) != c.groups || l.Full() != c.full {
			t.Errorf("%s: %d groups of %d layers, %d of them keep everything; want %d of %d, %d", c.name, len(l.Windows), l.Layers, l.Full(), c.groups, c.size, c.full)
		}
		seen := map[Place]bool{}
		for i, p := range places {
			if seen[p] || p.Layer >= l.Layers || l.Windows[p.Group] != windows[i] {
				t.Errorf("%s: layer %d is at %+v", c.name, i, p)
			}
			seen[p] = true
		}
		const n = 512 * blockLen
		if got, most := l.Keeps(n, false), l.Keeps(n, true); got != c.keep || most != c.most {
			t.Errorf("%s: %d positions keep %d blocks, with places %d; want %d and %d", c.name, n, got, most, c.keep, c.most)
		}
		if fits := l.Fits(l.Takes(0, n, 256), 256); l.Full() > 0 && fits != n {
			t.Errorf("%s: what %d positions take fits %d", c.name, n, fits)
		}
		// Short texts take all blocks of all groups.
		if got := l.Takes(0, 40, 256); got != 2*len(l.Windows) {
			t.Errorf("%s: 40 positions take %d blocks of %d groups", c.name, got, len(l.Windows))
		}
	}
}

// A sequence of 32 positions that runs long trees takes their blocks, and a long one no more than windows, places and a pass.
func TestWhatASequenceTakes(t *testing.T) {
	l := Layout{Layers: 1, Windows: []int{0, 64}}
	for _, c := range []struct{ from, to, pass, want int }{
		{0, 32, 32, 2},
		{32, 64, 32, 2},
		{3200, 3264, 64, 2 + 2},
		{0, 3200, 64, 100 + 4*4 + 2},
		{64, 3200, 64, 98 + 4*4 + 2 - 2},
	} {
		if got := l.Takes(c.from, c.to, c.pass); got != c.want {
			t.Errorf("from %d to %d in passes of %d: %d blocks, want %d", c.from, c.to, c.pass, got, c.want)
		}
	}
	if !slices.Equal(Slots(2), func() (s []int32) {
		for i := range int32(blockLen) {
			s = append(s, 64+i)
		}
		return s
	}()) {
		t.Error("slots of block 2")
	}
}
