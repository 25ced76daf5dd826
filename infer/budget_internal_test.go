package infer

import (
	"math"
	"testing"
)

// Draft trees go first; prompts get what they leave, at least an eighth.
func TestPromptsGetWhatTreesLeave(t *testing.T) {
	for _, c := range []struct {
		rows, chunk, trees int
		hold               bool
		want               int
	}{
		{64, 256, 10, false, 54},
		{64, 256, 60, false, 8},
		{64, 256, 500, false, 8},
		{64, 256, 0, false, 256},
		{600, 256, 0, false, 600},
		{1, 256, 1, false, 1},
		{0, 256, 10, false, math.MaxInt},
		{64, 256, 10, true, 0},
		{0, 256, 10, true, 0},
		{64, 256, 0, true, 256},
		{0, 256, 0, true, math.MaxInt},
	} {
		e := Engine{Config: Config{PrefillChunk: c.chunk, PassRows: c.rows, Hold: c.hold}}
		if got := e.promptRows(c.trees); got != c.want {
			t.Errorf("%d rows, trees of %d: %d rows for prompts, want %d", c.rows, c.trees, got, c.want)
		}
	}
}
