package drafttest

import (
	"fmt"
	"math/rand/v2"

	"talf/infer"
	"talf/tree"
)

// A Control decides at random. It panics if the engine breaks the contract.
type Control struct {
	Rand *rand.Rand
	Cuts int // trees of which a part was cut
}

// Begin bounds some trees, and leaves some sequences out.
func (u *Control) Begin(bids []*infer.Bid, sequences int) {
	if len(bids) > sequences {
		panic(fmt.Sprintf("drafttest: %d bids of %d sequences", len(bids), sequences))
	}
	for _, b := range bids {
		if b.Skip > 0 {
			panic(fmt.Sprintf("drafttest: a bid of a sequence that sits out %d rounds", b.Skip))
		}
		b.Most = []int{tree.MaxNodes, tree.MaxNodes, 1, 2, 5, 30}[u.Rand.IntN(6)]
		b.Least = float64(u.Rand.IntN(3)) / 10
	}
}

// Ask lets three of four go on.
func (u *Control) Ask(bids []*infer.Bid) {
	for _, b := range bids {
		if b.Nodes < 1 || b.Level == 0 && (b.Nodes != 1 || b.Backlog < 0) || b.Most == 1 {
			panic(fmt.Sprintf("drafttest: a bid for %d nodes in pass %d with a bound of %d and a backlog of %d", b.Nodes, b.Level, b.Most, b.Backlog))
		}
		b.Go = u.Rand.IntN(4) > 0
		b.Read = !b.Go && b.Level == 0 && b.Backlog > 1 && u.Rand.IntN(2) == 0
	}
}

// Cut keeps a random part of some trees.
func (u *Control) Cut(bids []*infer.Bid, rows int) {
	if rows < len(bids) {
		panic(fmt.Sprintf("drafttest: %d rows beside the drafts of %d sequences", rows, len(bids)))
	}
	for _, b := range bids {
		if b.Tree == nil {
			continue
		}
		if b.Live < 1 || b.Live > b.Tree.Len() || b.LogV != nil && len(b.LogV) != b.Tree.Len() {
			panic(fmt.Sprintf("drafttest: %d live nodes and %d probabilities of %d nodes", b.Live, len(b.LogV), b.Tree.Len()))
		}
		whole := u.Rand.IntN(2) == 0
		if !whole {
			u.Cuts++
		}
		share := u.Rand.Float64()
		b.Keep = append(b.Keep[:0], true)
		for n := 1; n < b.Tree.Len(); n++ {
			b.Keep = append(b.Keep, whole || b.Keep[b.Tree.Parent(n)] && u.Rand.Float64() < share)
		}
	}
}

// Learn checks that something was put out, and lets some sit rounds out.
func (u *Control) Learn(bids []*infer.Bid, _ *infer.Pass) {
	for _, b := range bids {
		if len(b.Tokens) == 0 {
			panic("drafttest: a round without tokens")
		}
		if u.Rand.IntN(4) == 0 {
			b.Skip = u.Rand.IntN(6)
		}
	}
}

var _ infer.Controller = (*Control)(nil)
