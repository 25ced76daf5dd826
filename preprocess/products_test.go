package preprocess_test

import (
	"testing"

	"talf/compute/cpu"
	"talf/data"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// A CPU has no separate products for many rows. told is called for every copy with the
// reason.
func TestCPUsComputeTheirProductsThemselves(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	told := 0
	by, err := preprocess.Products([]*model.Model{m, m}, true, func(_ *model.Model, by string, why error) {
		told++
		if by != "" || why == nil {
			t.Errorf("products by %q, %v", by, why)
		}
	})
	if by != "" || err != nil || told != 2 {
		t.Errorf("%q, %v, told called for %d copies", by, err, told)
	}
}

func TestInventoryOfSeveralFiles(t *testing.T) {
	drops := map[string]int{"too short": 2, "bad": 1}
	one := preprocess.Stats{Dropped: drops, Inputs: []preprocess.InputStats{{File: "a.txt"}}}
	if got, want := one.Inventory(), "left out: 1: bad\nleft out: 2: too short\n"; got != want {
		t.Errorf("one file of text:\n%s\nwant\n%s", got, want)
	}
	two := preprocess.Stats{Inputs: []preprocess.InputStats{
		{File: "a.json", Input: data.Input{Conversations: 3, Turns: 5, Cut: 1, Rows: 3, Tokens: 40, Loss: 20, Dropped: drops}},
		{File: "b.txt", Input: data.Input{Rows: 1, Tokens: 9, Loss: 9}},
	}}
	want := "a.json: 3 conversations, 5 turns (1 cut off), 3 sequences of 40 tokens, 20 to learn\n" +
		"left out: 1: bad\nleft out: 2: too short\n" +
		"b.txt: 1 sequences of 9 tokens, 9 to learn\n"
	if got := two.Inventory(); got != want {
		t.Errorf("two files:\n%s\nwant\n%s", got, want)
	}
}
