package kvpool

// Stats describe a pool, in blocks.
type Stats struct {
	BlockTokens int // positions of a block
	Total       int // blocks that all sequences together may take
	Used        int // blocks of sequences, kept prefixes and branches
	Free        int // Total − Used
	State       int // blocks that the states of a sequence count as, which those of recurrent layers have
	Held        int // blocks that take memory, in use or not, where the device gives memory back
	// Layout is how blocks divide the model's layers; nil: a block has BlockTokens positions of all.
	Layout *Layout
}

// Stats returns the state of the pool, without that of recurrent layers.
func (b *Pool) Stats(l *Layout) Stats {
	return Stats{BlockTokens: blockLen, Total: b.Most(), Used: b.Used(), Free: b.Most() - b.Used(), Held: b.Held(), Layout: l}
}

// Takes returns the most blocks that a sequence of from positions takes to have to positions, if
// a pass runs at most pass of them.
func (s *Stats) Takes(from, to, pass int) int {
	if s.Layout != nil {
		return s.Layout.Takes(from, to, pass)
	}
	blocks := func(n int) int { return (n + s.BlockTokens - 1) / s.BlockTokens }
	return max(0, blocks(to)-blocks(from))
}

// Positions returns the most positions of one sequence that the pool has room for: more than of
// several together if some layers have a window.
func (s *Stats) Positions(pass int) int {
	if s.Layout != nil {
		return s.Layout.Fits(s.Total, pass)
	}
	return s.Total * s.BlockTokens
}
