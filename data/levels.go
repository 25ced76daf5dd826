package data

// A Level describes one level of the label trees, over the positions that have trees.
type Level struct {
	Level int   `json:"level"`
	Nodes int64 `json:"nodes"` // labelled
	// Mass is the mean total probability of a node's stored labels. Top is that of the
	// K most likely labels, for K in Stats.TopK.
	Mass float64   `json:"mass"`
	Top  []float64 `json:"mass_of_top,omitempty"`
	// Reach is the mean probability, by position, that the target's continuation is in
	// the tree down to this level: Σ over the level's nodes of the product of the
	// probabilities along the path. It is 1 for level 0.
	Reach float64 `json:"reach"`
}

// levels accumulates trees for Stats.
type levels struct {
	roots int64 // positions with a tree
	all   []Level
	mass  []kahan
	reach []kahan
	top   [][]kahan
	value []float64 // product along the path, by node of one tree
	depth []int
}

// topCounts returns the K of Stats.TopK: powers of two up to the number of labels, and
// that number.
func topCounts(m *Meta) (ks []int) {
	for k := 1; m.Labels == TopK && k < m.K; k *= 2 {
		ks = append(ks, k)
	}
	if m.Labels == TopK {
		ks = append(ks, m.K)
	}
	return ks
}

func newLevels(m *Meta) *levels {
	l := &levels{
		all: make([]Level, m.Depth), mass: make([]kahan, m.Depth), reach: make([]kahan, m.Depth), top: make([][]kahan, m.Depth),
		value: make([]float64, m.Nodes()), depth: make([]int, m.Nodes()),
	}
	for i := range l.all {
		l.all[i].Level, l.top[i] = i, make([]kahan, len(topCounts(m)))
	}
	return l
}

// add adds the trees of a row. Parents come before their children.
func (l *levels) add(r *Record, m *Meta, ks []int) {
	n := m.Nodes()
	for p := range r.Tokens {
		if (m.LossOnly || m.TreeShare > 0) && n > 1 && !r.hasTree(m, p*n+1) {
			continue
		}
		l.roots++
		for i := range n {
			at := p*n + i
			l.value[i], l.depth[i] = 1, 0
			if parent := int(r.TreeParents[at]); parent >= 0 && parent < i {
				l.depth[i] = min(l.depth[parent]+1, len(l.all)-1)
				l.value[i] = l.value[parent] * r.labelOf(m, p*n+parent, r.TreeTokens[at])
			}
			d := l.depth[i]
			l.all[d].Nodes++
			l.reach[d].add1(l.value[i])
			if m.Labels != TopK {
				l.mass[d].add(r.LabelFull[at*m.Vocab:][:m.Vocab])
				continue
			}
			probs := r.LabelProbs[at*m.K:][:m.K]
			var sum float64
			next := 0
			for k, q := range probs {
				sum += float64(q)
				if next < len(ks) && k+1 == ks[next] {
					l.top[d][next].add1(sum)
					next++
				}
			}
			l.mass[d].add1(sum)
		}
	}
}

// hasTree reports whether the first node below a root has labels.
func (r *Record) hasTree(m *Meta, node int) bool {
	if m.Labels == TopK {
		return r.Tail[node] != 1
	}
	for _, q := range r.LabelFull[node*m.Vocab:][:m.Vocab] {
		if q != 0 {
			return true
		}
	}
	return false
}

// labelOf returns the probability of a token after a node, or 0 if it is not a label.
func (r *Record) labelOf(m *Meta, node int, token int32) float64 {
	if m.Labels != TopK {
		return float64(r.LabelFull[node*m.Vocab+int(token)])
	}
	for k, id := range r.LabelIDs[node*m.K:][:m.K] {
		if id == token {
			return float64(r.LabelProbs[node*m.K+k])
		}
	}
	return 0
}

// done returns the means.
func (l *levels) done() []Level {
	for d := range l.all {
		x := &l.all[d]
		n := float64(max(x.Nodes, 1))
		x.Mass, x.Reach = l.mass[d].sum/n, l.reach[d].sum/float64(max(l.roots, 1))
		for k := range l.top[d] {
			x.Top = append(x.Top, l.top[d][k].sum/n)
		}
	}
	return l.all
}

// DroppedShare returns how many pieces of input gave no row, and the number of all
// pieces. Bad lines are pieces too, although no sequence was made from them.
func (st *Stats) DroppedShare() (dropped, of int) {
	for _, n := range st.Dropped {
		dropped += n
	}
	return dropped, st.Rows + dropped
}
