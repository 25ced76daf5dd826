package data

import (
	"fmt"
	"math"
)

// A Record is one sequence of T tokens with everything that training needs from the
// target. It is one row of a shard.
//
// Position p roots a tree of N = Meta.Nodes() labelled nodes: node 0 is x_p, the
// rest are the target's own continuations, level by level, best first. A head
// position i uses the tree at p = i+1 (algorithms: TALF, Algorithm 1).
type Record struct {
	Tokens   []int32 // [T]
	LossMask []bool  // [T]: the token is an answer token

	TreeTokens  []int32 // [T·N]
	TreeParents []int32 // [T·N]: index within the position's tree, −1 for node 0

	// Soft labels: the target's next-token distribution at temperature 1 after x_0..x_p
	// and the path to the node. They are either the K most likely tokens, best first,
	// and the rest of the mass, or the whole distribution.
	LabelIDs   []int32   // [T·N·K]
	LabelProbs []float32 // [T·N·K]
	Tail       []float32 // [T·N]
	LabelFull  []float32 // [T·N·V]; nil with top-K labels

	// Features are the target's hidden states, as little-endian bfloat16: after its final norm
	// [T·H·2] or, with Meta.Taps, before these layers side by side [T·taps·H·2]. Nil if the
	// set has none.
	Features []byte
}

// Check reports the first field of r that is invalid in a set with meta m.
func (r *Record) Check(m *Meta) error {
	t, n := len(r.Tokens), len(r.Tokens)*m.Nodes()
	if t == 0 {
		return fmt.Errorf("tokens: none, want at least one")
	}
	k, full, feat := 0, 0, 2*t*m.FeatureSize()
	tail := 0
	if m.Labels == TopK {
		k, tail = n*m.K, n
	} else {
		full = n * m.Vocab
	}
	for _, c := range []struct {
		name      string
		got, want int
	}{
		{colMask, len(r.LossMask), t},
		{colTreeToken, len(r.TreeTokens), n},
		{colTreeParent, len(r.TreeParents), n},
		{colLabelID, len(r.LabelIDs), k},
		{colLabelProb, len(r.LabelProbs), k},
		{colLabelTail, len(r.Tail), tail},
		{colLabelFull, len(r.LabelFull), full},
		{colFeature, len(r.Features), feat},
	} {
		if c.got != c.want {
			return fmt.Errorf("%s: %d elements for %d tokens, want %d", c.name, c.got, t, c.want)
		}
	}
	for _, c := range []struct {
		name string
		ids  []int32
	}{{colTokens, r.Tokens}, {colTreeToken, r.TreeTokens}, {colLabelID, r.LabelIDs}} {
		for i, id := range c.ids {
			if uint32(id) >= uint32(m.Vocab) {
				return fmt.Errorf("%s[%d]: token %d, want 0..%d", c.name, i, id, m.Vocab-1)
			}
		}
	}
	nodes := m.Nodes()
	for i, p := range r.TreeParents {
		j := int32(i % nodes)
		if j == 0 && p != -1 || j > 0 && uint32(p) >= uint32(j) {
			return fmt.Errorf("%s[%d]: parent %d of node %d, want an earlier node (−1 for node 0)", colTreeParent, i, p, j)
		}
	}
	for _, c := range []struct {
		name string
		p    []float32
	}{{colLabelProb, r.LabelProbs}, {colLabelTail, r.Tail}, {colLabelFull, r.LabelFull}} {
		for i, p := range c.p {
			if !(p >= 0 && p <= 1+1e-5) { // NaN fails too
				return fmt.Errorf("%s[%d]: %v, want a probability", c.name, i, p)
			}
		}
	}
	return nil
}

// levels appends the level of every node of one sequence to dst.
func (r *Record) levels(dst []int32, nodes int) []int32 {
	for i, p := range r.TreeParents {
		if p < 0 {
			dst = append(dst, 0)
			continue
		}
		dst = append(dst, dst[len(dst)-i%nodes+int(p)]+1)
	}
	return dst
}

// Bytes returns the size of r's values in memory.
func (r *Record) Bytes() int64 {
	n := len(r.Tokens) + len(r.TreeTokens) + len(r.TreeParents) + len(r.LabelIDs) + len(r.LabelProbs) + len(r.Tail) + len(r.LabelFull)
	return int64(4*n + len(r.LossMask) + len(r.Features))
}

// AppendBF16 appends x as little-endian bfloat16, rounded to nearest, ties to even. NaN
// stays NaN.
func AppendBF16(dst []byte, x []float32) []byte {
	for _, v := range x {
		b := math.Float32bits(v)
		switch {
		case v != v:
			b = b>>16 | 0x40
		default:
			b = (b + 0x7fff + b>>16&1) >> 16
		}
		dst = append(dst, byte(b), byte(b>>8))
	}
	return dst
}

// DecodeBF16 sets dst to the len(src)/2 values of src. It panics if dst is
// shorter.
func DecodeBF16(dst []float32, src []byte) {
	if len(dst) < len(src)/2 {
		panic(fmt.Sprintf("data: %d values in a slice of %d", len(src)/2, len(dst)))
	}
	for i := range len(src) / 2 {
		dst[i] = math.Float32frombits(uint32(src[2*i])<<16 | uint32(src[2*i+1])<<24)
	}
}
