package infer_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"talf/infer"
	"talf/model"
	"talf/model/modeltest"
)

// A prompt whose numbers are not finite leaves no prefix that another could start from, not even
// of the tokens before the one to blame; nor does one that was cancelled before that showed.
func TestNumbersThatAreNotFiniteAreNotKept(t *testing.T) {
	const poison = 77
	conf := modeltest.Default()
	conf.EOS, conf.Tied = -1, false
	m := planted(t, conf, poison*conf.Hidden, float32(math.NaN()))
	good := plainRequest(t, 1, 2, 3, 4, 5, 6, 7, 8)
	good.NoEOS = true
	want, err := (&infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}).Generate(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	for _, cancelled := range []bool{false, true} {
		e := &infer.Engine{Target: infer.NewTarget(m, 4), Config: infer.Default()}
		s, err := e.Open(plainRequest(t, 1, 2, 3, 4, 5, poison, 6))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := e.Step(t.Context(), []*infer.Sequence{s}); err != nil {
				t.Fatal(err)
			}
			if cancelled {
				s.Cancel(errGone)
			}
		}
		var odd *model.NonFiniteError
		if !cancelled && !errors.As(s.Err(), &odd) {
			t.Errorf("the poisoned prompt: %v", s.Err())
		}
		e.Close(s)
		got, err := e.Generate(t.Context(), good)
		if err != nil || !slices.Equal(got.Tokens(), want.Tokens()) {
			t.Errorf("after a poisoned prompt, cancelled %v: %v, error %v; want %v", cancelled, got.Tokens(), err, want.Tokens())
		}
		again, err := e.Generate(t.Context(), good)
		if err != nil || again.Stats().Cached != len(good.Prompt)-1 {
			t.Errorf("a sound prefix is not kept: %d tokens, %v", again.Stats().Cached, err)
		}
	}
	if slices.Contains(want.Tokens(), poison) {
		t.Error("plain decoding comes to the poison by itself")
	}
}
