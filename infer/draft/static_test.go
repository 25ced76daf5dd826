package draft_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/draft/method"
	"talf/internal/golden"
	"talf/model/sample"
	"talf/tree"
)

func opened(t testing.TB, spec string, e draft.Env) *draft.Maker {
	t.Helper()
	mk, _, err := draft.Open(spec, e)
	if err != nil {
		t.Fatal(err)
	}
	return mk
}

// Trees drawn at random satisfy the contract too: whatever they draw, greedy output and that of
// the verifier "target" are plain decoding's.
func TestDrawnTreesConform(t *testing.T) {
	for _, spec := range []string{
		"linear:draw=distinct", "linear:K=3,draw=repeated", "static:draw=distinct", "static:draw=repeated",
		"static:binary-3,draw=distinct", "static:kary-3-3,draw=repeated",
	} {
		t.Run(spec, func(t *testing.T) {
			mk := opened(t, spec, draft.Env{Temperature: 0.8})
			drafttest.Run(t, mk.New)
		})
	}
}

// draftTree runs a drafter on a model with the same row for every path, and returns its tree and
// the number of nodes it asked for.
func draftTree(t testing.TB, d infer.Drafter, row infer.Row, nodes, depth int) (p infer.Proposal, asked int) {
	t.Helper()
	p = infer.Proposal{Tree: tree.New(0, nodes), MaxNodes: nodes, MaxDepth: depth}
	var rows []infer.Row
	for {
		ask, err := d.Grow(&p, rows, chance{rand.New(rand.NewPCG(1, 2))})
		if err != nil {
			t.Fatal(err)
		}
		if len(ask) == 0 {
			return p, asked
		}
		asked += len(ask)
		rows = rows[:0]
		for range ask {
			rows = append(rows, row)
		}
	}
}

type chance struct{ rng *rand.Rand }

func (c chance) Accept(p float64) bool { return c.rng.Float64() < p }

func (c chance) Draw(_ int, d infer.Dist) int32 {
	var sum float64
	for _, x := range d {
		sum += x
	}
	u := c.rng.Float64() * sum
	for i, x := range d {
		if u -= x; x > 0 && u < 0 {
			return int32(i)
		}
	}
	return int32(len(d) - 1)
}

// rowOf returns a row whose k-th most likely token is k.
func rowOf(vocab int) (r infer.Row) {
	for i := range vocab {
		r.Tokens = append(r.Tokens, int32(i))
		r.LogProb = append(r.LogProb, float32(-i-1))
		r.Logits = append(r.Logits, float32(-i))
	}
	return r
}

// nodePaths lists a tree's nodes by the tokens on their paths, sorted.
func nodePaths(t *tree.Tree) (out []string) {
	for n := 1; n < t.Len(); n++ {
		var p []int32
		for _, m := range t.AppendPath(nil, n)[1:] {
			p = append(p, t.Token(m))
		}
		out = append(out, fmt.Sprint(p))
	}
	slices.Sort(out)
	return out
}

// The published shapes, node by node; a token is its rank.
func TestShapesAreThePublishedOnes(t *testing.T) {
	b, err := os.ReadFile(golden.Shared(t, "data/trees/static_shapes.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string][][]int32
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	for spec, list := range map[string]string{"static": "eagle_sparse_26", "static:medusa": "medusa_mc_sim_7b_63"} {
		p, _ := draftTree(t, opened(t, spec, draft.Env{}).New(), rowOf(12), 200, 20)
		var listed []string
		for _, w := range want[list] {
			listed = append(listed, fmt.Sprint(w))
		}
		slices.Sort(listed)
		if got := nodePaths(p.Tree); !slices.Equal(got, listed) {
			t.Errorf("%s: %d nodes, want %d:\n%v\n%v", spec, len(got), len(listed), got, listed)
		}
	}
}

func TestShapesBySizeAndAsks(t *testing.T) {
	for _, c := range []struct {
		spec         string
		nodes, depth int // limits
		len, asked   int
		deep         int
	}{
		{"linear", 200, 20, 9, 8, 8},
		{"linear:K=3", 200, 20, 4, 3, 3},
		{"linear", 200, 5, 6, 5, 5},
		{"linear", 4, 20, 4, 3, 3},
		{"static:chain-5", 200, 20, 6, 5, 5},
		{"static:binary-5", 200, 20, 63, 31, 5},
		{"static:binary-5", 200, 2, 7, 3, 2},
		{"static:binary-5", 10, 9, 10, 5, 3},
		{"static:kary-3-2", 200, 20, 13, 4, 2},
		{"static", 200, 20, 26, 11, 5},
		{"static:medusa", 200, 20, 64, 22, 4},
		{"static", 1, 20, 1, 0, 0},
		{"static", 200, 0, 1, 0, 0},
	} {
		for _, draw := range []string{"top", "distinct"} {
			spec := c.spec
			if strings.Contains(spec, ":") {
				spec += ",draw=" + draw
			} else {
				spec += ":draw=" + draw
			}
			mk := opened(t, spec, draft.Env{Temperature: 1})
			p, asked := draftTree(t, mk.New(), rowOf(12), c.nodes, c.depth)
			deep := 0
			for n := range p.Tree.Len() {
				deep = max(deep, p.Tree.Depth(n))
			}
			if p.Tree.Len() != c.len || deep != c.deep || asked != c.asked {
				t.Errorf("%s with %d nodes, depth %d: %d nodes, %d deep, %d asked; want %d, %d, %d",
					spec, c.nodes, c.depth, p.Tree.Len(), deep, asked, c.len, c.deep, c.asked)
			}
			if chain := strings.HasPrefix(spec, "linear") || strings.Contains(spec, "chain"); mk.Chain != chain {
				t.Errorf("%s: chain is %v", spec, mk.Chain)
			}
		}
	}
}

// What a drafter reports about its draws is true: rows over the target's vocabulary at the
// temperature, for every node with children.
func TestDrawnTreesSayWhatTheyWereDrawnFrom(t *testing.T) {
	for _, c := range []struct {
		spec  string
		draw  infer.Choice
		vocab int // of the target; the draft's is 12
	}{
		{"static:binary-3,draw=distinct", infer.Distinct, 12},
		{"static:binary-3,draw=repeated", infer.Repeated, 12},
		{"static:binary-3,draw=distinct", infer.Distinct, 10},
		{"static:binary-3,draw=distinct", infer.Distinct, 15},
	} {
		mk := opened(t, c.spec, draft.Env{Vocab: c.vocab, Temperature: 0.5})
		if mk.Draw != c.draw {
			t.Errorf("%s: %s", c.spec, mk.Draw)
		}
		p, _ := draftTree(t, mk.New(), rowOf(12), 200, 20)
		if p.Choice() != c.draw || !p.Full {
			t.Errorf("%s: a proposal of children %s, whole rows %v", c.spec, p.Choice(), p.Full)
		}
		var sum float64
		for i := range min(c.vocab, 12) {
			sum += math.Exp(-float64(i) / 0.5)
		}
		for n := range p.Tree.Len() {
			if p.Tree.FirstChild(n) < 0 {
				continue
			}
			q := p.Q(n)
			if len(q) != c.vocab {
				t.Fatalf("%s: a row of %d, want %d", c.spec, len(q), c.vocab)
			}
			total := 0.0
			for x := range q {
				want := 0.0
				if x < 12 {
					want = math.Exp(-float64(x)/0.5) / sum
				}
				// Weights are float32.
				if math.Abs(q[x]-want) > 1e-6*want {
					t.Fatalf("%s: token %d has %v, want %v", c.spec, x, q[x], want)
				}
				total += q[x]
			}
			if math.Abs(total-1) > 1e-14 {
				t.Errorf("%s: a row that sums to %v", c.spec, total)
			}
		}
	}
	// Nothing is random at temperature 0.
	if mk := opened(t, "static:binary-3,draw=distinct", draft.Env{}); mk.Draw != infer.Chosen {
		t.Errorf("at temperature 0 children are %s", mk.Draw)
	}
}

// What a maker makes for another temperature drafts as what is opened at that temperature.
func TestAMakerServesAllTemperatures(t *testing.T) {
	const hot = 4
	for _, spec := range []string{"linear:draw=distinct", "static:binary-3,draw=distinct", "static:kary-3-3,draw=repeated", "sequoia:N=9,draw=repeated"} {
		paths := func(mk *draft.Maker) string {
			p, _ := draftTree(t, mk.New(), rowOf(8), 200, 20)
			return fmt.Sprint(mk.Draw, nodePaths(p.Tree))
		}
		zero, one := opened(t, spec, draft.Env{Vocab: 8}), opened(t, spec, draft.Env{Vocab: 8, Temperature: 1})
		want := map[float64]string{0: paths(zero), 1: paths(one), hot: paths(opened(t, spec, draft.Env{Vocab: 8, Temperature: hot}))}
		if want[0] == want[1] || want[1] == want[hot] {
			t.Errorf("%s drafts the same at temperatures 0, 1 and %d: %v", spec, hot, want)
		}
		for temperature, want := range want {
			for _, from := range []*draft.Maker{zero, one} {
				mk := from.At(temperature)
				if got := paths(&mk); got != want {
					t.Errorf("%s at %v: %s, want %s", spec, temperature, got, want)
				}
			}
		}
	}
	if mk := opened(t, "static:binary-3", draft.Env{}); mk.At != nil {
		t.Error("the likeliest children depend on the temperature")
	}
}

// A token drawn again counts as a draw, but nothing hangs below it.
func TestNothingHangsBelowADuplicate(t *testing.T) {
	mk := opened(t, "static:kary-3-2,draw=repeated", draft.Env{Temperature: 1})
	row := infer.Row{Logits: []float32{0, float32(math.Inf(-1))}}
	p, _ := draftTree(t, mk.New(), row, 200, 20)
	if got, want := fmt.Sprint(nodePaths(p.Tree)), "[[0 0] [0 0] [0 0] [0] [0] [0]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// branches is a Chance that takes one branch after another.
type branches struct {
	taken, of []int
	at        int
	prob      float64
}

func (*branches) Accept(float64) bool { panic("not drawn by children") }

func (c *branches) Draw(_ int, d infer.Dist) int32 {
	var sum float64
	var ids []int32
	for i, x := range d {
		if x > 0 {
			ids, sum = append(ids, int32(i)), sum+x
		}
	}
	if c.at == len(c.taken) {
		c.taken, c.of = append(c.taken, 0), append(c.of, len(ids))
	}
	x := ids[c.taken[c.at]]
	c.at++
	c.prob *= d[x] / sum
	return x
}

func (c *branches) next() bool {
	c.taken, c.of = c.taken[:c.at], c.of[:c.at]
	for n := len(c.taken) - 1; n >= 0; n-- {
		if c.taken[n]++; c.taken[n] < c.of[n] {
			c.taken, c.of = c.taken[:n+1], c.of[:n+1]
			return true
		}
	}
	return false
}

// Without replacement, the distribution is that of Gumbel-top-k: Π q(x_i)/(1 − Σ_{j<i} q(x_j)).
// With replacement, draws are independent. The bins do not affect it.
func TestChildrenHaveTheirLaw(t *testing.T) {
	few := []float64{0.4, 0, 0.3, 0.2, 0.1}
	for _, c := range []struct {
		draw infer.Choice
		k    int
		want int // children returned
	}{{infer.Distinct, 1, 1}, {infer.Distinct, 3, 3}, {infer.Distinct, 9, 4}, {infer.Distinct, 0, 0}, {infer.Repeated, 3, 3}} {
		for _, size := range []int{1, 2, 3, 128} {
			u := new(method.Urn[float64])
			u.Fill(slices.Clone(few), size)
			checkLaw(t, u, c.draw, c.k, c.want)
		}
	}
	// With weights as in production: several bins, the last one short, and only one token with
	// weight in the second.
	logits := make([]float32, 2*sample.Bin+9)
	for i := range logits {
		if logits[i] = float32(math.Sin(float64(i))); i/sample.Bin == 1 && i != sample.Bin+7 {
			logits[i] = float32(math.Inf(-1))
		}
	}
	u := &method.Urn[float32]{Weights: make([]float32, len(logits)), Bins: make(infer.Dist, 3), Size: sample.Bin}
	sample.Weigh(u.Weights, u.Bins, logits, 0.7)
	checkLaw(t, u, infer.Distinct, 2, 2)
	checkLaw(t, u, infer.Repeated, 2, 2)
}

func checkLaw[W float32 | float64](t *testing.T, u *method.Urn[W], draw infer.Choice, k, come int) {
	t.Helper()
	was, bins, sum := slices.Clone(u.Weights), slices.Clone(u.Bins), 0.0
	for _, w := range was {
		sum += float64(w)
	}
	var total float64
	ch := &branches{}
	for {
		ch.at, ch.prob = 0, 1
		got := u.Children([]int32{77}, ch, 0, k, draw)
		if got[0] != 77 || len(got) != come+1 {
			t.Fatalf("%s, k=%d, bins of %d: %v", draw, k, u.Size, got)
		}
		want, rest := 1.0, sum
		for _, x := range got[1:] {
			want *= float64(was[x]) / rest
			if draw == infer.Distinct {
				rest -= float64(was[x])
			}
		}
		if math.Abs(ch.prob-want) > 1e-12 {
			t.Fatalf("%s, bins of %d: %v have probability %v, want %v", draw, u.Size, got[1:], ch.prob, want)
		}
		if total += ch.prob; !slices.Equal(u.Weights, was) || !slices.Equal(u.Bins, bins) {
			t.Fatalf("%s, bins of %d: the urn is not as it was", draw, u.Size)
		}
		if !ch.next() {
			break
		}
	}
	if math.Abs(total-1) > 1e-10 {
		t.Errorf("%s, k=%d, bins of %d: probabilities sum to %v", draw, k, u.Size, total)
	}
}

func TestShapesOfAFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	list := write("list.json", "[[1],[0,2],[0],[0,0]]")
	two := write("two.json", `{"a": [[0]], "b": [[0],[0,0],[1]]}`)
	for spec, want := range map[string]string{
		"static:file=" + list:          "[[0 0] [0 2] [0] [1]]",
		"static:b,file=" + two:         "[[0 0] [0] [1]]",
		"static:shape=a,file=" + two:   "[[0]]",
		"static:any,file=" + list:      "[[0 0] [0 2] [0] [1]]",
		"static:draw=top,file=" + list: "[[0 0] [0 2] [0] [1]]",
	} {
		p, _ := draftTree(t, opened(t, spec, draft.Env{}).New(), rowOf(5), 200, 20)
		if got := fmt.Sprint(nodePaths(p.Tree)); got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
	// Drawn children take the places in order, whatever the places' ranks.
	p, _ := draftTree(t, opened(t, "static:draw=distinct,file="+write("gap.json", "[[3],[3,9]]"), draft.Env{Temperature: 1}).New(), rowOf(2), 200, 20)
	if p.Tree.Len() != 3 {
		t.Errorf("a shape with gaps drew %d nodes, want 3", p.Tree.Len())
	}
	for text, want := range map[string]string{
		"":                              "want a list of paths of child ranks",
		"{}":                            `has no shape "eagle-sparse", want one of`,
		"[]":                            "the shape has no paths",
		"null":                          "the shape has no paths",
		`{"b":[[0]],"eagle-sparse":[]}`: "the shape has no paths",
		"[]x":                           "want a list of paths",
		"[[0],[]]":                      "a path is empty",
		"[[0],[0]]":                     "path [0] is given twice",
		"[[0],[1,0]]":                   "the node above it, [1], is missing",
		"[[-1]]":                        "rank -1, want 0..255",
		"[[256]]":                       "rank 256",
		`{"x":3}`:                       "want a list of paths",
		`{"a":[],"b":[]}`:               "want one of a, b",
		deep(65):                        "want at most 64",
		wideList(256 + 1):               "rank 256",
		manyNodes(5, 1100):              "want at most 1024",
	} {
		path := write("bad.json", text)
		_, _, err := draft.Open("static:file="+path, draft.Env{})
		var file draft.FileError
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &file) {
			t.Errorf("%.40s: %v, want a file error that says %q", text, err, want)
		}
	}
	if _, _, err := draft.Open("static:file="+filepath.Join(dir, "none.json"), draft.Env{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	for spec, want := range map[string]string{
		"static:star":       `shape is "star", want chain-n, binary-n, kary-k-n, eagle-sparse, medusa, token-recycling`,
		"static:chain-":     `shape is "chain-"`,
		"static:chain-0":    "a depth of 0, want 1..64",
		"static:chain-65":   "a depth of 65",
		"static:binary-10":  "more than 1024 nodes",
		"static:kary-0-3":   `shape is "kary-0-3"`,
		"static:kary-300-1": "300 children a node, want 1..256",
		"static:draw=any":   `draw is "any", want top`,
		"linear:K=0":        "K is 0, want 1..64",
	} {
		if _, _, err := draft.Open(spec, draft.Env{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that says %q", spec, err, want)
		}
	}
}

func listOf(paths [][]int) string {
	b, err := json.Marshal(paths)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func deep(n int) string {
	var all [][]int
	for d := range n {
		all = append(all, make([]int, d+1))
	}
	return listOf(all)
}

func wideList(n int) string {
	var all [][]int
	for r := range n {
		all = append(all, []int{r})
	}
	return listOf(all)
}

func manyNodes(k, n int) string {
	var all [][]int
	for i := range n {
		all = append(all, []int{i % k, i})
	}
	return listOf(all)
}

// Any file is either a shape or a clear error.
func FuzzShapeFile(f *testing.F) {
	for _, s := range []string{"[[0],[1],[0,0]]", `{"a":[[0]]}`, "[[]]", "[[0],[0]]", "{", "[[9999999999999]]"} {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), "shape.json")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		mk, _, err := draft.Open("static:a,file="+path, draft.Env{})
		if err != nil {
			return
		}
		p, _ := draftTree(t, mk.New(), rowOf(300), tree.MaxNodes, 100)
		if p.Tree.Len() < 1 {
			t.Error("a tree without a root")
		}
	})
}

func TestDrawingDoesNotAllocateOnceWarm(t *testing.T) {
	for _, spec := range []string{"static:binary-4", "static:binary-4,draw=distinct", "static:kary-100-1,draw=distinct", "linear:draw=repeated"} {
		d := opened(t, spec, draft.Env{Vocab: 200, Temperature: 1}).New()
		row, tr, ch := rowOf(200), tree.New(0, 128), chance{rand.New(rand.NewPCG(3, 4))}
		rows := make([]infer.Row, 0, 64)
		p := new(infer.Proposal)
		grow := func() {
			tr.Reset(0, 128)
			*p = infer.Proposal{Tree: tr, MaxNodes: 128, MaxDepth: 20}
			for ask, _ := d.Grow(p, nil, ch); len(ask) > 0; ask, _ = d.Grow(p, rows, ch) {
				rows = rows[:0]
				for range ask {
					rows = append(rows, row)
				}
			}
		}
		grow()
		if n := testing.AllocsPerRun(20, grow); n > 0 {
			t.Errorf("%s: %v allocations a tree", spec, n)
		}
	}
}
