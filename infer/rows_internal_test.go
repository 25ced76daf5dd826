package infer

import (
	"math"
	"testing"
)

// Draft trees go first; prompts get what they leave, at least an eighth.
func TestPromptsGetWhatTreesLeave(t *testing.T) {
	for _, c := range []struct {
		rows, chunk, trees int
		want               int
	}{
		{64, 256, 10, 54},
		{64, 256, 60, 8},
		{64, 256, 500, 8},
		{64, 256, 0, 256},
		{600, 256, 0, 600},
		{1, 256, 1, 1},
		{0, 256, 10, math.MaxInt},
	} {
		e := Engine{Config: Config{PrefillChunk: c.chunk, PassRows: c.rows}}
		if got := e.promptRows(c.trees); got != c.want {
			t.Errorf("%d rows, trees of %d: %d rows for prompts, want %d", c.rows, c.trees, got, c.want)
		}
	}
}
