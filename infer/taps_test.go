package infer_test

import (
	"math"
	"slices"
	"testing"

	"talf/infer"
	"talf/model"
)

// Readers of a round, such as draft sources, get the tapped states of its nodes.
func TestScoresHandOutTaps(t *testing.T) {
	m := newNets(t, 1, 4).target
	if err := m.Tap(1, m.Spec().Layers); err != nil {
		t.Fatal(err)
	}
	width := 2 * m.Spec().Hidden
	req := plainRequest(t, 1, 2)
	var got [][]float32 // of roots
	req.Trace = func(r infer.Round) error {
		f, h := r.Scores.Hidden(0), m.Spec().Hidden
		row := make([]float32, width)
		q := m.Device().Queue()
		for i, b := range f.Taps.Rows {
			q.Read(row[i*h:][:h], b, int(f.Row)*h)
		}
		got = append(got, row)
		return q.Sync(t.Context())
	}
	e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
	s, err := e.Generate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	all := append(slices.Clone(req.Prompt), s.Tokens()...)
	seq := m.NewSeq()
	defer seq.Close()
	o, err := seq.Append(t.Context(), all[:len(all)-1], nil, model.WantNone)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, (len(all)-1)*width)
	o.ReadTaps(want, 0)
	for i, row := range got {
		at := (len(req.Prompt) - 1 + i) * width
		for j, x := range row {
			if math.Float32bits(x) != math.Float32bits(want[at+j]) {
				t.Fatalf("round %d: value %d is %v, want %v", i, j, x, want[at+j])
			}
		}
	}
	if len(got) != len(s.Tokens()) {
		t.Errorf("%d rounds, %d tokens", len(got), len(s.Tokens()))
	}
}
