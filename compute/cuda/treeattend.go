//go:build gpu && linux && cgo

package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"talf/compute"
)

// A treeCall is a checked call of tree attention.
type treeCall struct {
	args   treeArgs
	keys   int // rows of level 0
	k, v   []uint64
	kept   []*buffer
	g      *compute.TrainAttention
	groups int // query heads of a head of keys
}

// tree checks what TreeAttend and TreeAttendGrad share.
func (q *queue) tree(op string, g *compute.TrainAttention, o, lse, qs compute.Buffer, k, v []compute.Buffer) *treeCall {
	check(g.KVHeads > 0 && g.Heads%g.KVHeads == 0, op, "query heads modulo KV heads", g.Heads%max(1, g.KVHeads), 0)
	if g.HeadDim < 1 || g.HeadDim > mostDim {
		panic(fmt.Sprintf("cuda: %s: heads of %d elements, want 1 to %d", op, g.HeadDim, mostDim))
	}
	n, ldq, ldk := len(g.First), g.Heads*g.HeadDim, g.KVHeads*g.HeadDim
	check(len(g.Last) == n, op, "len(Last)", len(g.Last), n)
	check(len(k) == len(g.Anc)+1, op, "levels of keys", len(k), len(g.Anc)+1)
	check(len(v) == len(k), op, "levels of values", len(v), len(k))
	t := &treeCall{g: g, groups: g.Heads / g.KVHeads}
	use := func(b compute.Buffer, n int) uint64 {
		c := q.dev.readOf(op, b, compute.F32, n)
		t.kept = append(t.kept, c)
		return c.mem.ptr
	}
	t.args = treeArgs{
		o: use(o, n*ldq), lse: use(lse, n*g.Heads), q: use(qs, n*ldq),
		rows: int64(n), heads: int64(g.Heads), kvHeads: int64(g.KVHeads), dim: int64(g.HeadDim), levels: int64(len(k)),
	}
	for j := range k {
		t.k, t.v = append(t.k, use(k[j], 0)), append(t.v, use(v[j], 0))
		rows := min(t.kept[len(t.kept)-2].n, t.kept[len(t.kept)-1].n) / ldk
		if j == 0 {
			t.keys = rows
			for r := range n {
				if f, l := g.First[r], g.Last[r]; f < 0 || l < f || int(l) >= rows {
					panic(fmt.Sprintf("cuda: %s: row %d sees keys [%d,%d] of %d", op, r, f, l, rows))
				}
			}
			continue
		}
		check(len(g.Anc[j-1]) == n, op, "rows of ancestors", len(g.Anc[j-1]), n)
		for r, i := range g.Anc[j-1] {
			if i < 0 || int(i) >= rows {
				panic(fmt.Sprintf("cuda: %s: row %d's ancestor %d on level %d of %d rows", op, r, i, j, rows))
			}
		}
	}
	return t
}

// size is the bytes of arguments that put copies.
func (t *treeCall) size() int {
	return 4*len(t.g.First)*(2+len(t.g.Anc)) + 32*len(t.k) + 16*8
}

func (t *treeCall) put(q *queue) {
	a := &t.args
	a.keys, a.values = q.put(bytesOf(t.k)), q.put(bytesOf(t.v))
	a.first, a.last = q.put(bytesOf(t.g.First)), q.put(bytesOf(t.g.Last))
	if len(t.g.Anc) > 0 {
		anc := make([]int32, 0, len(t.g.Anc)*len(t.g.First))
		for _, x := range t.g.Anc {
			anc = append(anc, x...)
		}
		a.anc = q.put(bytesOf(anc))
	}
}

// TreeAttend computes the attention of one level.
func (q *queue) TreeAttend(o, lse, qs compute.Buffer, k, v []compute.Buffer, g *compute.TrainAttention) {
	t := q.tree("TreeAttend", g, o, lse, qs, k, v)
	for _, b := range t.kept[:2] { // o and lse
		b.mem.stale()
	}
	if len(g.First) == 0 || !q.reserve(t.size()) {
		return
	}
	t.put(q)
	if t.tensor() {
		if h := t.halves(q, qs, k[0], v[0], nil); h != nil {
			launch(q, treeAttendHalf, (len(g.First)*t.groups+halfLines-1)/halfLines, g.KVHeads, 1, h)
		}
		runtime.KeepAlive(t)
		return
	}
	kernel, lines := treeAttend, 16
	if t.wide() {
		kernel, lines = treeAttendWide, 8
	}
	launch(q, kernel, (len(g.First)*t.groups+lines-1)/lines, g.KVHeads, 1, &t.args)
	runtime.KeepAlive(t)
}

// TreeAttendGrad computes dq and adds to dk and dv.
func (q *queue) TreeAttendGrad(dq compute.Buffer, dk, dv []compute.Buffer, do, o, lse, qs compute.Buffer, k, v []compute.Buffer, g *compute.TrainAttention) {
	const op = "TreeAttendGrad"
	t := q.tree(op, g, o, lse, qs, k, v)
	check(len(dk) == len(k), op, "levels of dk", len(dk), len(k))
	check(len(dv) == len(k), op, "levels of dv", len(dv), len(k))
	n := len(g.First)
	a := &t.args
	use := func(b compute.Buffer, n int) uint64 {
		c := q.dev.bufferOf(op, b, compute.F32, n)
		t.kept = append(t.kept, c)
		return c.mem.ptr
	}
	d := q.dev.readOf(op, do, compute.F32, n*g.Heads*g.HeadDim)
	t.kept = append(t.kept, d)
	a.do, a.dq = d.mem.ptr, use(dq, n*g.Heads*g.HeadDim)
	dks, dvs := make([]uint64, len(k)), make([]uint64, len(k))
	for j := range k {
		dks[j], dvs[j] = use(dk[j], k[j].(*buffer).n), use(dv[j], v[j].(*buffer).n)
	}
	if n == 0 {
		return
	}
	tile := treeTile
	switch {
	case t.tensor():
		tile = halfLines
	case t.wide():
		tile = wideTile
	}
	tiles, nodes, list := t.columns(int32(tile))
	if !q.scratch(&q.train.delta, "sums of attention's gradient", 4*int64(n*g.Heads), false) ||
		!q.reserve(t.size()+32*len(k)+16*len(tiles)+16*len(nodes)+4*len(list)+16*8) {
		return
	}
	t.put(q)
	a.dk, a.dv, a.delta = q.put(bytesOf(dks)), q.put(bytesOf(dvs)), q.train.delta.ptr
	if t.tensor() {
		h := t.halves(q, qs, k[0], v[0], do)
		if h == nil || !q.scratch(&q.train.lines, "lines of attention's gradient", 16*int64(n*g.Heads), false) {
			return
		}
		a.lines = q.train.lines.ptr
		h.lines, h.dq, h.dk, h.dv, h.tiles = a.lines, a.dq, dks[0], dvs[0], q.put(bytesOf(tiles))
		launch(q, treeDelta, (n*g.Heads+7)/8, 1, 1, a)
		launch(q, treeQueriesHalf, (n*t.groups+halfLines-1)/halfLines, g.KVHeads, 1, h)
		launch(q, treeKeysHalf, len(tiles), g.KVHeads, 1, h)
	} else {
		delta, queries, keys, lines := treeDelta, treeQueries, treeKeys, 8
		if t.wide() {
			delta, queries, keys, lines = treeDeltaWide, treeQueriesWide, treeKeysWide, 4
		}
		launch(q, delta, (n*g.Heads+7)/8, 1, 1, a)
		launch(q, queries, (n*t.groups+lines-1)/lines, g.KVHeads, 1, a)
		a.tiles, a.count = q.put(bytesOf(tiles)), int64(t.keys)
		launch(q, keys, len(tiles), g.KVHeads, 1, a)
	}
	if len(nodes) > 0 {
		k := treeNodes
		if t.wide() {
			k = treeNodesWide
		}
		a.nodes, a.list, a.count = q.put(bytesOf(nodes)), q.put(bytesOf(list)), int64(len(nodes))
		launch(q, k, (len(nodes)+3)/4, g.KVHeads, 1, a)
	}
	runtime.KeepAlive(t)
}

// columns returns which rows see each tile of so many level-0 keys, and each row of the deeper
// levels, as list[from:to].
func (t *treeCall) columns(tile int32) (tiles []keyTile, nodes []node, list []int32) {
	at := make([]int32, (int32(t.keys)+tile-1)/tile) // tile's index plus 1
	for r, f := range t.g.First {
		for i := f / tile; i <= t.g.Last[r]/tile; i++ {
			if at[i] == 0 {
				tiles = append(tiles, keyTile{key: i * tile, from: int32(r)})
				at[i] = int32(len(tiles))
			}
			tiles[at[i]-1].to = int32(r + 1)
		}
	}
	for l, anc := range t.g.Anc {
		b := bundle(anc)
		for i, id := range b.ids {
			nodes = append(nodes, node{
				level: int32(l + 1), row: id, from: int32(len(list)) + b.starts[i], to: int32(len(list)) + b.starts[i+1],
			})
		}
		list = append(list, b.rows...)
	}
	return tiles, nodes, list
}

// treeHalfArgs is kernels/treehalf.cu's TreeHalfArgs.
type treeHalfArgs struct {
	o, lse, q, k, v, do, keys, values, first, last, anc uint64
	rows, heads, kvHeads, dim, levels                   int64
	lines, dq, dk, dv, tiles                            uint64
	count                                               int64
}

// halfLines is the lines, or the keys, of a block of attention on tensor cores.
const halfLines = 64

// wideTile is the keys of a tile of wide heads.
const wideTile = 16

// wide reports whether heads are wide.
func (t *treeCall) wide() bool { return t.g.HeadDim > narrowDim }

// tensor reports whether tensor cores compute t.
func (t *treeCall) tensor() bool {
	return t.kept[0].dev.cfg.BF16 && t.g.HeadDim%halfAlign == 0 && !t.wide()
}

// halves rounds queries, keys and values of level 0 and, unless do is nil, gradients of outputs, and returns
// their arguments; nil if there is no memory.
func (t *treeCall) halves(q *queue, qs, k, v, do compute.Buffer) *treeHalfArgs {
	a, g := &t.args, t.g
	ldq, ldk := g.Heads*g.HeadDim, g.KVHeads*g.HeadDim
	h := &treeHalfArgs{
		o: a.o, lse: a.lse, keys: a.keys, values: a.values, first: a.first, last: a.last, anc: a.anc,
		rows: a.rows, heads: a.heads, kvHeads: a.kvHeads, dim: a.dim, levels: a.levels, count: int64(slices.Max(g.Last)) + 1,
	}
	parts := []struct {
		to   *uint64
		from compute.Buffer
		n    int
	}{{&h.q, qs, len(g.First) * ldq}, {&h.k, k, int(h.count) * ldk}, {&h.v, v, int(h.count) * ldk}, {&h.do, do, len(g.First) * ldq}}
	if do == nil {
		parts = parts[:3]
	}
	size := 0
	for _, p := range parts {
		size += 2 * p.n
	}
	if !q.scratch(&q.train.heads, "attention in bfloat16", int64(size), false) {
		return nil
	}
	at := q.train.heads.ptr
	for _, p := range parts {
		*p.to = at
		launch(q, halve, flatBlocks((p.n+7)/8), 1, 1, &roundArgs{dst: at, src: p.from.(*buffer).mem.ptr, n: int64(p.n)})
		at += 2 * uint64(p.n)
	}
	return h
}

// The largest structures fit into a command.
var (
	_ [maxArgs*8 - unsafe.Sizeof(treeArgs{})]byte
	_ [maxArgs*8 - unsafe.Sizeof(treeHalfArgs{})]byte
)
