package computetest

import (
	"reflect"
	"testing"

	"talf/compute"
)

// A Treatment is what a queue that wraps another does with one of its abilities.
type Treatment uint8

// The treatments.
const (
	Passed   Treatment = iota + 1 // handed on as it is
	Wrapped                       // replaced by the wrapping queue's own
	Withheld                      // left out
)

// Decorates checks that the queues that wrap returns treat the abilities of the queue
// that they wrap as want says, and never claim one that it lacks. want has an entry for
// every field of compute.Abilities: a new ability fails the test of each wrapping queue
// until somebody decides what that does with it.
func Decorates(t *testing.T, wrap func(compute.Queue) compute.Queue, want map[string]Treatment) {
	t.Helper()
	all := reflect.ValueOf(full())
	for i := range all.NumField() {
		name := all.Type().Field(i).Name
		if all.Field(i).IsNil() {
			t.Fatalf("computetest has no fake of ability %s", name)
		}
		outer := reflect.ValueOf(wrap(able{can: full()}).Abilities()).Field(i)
		passed := !outer.IsNil() && outer.Interface() == all.Field(i).Interface()
		switch treatment, ok := want[name]; {
		case !ok:
			t.Errorf("ability %s: not decided on", name)
		case treatment == Passed && !passed:
			t.Errorf("ability %s is not passed on", name)
		case treatment == Wrapped && (outer.IsNil() || passed):
			t.Errorf("ability %s is not wrapped", name)
		case treatment == Withheld && !outer.IsNil():
			t.Errorf("ability %s is not withheld", name)
		}
		lacking := full()
		reflect.ValueOf(&lacking).Elem().Field(i).SetZero()
		if !reflect.ValueOf(wrap(able{can: lacking}).Abilities()).Field(i).IsNil() {
			t.Errorf("ability %s is claimed, but the inner queue lacks it", name)
		}
	}
	for name := range want {
		if !all.FieldByName(name).IsValid() {
			t.Errorf("there is no ability %s", name)
		}
	}
}

// An able queue has the abilities that it is given, and nothing runs on it.
type able struct {
	compute.Queue
	can compute.Abilities
}

func (q able) Abilities() compute.Abilities { return q.can }

// full returns an ability of each kind, the same ones at every call.
func full() compute.Abilities {
	return compute.Abilities{
		Peaks:    struct{ compute.Peaker }{},
		Replay:   struct{ compute.Replayer }{},
		Choose:   struct{ compute.Chooser }{},
		Draw:     struct{ compute.Drawer }{},
		Bulk:     struct{ compute.Bulker }{},
		BF16:     struct{ compute.BF16Reader }{},
		Train:    struct{ compute.TrainOps }{},
		Block:    struct{ compute.BlockOps }{},
		Remote:   struct{ compute.Remote }{},
		Stash:    struct{ compute.Stasher }{},
		Check:    struct{ compute.Checker }{},
		Cancel:   struct{ compute.Canceler }{},
		Variants: struct{ compute.Varier }{},
		Latent:   struct{ compute.Absorber }{},
		Recur:    struct{ compute.Recurrer }{},
	}
}
