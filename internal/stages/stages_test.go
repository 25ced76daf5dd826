package stages_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"talf/internal/stages"
)

type quiet struct{}

func (quiet) Begin(int, int, string)  {}
func (quiet) End(time.Duration) error { return nil }

// A job goes on at the stage that failed, with what earlier ones found, and only with its plan; until a stage is done,
// any plan will do.
func TestAJobGoesOnWithItsPlan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	var ran []string
	failed := errors.New("failed")
	job := func(plan, fails string) (found int, err error) {
		r, err := stages.Open[string, int](file, plan)
		if err != nil {
			return 0, err
		}
		var all []stages.Stage
		for _, name := range []string{"a", "b"} {
			all = append(all, stages.Stage{Name: name, Run: func(context.Context) error {
				ran = append(ran, plan+name)
				if name == fails {
					return failed
				}
				r.Result++
				return nil
			}})
		}
		found = r.Result
		return found, r.Run(t.Context(), all, quiet{})
	}
	if _, err := job("x", "a"); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if _, err := job("y", "b"); !errors.Is(err, failed) {
		t.Fatalf("another plan before a stage is done: %v", err)
	}
	if _, err := job("x", ""); !errors.Is(err, stages.ErrPlan) {
		t.Errorf("another plan after a stage: %v", err)
	}
	if found, err := job("y", ""); err != nil || found != 1 {
		t.Errorf("%d found before, %v", found, err)
	}
	if want := []string{"xa", "ya", "yb", "yb"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
}
