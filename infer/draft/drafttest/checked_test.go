package drafttest

import (
	"reflect"
	"testing"

	"talf/infer"
)

// A braggart has every trait.
type braggart struct{ Oracle }

func (*braggart) Traits() infer.Traits {
	return infer.Traits{
		Harvest: infer.Anew, Control: infer.Always,
		Origins: infer.Origins{Names: []string{"here"}, Of: func(int) int { return 0 }},
		Finish:  func(*infer.Proposal) error { return nil }, End: func() {},
	}
}

// The suite sees a drafter as the engine does: its wrapper loses no trait, including those that
// are added later.
func TestTheSuiteLosesNoTrait(t *testing.T) {
	c := &checked{d: new(braggart)}
	bare, wrapped := reflect.ValueOf(c.d.Traits()), reflect.ValueOf(c.Traits())
	for i := range bare.NumField() {
		if name := bare.Type().Field(i).Name; bare.Field(i).IsZero() {
			t.Errorf("the braggart lacks %s", name)
		} else if wrapped.Field(i).IsZero() {
			t.Errorf("the suite loses %s", name)
		}
	}
}
