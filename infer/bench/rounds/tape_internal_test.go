package rounds

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"talf/infer"
	"talf/internal/leak"
	"talf/tree"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m.Run)) }

// looking is a source that notes what may follow the nodes that it is asked about.
type looking struct {
	infer.Source
	saw [][]uint64
}

func (*looking) Abilities() infer.Abilities { return infer.Abilities{} }

func (s *looking) Rows(_ context.Context, asks []infer.Ask) ([]infer.Row, error) {
	for _, a := range asks {
		for n := a.From; n < a.Tree.Len(); n++ {
			if a.Allow == nil {
				s.saw = append(s.saw, []uint64{99})
				continue
			}
			s.saw = append(s.saw, slices.Clone(a.Allow(n)))
		}
	}
	return nil, nil
}

// A source that was told what may follow is told the same once more, or told nothing as before.
func TestPassesAreRepeatedWithWhatMayFollow(t *testing.T) {
	s := &looking{}
	var tape Tape
	_, through := tape.Begin(&infer.Engine{Clock: time.Now}, s)
	var tr tree.Tree
	tr.Reset(1, 8)
	tr.Add(0, 2)
	tr.Add(0, 3)
	var words [1]uint64 // which each call overwrites
	allow := func(n int) []uint64 {
		if n == 1 {
			return nil
		}
		words[0] = uint64(7 + n)
		return words[:]
	}
	for _, a := range []func(int) []uint64{allow, nil, allow} {
		if _, err := through.Rows(t.Context(), []infer.Ask{{Tree: &tr, From: 0, Width: 1, Allow: a}}); err != nil {
			t.Fatal(err)
		}
		tape.End()
	}
	first := s.saw
	if s.saw = nil; len(first) != 9 || !slices.Equal(first[2], []uint64{9}) || first[1] != nil || !slices.Equal(first[4], []uint64{99}) {
		t.Fatalf("the source was told %v", first)
	}
	if err := tape.sourceAgain(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(first, s.saw, func(a, b []uint64) bool { return slices.Equal(a, b) && (a == nil) == (b == nil) }) {
		t.Errorf("the source was told %v, and then %v", first, s.saw)
	}
}
