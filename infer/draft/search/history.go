package search

// A DynaTreeState is what history moves of DynaTree's parameters.
type DynaTreeState struct{ D0, High, Deep float64 }

// HistoryConfig are the parameters of DynaTree's history adaptation (Chen et al., §3.3).
type HistoryConfig struct {
	Window int     // W: answers or rounds whose mean acceptance counts
	Want   float64 // a*
	StepD  float64 // ηD: step of D0
	Step   float64 // ηh: step of the thresholds
}

// A History is the adaptation that the authors' code makes: once an answer, not once a round. An
// answer's acceptance is its tokens per round, the target's own included, over the D+2 tokens that
// a round of the constructor's depth D can have at most, whatever the depth is now.
type History struct {
	cfg   HistoryConfig
	tree  DynaTreeConfig // as constructed
	now   DynaTreeState
	rates []float64 // of the last Window answers, oldest first
}

// Bounds of the authors' code.
const (
	historyLeast = 5   // answers before anything moves
	deadBand     = 0.1 // distance from Want within which nothing does
	leastDepth   = 2
	leastHigh    = 0.5
	mostHigh     = 0.95
	leastDeep    = 0.3
	mostDeep     = 0.8

	// minGap is the smallest distance between the confidence thresholds. The authors' code does
	// not ask for any, and has none of Low above 0.49.
	minGap = 0.01
)

// NewHistory returns a history without answers for trees of t.
func NewHistory(c HistoryConfig, t DynaTreeConfig) *History {
	return &History{cfg: c, tree: t, now: DynaTreeState{t.D0, t.High, t.Deep}}
}

// State returns the parameters of the next answer.
func (h *History) State() DynaTreeState { return h.now }

// Rates returns the acceptance of the last answers, oldest first. The slice is h's own.
func (h *History) Rates() []float64 { return h.rates }

// Add counts an answer of so many tokens, which took so many rounds.
func (h *History) Add(tokens, rounds int) {
	if rounds == 0 {
		return
	}
	if len(h.rates) == h.cfg.Window {
		h.rates = append(h.rates[:0], h.rates[1:]...)
	}
	h.rates = append(h.rates, float64(tokens)/(float64(rounds)*(h.tree.D0+2)))
	if len(h.rates) < historyLeast {
		return
	}
	s, step := &h.now, h.cfg.Step
	switch m := mean(h.rates); {
	case m > h.cfg.Want+deadBand:
		s.D0 = max(1, min(s.D0+h.cfg.StepD, float64(h.tree.DMax-1)))
		s.High = max(s.High-step, leastHigh, h.tree.Low+minGap)
		s.Deep = max(s.Deep-step, leastDeep, h.tree.Stop)
	case m < h.cfg.Want-deadBand:
		s.D0 = min(max(s.D0-h.cfg.StepD, leastDepth), float64(h.tree.DMax))
		s.High = max(min(s.High+step, mostHigh), h.tree.Low+minGap)
		s.Deep = max(min(s.Deep+step, mostDeep), h.tree.Stop)
	}
}

// A RoundHistory is the paper's listing: after every round, D0 and High move in proportion to the
// distance of the mean acceptance from Want. A round's acceptance is the accepted share of its
// deepest path.
type RoundHistory struct {
	cfg  HistoryConfig
	tree DynaTreeConfig
	now  DynaTreeState
	seen []float64 // a ring of the last rounds
	next int
}

// NewRoundHistory returns a history without rounds for trees of t.
func NewRoundHistory(c HistoryConfig, t DynaTreeConfig) *RoundHistory {
	h := &RoundHistory{cfg: c, tree: t}
	h.Reset()
	return h
}

// Reset forgets all rounds.
func (h *RoundHistory) Reset() {
	h.seen, h.next = h.seen[:0], 0
	h.now = DynaTreeState{h.tree.D0, h.tree.High, h.tree.Deep}
}

// State returns the parameters of the next round.
func (h *RoundHistory) State() DynaTreeState { return h.now }

// Add counts a round by its acceptance.
func (h *RoundHistory) Add(rate float64) {
	if len(h.seen) < h.cfg.Window {
		h.seen = append(h.seen, rate)
	} else {
		h.seen[h.next] = rate
		h.next = (h.next + 1) % h.cfg.Window
	}
	off := mean(h.seen) - h.cfg.Want
	if h.cfg.StepD > 0 {
		// The paper clips to 1..Dmax-1; here the range also includes the given D0.
		h.now.D0 = min(max(h.now.D0+h.cfg.StepD*off, 1), max(float64(h.tree.DMax-1), h.tree.D0))
	}
	if h.cfg.Step > 0 {
		h.now.High = min(max(h.now.High-h.cfg.Step*off, h.tree.Low+minGap), 1)
	}
}

func mean(xs []float64) float64 {
	var sum float64
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}
