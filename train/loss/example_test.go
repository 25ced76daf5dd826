package loss_test

import (
	"fmt"
	"testing"

	"talf/train/loss"
	"talf/train/loss/losstest"
)

// shallow is a loss of another module: TALF's cross-entropy, in which deeper levels weigh less,
// since decoding reaches them less often.
type shallow struct{}

func (shallow) Plan(d loss.Labelling) (loss.Plan, error) {
	if d.Depth < 2 {
		return loss.Plan{}, fmt.Errorf("shallow: the trees have %d level, want at least 2", d.Depth)
	}
	return loss.Plan{Levels: d.Depth, Outside: loss.Drop, Tail: true, Temp: 1}, nil
}

func (shallow) Build(in loss.Inputs) []loss.Term {
	var terms []loss.Term
	for level := range in.FHat {
		terms = append(terms, in.CrossEntropy(level, 1/float32(level+1), nil))
	}
	return terms
}

func TestShallowIsALoss(t *testing.T) { losstest.Run(t, shallow{}, queue) }

// A custom loss says how the head is run, and which terms are added up. To train with it, name
// it in train.HeadJob.Losses.
func Example() {
	plan, err := shallow{}.Plan(loss.Labelling{Depth: 3, K: 16})
	fmt.Println(plan.Levels, err)
	// Output: 3 <nil>
}
