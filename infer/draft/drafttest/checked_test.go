package drafttest

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"talf/infer"
)

// A braggart has every trait.
type braggart struct{ Oracle }

func (*braggart) Traits() infer.Traits {
	return infer.Traits{
		Harvest: true, Keeps: true, Defers: true, Took: func(infer.Timing) {}, Rest: func() int { return 0 }, Rested: func(int, []int32, time.Duration) {},
		Origins: []string{"here"}, Origin: func(int) int { return 0 },
		Finish: func(*infer.Proposal) error { return nil }, Idle: idle{}, End: func() {},
	}
}

type idle struct{}

func (idle) Release() {}

// The suite sees a drafter as the engine does: its wrapper loses no trait, including those that
// are added later.
func TestTheSuiteLosesNoTrait(t *testing.T) {
	c := &checked{d: new(braggart), costs: rand.New(rand.NewPCG(1, 2))}
	bare, wrapped := reflect.ValueOf(c.d.Traits()), reflect.ValueOf(c.Traits())
	for i := range bare.NumField() {
		if name := bare.Type().Field(i).Name; bare.Field(i).IsZero() {
			t.Errorf("the braggart lacks %s", name)
		} else if wrapped.Field(i).IsZero() {
			t.Errorf("the suite loses %s", name)
		}
	}
}
