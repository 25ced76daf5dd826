// Package loss holds the training losses of draft heads, one per file. To add
// one, write its file, add its line to the table and let its test call
// losstest.Run.
package loss

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"talf/compute"
	"talf/train/internal/gg"
)

// A Method is one line of the table.
type Method struct {
	Name   string
	Doc    string
	Params []Param
	New    func(Values) (Loss, error)
}

// A Param is an option of a loss, written name:param=value,….
type Param struct {
	Name, Default, Doc string
}

// Parameters that several losses have.
var (
	labelsParam  = Param{"labels", "tail", "mass outside the top-K labels: tail (one bucket) or ignore; sets with full labels use them whole"}
	tempParam    = Param{"temp", "1", "temperature of both distributions, the loss multiplied by its square; other than 1 needs full labels"}
	outsideParam = Param{"outside", "drop", "labels outside a draft vocabulary: drop (their mass), renorm (those inside get it) or mask (the same, and nodes whose most likely token is outside do not count)"}
	regParam     = Param{"reg", "smooth", "regression: smooth (SmoothL1) or l1"}
)

// table lists the losses, in the order of help and errors.
var table = []Method{
	{
		Name: "eagle", Doc: "feature regression and cross-entropy along the text (EAGLE)",
		Params: []Param{
			{"w_reg", "1", "weight of the regression"},
			{"w_cls", "10", "weight of the cross-entropy"},
			regParam, labelsParam, outsideParam, tempParam,
		},
		New: newEagle,
	},
	{
		Name: "hass", Doc: "the same and top-K distillation in aligned passes, the head fed with its own features along the text (HASS)",
		Params: []Param{
			{"w_reg", "1", "weight of the regression"},
			{"w_cls", "10", "weight of the cross-entropy"},
			{"w_topk", "10", "weight of the cross-entropy on the most likely tokens alone"},
			{"top", "10", "how many they are"},
			{"passes", "3", "aligned passes, whose losses are added"},
			{"feed", "detach", "gradient through the features that are fed back: detach (none) or flow"},
			regParam, labelsParam, outsideParam, tempParam,
		},
		New: newHASS,
	},
	{
		Name: "talf", Doc: "cross-entropy on every node of the target's trees, the head following its own features (TALF)",
		Params: []Param{
			{"w_cls", "1", "weight of the cross-entropy"},
			{"w_reg", "0", "weight of a regression along the text, which TALF does without"},
			{"decay", "1", "weight of a level's nodes over that of the level above"},
			{"levels", "0", "levels of the trees that are trained on (0: all that the data have)"},
			{"feed", "flow", "gradient through the features that are fed back: flow or detach (none)"},
			regParam, labelsParam, outsideParam, tempParam,
		},
		New: newTALF,
	},
}

// Methods returns the table.
func Methods() []Method { return append([]Method(nil), table...) }

// A Labelling is what a loss must know of the data.
type Labelling struct {
	Depth int // levels of the trees, the positions' own included
	K     int // labels of a node, 0: all tokens
	// DraftVocab is how many tokens the head predicts, 0: all. Labels are of these
	// alone, as Plan.Outside says; IDs of others are −1.
	DraftVocab int
}

// Outside says what becomes of labels of tokens that the head cannot predict. All
// three have the same optimum, the target's distribution given that its token is
// in the vocabulary; what differs is the weight of a node.
type Outside string

// The ways. A node weighs as much as its labels have mass.
const (
	Drop   Outside = "drop"   // the mass inside: the cross-entropy without the terms that do not exist
	Renorm Outside = "renorm" // all mass, as in the speculators library
	Mask   Outside = "mask"   // all mass or, where the most likely token is outside, none, as in EAGLE-3 and SpecForge
)

// A Plan is how the head is run for a loss.
type Plan struct {
	// Levels are run: the positions of the text and, below them, nodes that are
	// fed the f̂ of their parent.
	Levels int
	// Text says that these nodes follow the text, one on each level, and not the
	// target's trees: level l at position i is pass l+1 of HASS at position i.
	Text    bool
	Detach  bool    // f̂ is fed back without its gradient
	Regress int     // levels whose Inputs.Target is read: their features are known
	Outside Outside // of labels outside a draft vocabulary
	Tail    bool    // top-K labels come with their tail bucket
	Temp    float32 // Inputs.LMHead is divided by it
	// Cut says that some of the labels' mass is left out, so that the target's
	// own distribution is not where the loss is least.
	Cut bool
}

// A Loss says what the draft head's outputs are compared with.
type Loss interface {
	// Plan refuses data that the loss cannot be computed on.
	Plan(d Labelling) (Plan, error)
	// Build adds the loss's terms to the graph.
	Build(in Inputs) []Term
}

// Inputs are what a loss is built over: per level, rows of the head's outputs.
type Inputs struct {
	Graph  *gg.Graph
	FHat   []*gg.Node            // [level]: [rows][H], the predicted features
	Vocab  int                   // V, of the draft vocabulary if there is one
	LMHead *gg.Node              // [V][H], the target's (rows of it) over Plan.Temp, frozen
	Labels []*compute.SoftLabels // [level], read by Term.Set
	Target []*gg.Node            // [level < Plan.Regress]: [rows][H], f_{i+1}
}

// A Term is one addend of a loss: Weight · Σ_r mask[r]·loss[r] / N.
type Term struct {
	Name   string // "reg" or "cls"
	Level  int
	Weight float32
	*gg.Loss
	scale   *[]float32
	relabel func() // makes the term's own labels of the level's
}

// Set prepares the next run: it takes the labels, and weights row r by
// mask[r]·Weight/n, n being the number of positions that count in the whole step.
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

// regress adds a regression term; w is its weight.
func regress(in Inputs, level int, w float32, l1 bool) Term {
	scale := make([]float32, 0, in.FHat[level].Rows().Max)
	l := in.Graph.SmoothL1(in.FHat[level], in.Target[level], &scale, l1)
	return Term{Name: "reg", Level: level, Weight: w, Loss: l, scale: &scale}
}

// Values are the parameters of a loss, defaults filled in.
type Values map[string]string

func (v Values) float(name string) (float32, error) {
	f, err := strconv.ParseFloat(v[name], 32)
	if err != nil || !(f >= 0 && f <= 1e6) { // NaN fails too
		return 0, fmt.Errorf("%s=%s: want a number from 0 to 1e6", name, v[name])
	}
	return float32(f), nil
}

func (v Values) int(name string, from, to int) (int, error) {
	n, err := strconv.Atoi(v[name])
	if err != nil || n < from || n > to {
		return 0, fmt.Errorf("%s=%s: want a whole number from %d to %d", name, v[name], from, to)
	}
	return n, nil
}

func (v Values) one(name string, of ...string) (string, error) {
	for _, o := range of {
		if v[name] == o {
			return o, nil
		}
	}
	return "", fmt.Errorf("%s=%s: want %s", name, v[name], strings.Join(of, " or "))
}

// Parse reads "talf", "eagle:w_cls=0.1,reg=l1" and the like.
func Parse(s string) (Loss, error) {
	name, rest, _ := strings.Cut(s, ":")
	for _, m := range table {
		if m.Name != name {
			continue
		}
		v := make(Values)
		for _, p := range m.Params {
			v[p.Name] = p.Default
		}
		if rest != "" {
			for _, kv := range strings.Split(rest, ",") {
				key, val, ok := strings.Cut(kv, "=")
				if _, known := v[key]; !ok || !known {
					return nil, fmt.Errorf("loss %s: parameter %q; known: %s", name, kv, strings.Join(names(v), ", "))
				}
				v[key] = val
			}
		}
		l, err := m.New(v)
		if err != nil {
			return nil, fmt.Errorf("loss %s: %w", name, err)
		}
		return l, nil
	}
	var known []string
	for _, m := range table {
		known = append(known, m.Name)
	}
	return nil, fmt.Errorf("loss %q is not known; known: %s", name, strings.Join(known, ", "))
}

func names(v Values) []string {
	var out []string
	for k := range v {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
