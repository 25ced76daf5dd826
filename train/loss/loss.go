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

var labelsParam = Param{"labels", "tail", "mass outside the top-K labels: tail (one bucket) or ignore; sets with full labels use them whole"}

// table lists the losses, in the order of help and errors.
var table = []Method{
	{
		Name: "eagle", Doc: "feature regression and cross-entropy along the text (EAGLE)",
		Params: []Param{
			{"w_reg", "1", "weight of the regression"},
			{"w_cls", "10", "weight of the cross-entropy"},
			{"reg", "smooth", "regression: smooth (SmoothL1) or l1"},
			labelsParam,
		},
		New: newEagle,
	},
	{
		Name: "talf", Doc: "cross-entropy on every node of the target's trees, the head following its own features (TALF)",
		Params: []Param{labelsParam},
		New:    newTALF,
	},
}

// Methods returns the table.
func Methods() []Method { return append([]Method(nil), table...) }

// A Loss says what the draft head's outputs are compared with.
type Loss interface {
	// Levels is how many levels of a tree of depth the head is run on.
	Levels(depth int) int
	// Regresses says that Inputs.Target is used: the features must be known.
	Regresses() bool
	// Tail says that top-K labels come with their tail bucket.
	Tail() bool
	// Build adds the loss's terms to the graph.
	Build(in Inputs) []Term
}

// Inputs are what a loss is built over: per level, rows of the head's outputs.
type Inputs struct {
	Graph  *gg.Graph
	FHat   []*gg.Node            // [level]: [rows][H], the predicted features
	LMHead *gg.Node              // [V][H], the target's, frozen
	Labels []*compute.SoftLabels // [level], read at every run
	Target *gg.Node              // [level-0 rows][H]: f_{i+1}; nil unless Regresses
}

// A Term is one addend of a loss: Weight · Σ_r mask[r]·loss[r] / N.
type Term struct {
	Name   string // "reg" or "cls"
	Level  int
	Weight float32
	*gg.Loss
	scale *[]float32
}

// SetScale weights the rows of the next run: mask[r]·Weight/n, n being the
// number of positions that count in the whole step.
func (t *Term) SetScale(mask []float32, n float64) {
	s := (*t.scale)[:0]
	for _, m := range mask {
		s = append(s, float32(float64(m)*float64(t.Weight)/n))
	}
	*t.scale = s
}

// cls adds a cross-entropy term.
func cls(in Inputs, level int, weight float32) Term {
	scale := make([]float32, 0, in.FHat[level].Rows().Max)
	l := in.Graph.SoftCE(in.FHat[level], in.LMHead, in.Labels[level], &scale)
	return Term{Name: "cls", Level: level, Weight: weight, Loss: l, scale: &scale}
}

// Values are the parameters of a loss, defaults filled in.
type Values map[string]string

func (v Values) float(name string) (float32, error) {
	f, err := strconv.ParseFloat(v[name], 32)
	if err != nil || f < 0 || f > 1e6 {
		return 0, fmt.Errorf("%s=%s: want a number from 0 to 1e6", name, v[name])
	}
	return float32(f), nil
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
