package search

import "slices"

// LevelsConfig are the parameters of TALF's label trees.
type LevelsConfig struct {
	K     int // nodes of every level below the root
	Depth int // labelled levels, the root's included
}

// DefaultLevels returns the values of the TALF paper, §4.1: three levels of 1,
// 4 and 4 nodes.
func DefaultLevels() LevelsConfig { return LevelsConfig{K: 4, Depth: 3} }

// Nodes returns the size of a full tree.
func (c LevelsConfig) Nodes() int { return 1 + c.K*(c.Depth-1) }

// Validate checks that the tree fits.
func (c LevelsConfig) Validate() error {
	if err := inRange("levels: k", c.K, 1, 256); err != nil {
		return err
	}
	if err := inRange("levels: depth", c.Depth, 1, 64); err != nil {
		return err
	}
	return inRange("levels: nodes", c.Nodes(), 1, maxWork)
}

// Levels builds the trees whose nodes preprocessing labels: a plain beam search
// that keeps the selected nodes only, K per level, best first (TALF, §3.2).
// Every node is asked, those of the last level too, because each carries a
// label; so Work is the whole tree, and Tree the same once the search is done.
type Levels struct {
	state
	cfg   LevelsConfig
	level int // levels asked
}

// NewLevels returns a search for c.
func NewLevels(c LevelsConfig) (*Levels, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Levels{cfg: c}, nil
}

// Width returns K.
func (l *Levels) Width() int { return l.cfg.K }

// Start begins a tree below root.
func (l *Levels) Start(root int32, maxDepth int) {
	l.start(root, maxDepth, l.cfg.Nodes())
	l.level = 0
}

// Grow selects the next level. The rows of the last level are not read.
func (l *Levels) Grow(rows []Row) []int {
	if l.level == 0 {
		l.level = 1
		l.request(0)
		return l.ask
	}
	if len(l.asked) == 0 {
		return nil
	}
	checkRows("Levels", rows, len(l.asked))
	first := len(l.cands)
	if l.level < l.cfg.Depth && l.level <= l.maxDepth {
		for i, c := range l.asked {
			for r := range min(len(rows[i].Tokens), l.cfg.K) {
				l.child(c, r+1, rows[i].Tokens[r], rows[i].LogProb[r])
			}
		}
	}
	l.level++
	l.ask, l.asked, l.pick = l.ask[:0], l.asked[:0], l.pick[:0]
	for c := first; c < len(l.cands); c++ {
		l.pick = append(l.pick, int32(c))
	}
	slices.SortFunc(l.pick, l.order)
	for _, c := range l.pick[:min(len(l.pick), l.cfg.K)] {
		l.request(c)
	}
	if len(l.ask) == 0 {
		l.done()
	}
	return l.ask
}

func (l *Levels) done() {
	// The work tree holds the selection in order; find it among the candidates.
	l.pick = slices.Grow(l.pick[:0], l.work.Len())[:l.work.Len()]
	for c := range l.cands {
		if w := l.cands[c].work; w >= 0 {
			l.pick[w] = int32(c)
		}
	}
	l.finish(l.pick)
}

var (
	_ Search = (*Beam)(nil)
	_ Search = (*SALF)(nil)
	_ Search = (*Levels)(nil)
)
