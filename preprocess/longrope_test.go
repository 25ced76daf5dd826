package preprocess_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// A text is labelled with the rotation of its length, its last tree counted, by models that change it with longrope.
func TestLabelsTurnAsTheLengthOfTheirTextSays(t *testing.T) {
	conf := modeltest.Of("phi3")
	conf.Window, conf.Original, conf.EOS = 0, 20, -1
	dir := modeltest.Random(t, conf, 2)
	m := target(t, dir, cpu.Default(), model.Default())
	lengths := []int{18, 19, 40} // a tree of three levels adds two tokens
	var text strings.Builder
	for i, n := range lengths {
		for k := range n {
			fmt.Fprint(&text, (7*k*k+3*k+i)%conf.Vocab, " ")
		}
		text.WriteString("\n\n")
	}
	c := preprocess.Default()
	c.Files, c.Out, c.TopK = []string{write(t, "ids.txt", text.String())}, t.TempDir(), 4
	if _, err := preprocess.Run(t.Context(), c, preprocess.Inputs{Target: m, Tokenizer: numbers{-1}}); err != nil {
		t.Fatal(err)
	}
	meta, got := rows(t, c.Out)
	if len(got) != len(lengths) {
		t.Fatalf("%d rows, want %d", len(got), len(lengths))
	}
	// top is the likeliest token after ids, read as part of a text of n tokens.
	top := func(ids []int32, n int) int32 {
		s := m.NewSeqOf(n)
		defer s.Close()
		o, err := s.Append(t.Context(), ids, nil, model.WantLast)
		if err != nil {
			t.Fatal(err)
		}
		best := make([]int32, 1)
		o.TopK(best, nil, 0, 1, 1)
		return best[0]
	}
	differs := 0
	for i, r := range got {
		n, long := len(r.Tokens), i > 0
		if n != lengths[i] {
			t.Fatalf("row %d has %d tokens, want %d", i, n, lengths[i])
		}
		whole := map[bool]int{false: 1, true: conf.MaxPos}
		for p := range n {
			for node := range meta.Nodes() {
				at := p*meta.Nodes() + node
				var path []int32
				for k := int32(node); k > 0; k = r.TreeParents[p*meta.Nodes()+int(k)] {
					path = append(path, r.TreeTokens[p*meta.Nodes()+int(k)])
				}
				slices.Reverse(path)
				ids := slices.Concat(r.Tokens[:p+1], path)
				if got, want := r.LabelIDs[at*meta.K], top(ids, whole[long]); got != want {
					t.Fatalf("text of %d tokens, position %d, node %d: label %d, want %d", n, p, node, got, want)
				}
				if len(ids) <= conf.Original && top(ids, whole[!long]) != r.LabelIDs[at*meta.K] {
					differs++
				}
			}
		}
	}
	if differs == 0 {
		t.Error("both rotations give the same labels: nothing was tested")
	}
}
