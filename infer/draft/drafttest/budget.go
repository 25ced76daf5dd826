package drafttest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"talf/infer"
)

// A Budget decides at random. It panics if the engine breaks the contract.
type Budget struct {
	Rand *rand.Rand
	Cuts int // trees of which a part was cut

	bids []*infer.Bid
}

// Begin bounds some trees, and leaves some sequences out.
func (u *Budget) Begin(bids []*infer.Bid) {
	u.bids = append(u.bids[:0], bids...)
	for _, b := range bids {
		b.Most = []int{0, 0, 1, 2, 5, 30}[u.Rand.IntN(6)]
	}
}

// Ask lets three of four go on.
func (u *Budget) Ask(bids []*infer.Bid) {
	for _, b := range bids {
		if b.Nodes < 1 || b.Level == 0 && b.Nodes != 1 || b.Most == 1 {
			panic(fmt.Sprintf("drafttest: a bid for %d nodes in pass %d with a bound of %d", b.Nodes, b.Level, b.Most))
		}
		b.Go = u.Rand.IntN(4) > 0
	}
}

// Asked does nothing.
func (u *Budget) Asked([]*infer.Bid, int, time.Duration) {}

// Cut keeps a random part of some trees.
func (u *Budget) Cut(bids []*infer.Bid) {
	for _, b := range bids {
		if b.Tree == nil {
			continue
		}
		if b.Live < 1 || b.Live > b.Tree.Len() || b.LogV != nil && len(b.LogV) != b.Tree.Len() {
			panic(fmt.Sprintf("drafttest: %d live nodes and %d probabilities of %d nodes", b.Live, len(b.LogV), b.Tree.Len()))
		}
		if u.Rand.IntN(2) == 0 {
			continue
		}
		u.Cuts++
		share := u.Rand.Float64()
		b.Keep = append(b.Keep, true)
		for n := 1; n < b.Tree.Len(); n++ {
			b.Keep = append(b.Keep, b.Keep[b.Tree.Parent(n)] && u.Rand.Float64() < share)
		}
	}
}

// Learn checks that something was put out.
func (u *Budget) Learn(_ *infer.Bid, tokens []int32) {
	if len(tokens) == 0 {
		panic("drafttest: a round without tokens")
	}
}

// End does nothing.
func (u *Budget) End(*infer.Pass) {}

// Postpones is drawn, too.
func (u *Budget) Postpones() bool { return u.Rand.IntN(2) == 0 }

var _ infer.Budget = (*Budget)(nil)
