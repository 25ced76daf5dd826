package loss

// talf is Σ_n CE(p(n), q(n)) over all labelled nodes of a position's tree, the
// head taking its own f̂ down every path, with gradients through it (TALF,
// Algorithm 1). A position's nodes share its mask; there is no regression.
type talf struct{ tail bool }

func newTALF(v Values) (Loss, error) {
	labels, err := v.one("labels", "tail", "ignore")
	return talf{tail: labels == "tail"}, err
}

func (talf) Levels(depth int) int { return depth }
func (talf) Regresses() bool      { return false }
func (t talf) Tail() bool         { return t.tail }

func (talf) Build(in Inputs) []Term {
	var ts []Term
	for l := range in.FHat {
		ts = append(ts, cls(in, l, 1))
	}
	return ts
}
