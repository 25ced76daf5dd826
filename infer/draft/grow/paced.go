package grow

import (
	"math"

	"talf/infer"
	"talf/infer/draft/search"
)

// A Paceable search has a stop and a size that can be set before every tree.
type Paceable interface {
	Search
	Tune(t search.Tuning)
	// Sums are the path probabilities of the nodes to expand, summed by round of the search;
	// Gains what each round added to the tree.
	Sums() []float64
	Gains() []float64
}

// Paced is a drafter whose trees follow what passes cost.
//
// A round of decoding is a renewal: tokens come fastest if everything that is done earns its
// time at the current rate, that is, if a token is worth λ, the current time per token. Let κ be
// the measured number of accepted tokens per unit of path probability (drafts are
// overconfident). Then
//
//   - a node of path probability V is worth κλV, and costs a row of the target's pass: the tree
//     has the likeliest n nodes that lead most to κλΣV less the time of a pass of n rows, on the
//     curve of such times;
//   - a round of the search whose nodes sum to S is worth κλcS, where c is the share of such
//     sums that past rounds after the first turned into nodes of the tree, beyond what
//     their places were worth: it is run if that is at least a' + b'n, the cost of a
//     draft pass over its n nodes without those that are not worth b'.
//
// S never rises (TALF, Theorem 1), so once a round does not pay, no later round can: looking one
// round ahead is enough. The first round is always run.
//
// A search whose stop is not to follow costs has to earn its passes otherwise: each node then pays
// what a larger tree takes longer to draft, beside its row.
type Paced struct {
	search  Paceable
	config  Pace
	account *Account
	limit   int // nodes that the last tree could have had; 0 if the drafter was not asked
	most    int // the engine's bound on it
	tokens  int // of the last round
	price   []float64
}

// A Pace says what follows costs.
type Pace struct {
	N    int     // most nodes of a tree, root counted; 0: what pays, and none at all if nothing does
	Th   float64 // where a search stops; if Stop, only while costs are unknown
	Stop bool    // the stop follows costs
	// Always drafts, even while that does not pay.
	Always bool
}

// MostNodes bounds trees whose size follows costs.
const MostNodes = 256

// NewPaced returns a drafter that grows s by what a has measured. Drafters of one account share it.
func NewPaced(s Paceable, c Pace, a *Account) *Paced {
	return &Paced{search: s, config: c, account: a}
}

// Start begins a sequence; what passes cost stays known.
func (d *Paced) Start([]int32) error {
	d.limit, d.tokens = 0, 0
	return nil
}

// Grow takes the search one step further.
func (d *Paced) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	if rows == nil {
		var t search.Tuning
		t, d.limit = d.account.plan(d.config, p.MaxNodes, d.price)
		d.most = p.MaxNodes
		if t.Price != nil {
			d.price = t.Price
		}
		d.search.Tune(t)
		Drafter{d.search}.begin(p, d.limit)
	}
	return Drafter{d.search}.grow(p, rows)
}

// Observe learns what the draft's probabilities are worth.
func (d *Paced) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	d.tokens = len(v.Path)
	if p.Tree != d.search.Tree() {
		d.limit = 0
		return nil
	}
	if p.Tree.Len() < 2 {
		return nil
	}
	var predicted float64
	for _, x := range d.search.LogV()[1:] {
		predicted += math.Exp(x)
	}
	d.account.observe(float64(len(v.Path)-1), predicted, d.search.Gains(), d.search.Sums())
	return nil
}

// Traits says that the drafter wants to know what rounds cost.
func (d *Paced) Traits() infer.Traits {
	return infer.Traits{Took: d.took, Finish: Drafter{d.search}.Finish}
}

// took learns from the cost of the round.
func (d *Paced) took(t infer.Timing) {
	d.account.took(t, d.tokens, d.limit, d.most)
	d.limit = 0
}
