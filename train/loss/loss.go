// Package loss holds the training losses of draft heads, one per file. To add one to the table,
// write its file, add its line, and call losstest.Run in its test. A loss of another module
// needs no line: see Loss.
package loss

import (
	"fmt"
	"strings"

	"talf/compute"
	"talf/internal/spec"
	"talf/train/internal/gg"
)

// A Method is a line of the table.
type Method struct {
	spec.Line
	New func(spec.Values) (Loss, error)
}

// Methods returns the table, in the order of help and errors.
func Methods() []Method {
	return []Method{
		eagleMethod(), hassMethod(), talfMethod(), eagle3Method(),
		tvMethod(), nlaMethod(), lkMethod(), rklMethod(), ealMethod(),
		dflashMethod(), dpaceMethod(), dsparkMethod(),
	}
}

// Help names all losses and says what each is.
func Help() string {
	var names []string
	for _, m := range Methods() {
		names = append(names, m.Name+" ("+m.Doc+")")
	}
	return strings.Join(names, ", ")
}

// Parse parses specifications such as "talf" and "eagle:w_cls=0.1,reg=l1".
func Parse(text string) (Loss, error) {
	m, v, err := spec.Table[Method]{Kind: "loss", Lines: Methods()}.Parse(text)
	if err != nil {
		return nil, err
	}
	l, err := m.New(v)
	if err != nil {
		return nil, fmt.Errorf("loss %q: %w", text, err)
	}
	return l, nil
}

// Parameters that several losses have.

func weightParam(name string, preset float64, doc string) spec.Param {
	return spec.Float(name, preset, spec.Closed(0, 1e6), doc)
}

func regParam() spec.Param {
	return spec.Choice("reg", "regression: smooth (SmoothL1) or l1", "smooth", "l1")
}

// A Labelling is what a loss needs to know about the data.
type Labelling struct {
	Depth int // levels of the trees, including the level of the positions themselves
	K     int // labels of a node; 0: all tokens
	// Branch is how many children a node of the trees has.
	Branch int
	// DraftVocab is how many tokens the head predicts; 0: all. Labels cover these tokens
	// only, as Plan.Outside says; the IDs of others are −1.
	DraftVocab int
	// Drafts is how many tokens a block head predicts in one pass, which bounds the levels; 0: it is
	// another head.
	Drafts int
}

// levels returns how many levels of the trees are trained on if so many were asked for, 0 for all.
func (d Labelling) levels(asked int) (int, error) {
	n := d.Depth
	if d.Drafts > 0 {
		n = min(n, d.Drafts)
	}
	switch {
	case asked > d.Depth:
		return 0, fmt.Errorf("levels=%d, but the trees of the data have %d", asked, d.Depth)
	case asked > n:
		return 0, fmt.Errorf("levels=%d, but a block has %d", asked, n)
	case asked > 0:
		return asked, nil
	}
	return n, nil
}

// Outside says what happens to the labels of tokens that the head cannot predict. All three ways
// have the same optimum: the target's distribution given that its token is in the draft
// vocabulary. They differ in a node's weight, which is the mass of its labels.
type Outside string

// The ways.
const (
	Drop   Outside = "drop"   // a node's mass is that of the labels inside: the cross-entropy without the missing terms
	Renorm Outside = "renorm" // the labels inside get all the mass, as in the speculators library
	Mask   Outside = "mask"   // the same, but nodes whose most likely token is outside do not count, as in EAGLE-3 and SpecForge
)

// A Plan says how the head is run for a loss.
type Plan struct {
	// Levels is how many levels are run, at least 1: the positions of the text and, below
	// them, nodes that are fed the f̂ of their parent.
	Levels int
	// Text says that these nodes follow the text, one per position and level, instead of
	// the target's trees: level l at position i is pass l+1 of HASS at position i.
	Text bool
	// Once says that every row of the text counts once. Else the first positions count again for
	// the passes of HASS that are equal there.
	Once bool
	// Decay is the weight of a pass over that of the pass before, where Text is set and Once is not: the
	// terms of the levels have it, and rows that stand for several passes need it; 0 is 1.
	Decay float32
	// Early is how many places before the predicted token lies the token that must be in the loss
	// mask for a row to count; see mix.Learnt.
	Early int
	// Undrafted says that rows are run also below tokens that the head cannot predict.
	Undrafted bool
	Detach    bool    // f̂ is fed back without its gradient
	Regress   int     // how many levels need Inputs.Target, the features to predict
	Outside   Outside // what happens to labels outside a draft vocabulary
	Tail      bool    // top-K labels come with their tail bucket
	// Exact says that the labels are whole distributions also if the data hold the most likely
	// tokens alone: the target's LM head gives them from its features. Only rows of the text have
	// features, so there is one level then, or Text.
	Exact bool
	Temp  float32 // temperature of p and q; Inputs.LMHead is divided by it. usually 1
	// Cut says that some of the labels' mass is left out, or that it is moved to the text's own token, so
	// that the loss is not minimal at the target's own distribution.
	Cut bool
	// Held says that the gradient takes as constants some factors that depend on the head, so that
	// it is not the derivative of the loss.
	Held bool
	// Reach says that a node of a tree counts as often as the target reaches it: the product of its
	// probabilities on the way there.
	Reach bool
	// Ends says that a block's rows along the text end before the first token that is not learnt. Else
	// only the rows that predict such tokens do not count.
	Ends bool
	// Path says that the nodes of a block head are rows of their own, with their ancestors' tokens; see net.Block.
	Path bool
}

// A Loss says how the draft head's outputs are compared with the target's. Other modules
// may implement it, build their terms with the methods of Inputs, test it with
// losstest.Run and train with it: see train.HeadJob.Losses.
type Loss interface {
	// Plan refuses data that the loss cannot be computed on.
	Plan(d Labelling) (Plan, error)
	// Build adds the loss's terms to the graph.
	Build(in Inputs) []Term
}

// Inputs are what a loss is built from, level by level.
type Inputs struct {
	Graph  *gg.Graph
	FHat   []*gg.Node            // [level]: [rows][H], what the LM head reads: the features that an EAGLE-1/2 head predicts
	Vocab  int                   // V: tokens that the head predicts
	LMHead *gg.Node              // [V][H]: those rows of the target's LM head over Plan.Temp, frozen; or an EAGLE-3 head's own
	Labels []*compute.SoftLabels // [level]; Term.Set reads them
	Target []*gg.Node            // [level < Plan.Regress]: [rows][H], f_{i+1}
	Nodes  []Nodes               // [level]: which nodes of the trees the rows are
	Sure   []*gg.Node            // [level]: [rows][1], what a confidence head says; nil: there is none
	// Of a block head with a selector: Pair·PairHeadᵀ are its scores, which count for the Top likeliest tokens.
	Pair     []*gg.Node // [level]: [rows][…]; nil: there is none
	PairHead *gg.Node   // [V][…]
	Top      int
}

// Nodes are the rows of a level.
type Nodes struct {
	Token  *[]int32   // [rows]: the node's own token, as labels count them; −1: outside the draft vocabulary. unused on level 0
	Parent *[]int32   // [rows]: its parent's row on the level above; unused on level 0
	Mask   *[]float32 // [rows]: how many times it counts
	Next   *[]int32   // [rows] of a block along the text: the token after it, as labels count them; −1: outside the draft vocabulary
}

// A Term is one addend of a loss: Weight · Σ_r mask[r]·loss[r] / N.
type Term struct {
	Name   string // "reg", "cls", "joint", "sure" or "pair"
	Level  int
	Weight float32
	*gg.Loss
	scale   *[]float32
	relabel func() // derives the term's own labels from the level's; nil: they are the same
}

// Regression returns a term that compares the features on a level with the target's:
// the mean over their elements of SmoothL1(f̂ − f), or of |f̂ − f| if l1.
func (in Inputs) Regression(level int, weight float32, l1 bool) Term {
	scale := make([]float32, 0, in.FHat[level].Rows().Max)
	l := in.Graph.SmoothL1(in.FHat[level], in.Target[level], &scale, l1)
	return Term{Name: "reg", Level: level, Weight: weight, Loss: l, scale: &scale}
}

// CrossEntropy returns a term that compares the token distributions on a level with their
// labels: CE(p, q), with q = softmax(LMHead·f̂). If relabel is not nil, it is called before
// every run to derive the term's own labels from the level's: it sets dst, whose memory it may
// reuse, and leaves src unchanged.
func (in Inputs) CrossEntropy(level int, weight float32, relabel func(dst, src *compute.SoftLabels)) Term {
	labels := in.Labels[level]
	t := Term{Name: "cls", Level: level, Weight: weight}
	if relabel != nil {
		own := new(compute.SoftLabels)
		t.relabel = func() { relabel(own, in.Labels[level]) }
		labels = own
	}
	scale := make([]float32, 0, in.FHat[level].Rows().Max)
	t.scale = &scale
	t.Loss = in.Graph.SoftCE(in.FHat[level], in.LMHead, labels, &scale)
	return t
}

// Joint returns a term that is computed from the probabilities of all levels together. Its rows are
// those of level 0, which scale weighs.
func (in Inputs) Joint(weight float32, judge gg.Judge) Term {
	scale := make([]float32, 0, in.FHat[0].Rows().Max)
	t := Term{Name: "joint", Weight: weight, scale: &scale}
	t.Loss = in.Graph.Joint(in.FHat, in.LMHead, in.Labels, &scale, judge)
	return t
}

// Set prepares the next run: it takes the labels and weights row r by mask[r]·Weight/n, where n
// is the number of positions that count in the whole step.
func (t *Term) Set(mask []float32, n float64) {
	if t.relabel != nil {
		t.relabel()
	}
	s := (*t.scale)[:0]
	for _, m := range mask {
		s = append(s, float32(float64(m)*float64(t.Weight)/n))
	}
	*t.scale = s
}
