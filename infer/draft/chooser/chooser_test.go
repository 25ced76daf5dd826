package chooser

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"talf/infer"
	"talf/infer/draft/cost"
	"talf/infer/experts"
	"talf/tree"
)

func close1(a, b float64) bool { return math.Abs(a-b) <= 1e-6 }

// tenth returns a chooser for which every additional row makes a pass a tenth of a plain round
// more expensive.
func tenth(arms ...*arm) *chooser {
	a := &chooser{shared: &shared{}, all: arms, chosen: -1}
	for _, rows := range []int{1, 2, 4, 5, 9, 17, 33, 65, 129, 257, 513} {
		a.shared.pass.Add(rows, experts.Read{}, 1+0.1*float64(rows-1), 1)
	}
	return a
}

// armOf returns an arm whose children at depth d are right with these probabilities by rank, as
// certain as can be.
func armOf(chances ...[4]float64) *arm {
	c := &arm{record: new(record), laterNode: -1}
	for d := range c.here {
		for r := range c.here[d] {
			c.here[d][r] = cost.Ratio{Have: chances[min(d, len(chances)-1)][r] * 1e9, Of: 1e9}
		}
	}
	return c
}

// five builds a tree of five nodes below the root and returns how likely each is for armOf(0.8
// and 0.15 below the root, 0.5 below others): their best order is 1, 3, 4, 2, 5.
func five(t *tree.Tree) (chances []float64) {
	t.Reset(10, 6)
	one, two := t.Add(0, 11), t.Add(0, 12)
	t.Add(t.Add(one, 13), 14)
	t.Add(two, 15)
	return []float64{1, 0.8, 0.15, 0.4, 0.2, 0.075}
}

func TestATreeIsCutToWhatPays(t *testing.T) {
	for _, x := range []struct {
		name         string
		worth, funds float64
		live         int
		size         int
		gain         float64
	}{
		{"every token is worth a plain round", 1, 10, 6, 5, 0.8 + 0.4 + 0.2 + 0.15 - 0.4},
		{"tokens are worth less", 0.4, 10, 6, 3, 0.4*1.2 - 0.2},
		{"tokens are worth nothing", 0, 10, 6, 1, 0},
		// The proof by the likeliest child is worth at most 0.3, of which a round may risk three
		// quarters.
		{"there is nothing to lose", 1, 0, 6, 3, 0.8 + 0.4 - 0.2},
		{"there is a little to lose", 1, 0.11, 6, 4, 0.8 + 0.4 + 0.2 - 0.3},
		{"a tree that is scored in part stays whole", 1, 10, 3, 6, 0.95 - 0.5},
		{"or is not used", 1, 0, 3, 1, 0},
	} {
		c := armOf([4]float64{0.8, 0.15}, [4]float64{0.5})
		a := tenth(c)
		want := five(&c.full)
		c.live = x.live
		a.size(c, x.worth, x.funds)
		for n, p := range want {
			if !close1(c.path[n], p) {
				t.Errorf("%s: node %d is reached with probability %v, want %v", x.name, n, c.path[n], p)
			}
		}
		if c.size != x.size || !close1(c.gain, x.gain) {
			t.Errorf("%s: %d nodes for a gain of %.4f, want %d for %.4f", x.name, c.size, c.gain, x.size, x.gain)
		}
	}

	// The best nodes keep their order, their parents and their tokens.
	c := armOf([4]float64{0.8, 0.15}, [4]float64{0.5})
	five(&c.full)
	c.live = 6
	tenth(c).size(c, 1, 10)
	c.cut()
	var got [][2]int
	for n := range c.tree.Len() {
		got = append(got, [2]int{c.tree.Parent(n), int(c.tree.Token(n))})
	}
	if want := [][2]int{{-1, 10}, {0, 11}, {0, 12}, {1, 13}, {3, 14}}; !slices.Equal(got, want) {
		t.Errorf("parents and tokens %v, want %v", got, want)
	}
	if c.reach != fewest {
		t.Errorf("the next tree is grown to %d nodes, want %d", c.reach, fewest)
	}
}

// tally returns the counts of children by depth and rank: tried, right.
func tally(c *cells) map[[2]int][2]float64 {
	out := map[[2]int][2]float64{}
	for d := range c {
		for r, x := range c[d] {
			if x.Of > 0 {
				out[[2]int{d, r}] = [2]float64{math.Round(x.Of), math.Round(x.Have)}
			}
		}
	}
	return out
}

func TestTheOutputTellsWhichChildrenAreRight(t *testing.T) {
	yes, no := [2]float64{1, 1}, [2]float64{1, 0}
	for _, x := range []struct {
		name   string
		tokens []int32
		live   int
		node   int
		want   map[[2]int][2]float64
	}{
		{"first child", []int32{11}, 6, 1, map[[2]int][2]float64{{0, 0}: yes, {0, 1}: no}},
		{"second child and its own", []int32{12, 15}, 6, -1, map[[2]int][2]float64{{0, 0}: no, {0, 1}: yes, {1, 0}: yes}},
		{"none", []int32{13, 14}, 6, -1, map[[2]int][2]float64{{0, 0}: no, {0, 1}: no}},
		{"to the end and beyond", []int32{11, 13, 14, 9}, 6, -1, map[[2]int][2]float64{{0, 0}: yes, {0, 1}: no, {1, 0}: yes, {2, 0}: yes}},
		{"nodes that are only scored", []int32{12}, 2, -1, map[[2]int][2]float64{{0, 0}: no}},
	} {
		c := &arm{record: new(record)}
		five(&c.full)
		if n := c.follow(&c.full, x.live, 0, x.tokens); n != x.node {
			t.Errorf("%s: the output is at node %d, want %d", x.name, n, x.node)
		}
		for what, counts := range map[string]*cells{"this request": &c.here, "all": &c.cells} {
			got := tally(counts)
			if len(got) != len(x.want) {
				t.Errorf("%s, of %s: %v, want %v", x.name, what, got, x.want)
			}
			for k, v := range x.want {
				if got[k] != v {
					t.Errorf("%s, of %s: depth and rank %v: tried and right %v, want %v", x.name, what, k, got[k], v)
				}
			}
		}
	}
}

// A tree that was not used is watched for as long as the output follows it.
func TestTreesThatWereNotUsedAreFollowed(t *testing.T) {
	c := &arm{record: new(record), laterNode: -1}
	a := tenth(c)
	five(&c.full)
	c.live, c.fresh = 6, true
	root := tree.New(10, 1)
	for i, token := range []int32{11, 13, 14} {
		if i > 0 {
			c.full.Reset(token, 1) // no tree in this round
		}
		a.observe(&infer.Proposal{Tree: root, Pos: i}, infer.Verdict{Path: []int{0}, Next: token})
	}
	want := map[[2]int][2]float64{{0, 0}: {1, 1}, {0, 1}: {1, 0}, {1, 0}: {1, 1}, {2, 0}: {1, 1}}
	got := tally(&c.here)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("depth and rank %v: tried and right %v, want %v", k, got[k], v)
		}
	}
	if len(got) != len(want) || c.laterNode != -1 || a.emitted != 3 {
		t.Errorf("%v, at node %d, %d tokens; want %v, -1, 3", got, c.laterNode, a.emitted, want)
	}
}

func TestWhatARequestMayLose(t *testing.T) {
	for _, x := range []struct {
		name    string
		account float64
		emitted int
		left    int
		length  cost.Ratio
		gained  float64
		want    float64
	}{
		{"a long request at its start", 0, 0, 1000, cost.Ratio{}, 0, credit},
		{"a short one", 0, 0, 20, cost.Ratio{}, 0, lenShare * 20},
		{"after some tokens", 0, 100, 1000, cost.Ratio{}, 0, credit + share*100},
		{"with a gain", 3, 100, 1000, cost.Ratio{}, 0, 3 + credit + share*100},
		{"with a loss", -1, 100, 1000, cost.Ratio{}, 0, credit + share*100 - 1},
		{"with a loss that is all", -4, 100, 1000, cost.Ratio{}, 0, 0},
		{"where requests have been short", 0, 100, 1000, cost.Ratio{Have: 130, Of: 3}, 0, lenShare*15 + share*100},
		{"where requests lose", 0, 100, 1000, cost.Ratio{Have: 130, Of: 3}, -deep, lenShare*15/2 + share*100},
		{"where requests gain", 0, 100, 1000, cost.Ratio{Have: 130, Of: 3}, deep, lenShare*15 + share*100},
	} {
		a := tenth()
		a.account, a.emitted, a.left = x.account, x.emitted, x.left
		a.shared.length, a.shared.gained = x.length, x.gained
		if got := a.funds(); !close1(got, x.want) {
			t.Errorf("%s: %.4f plain rounds, want %.4f", x.name, got, x.want)
		}
	}
	if a := tenth(); a.within(0) != 4 || a.within(0.75) != 8 || a.within(1.55) != 16 || a.within(1e9) != tree.MaxNodes {
		t.Errorf("trees within 0, 0.75, 1.55 and 1e9 plain rounds: %d, %d, %d and %d", a.within(0), a.within(0.75), a.within(1.55), a.within(1e9))
	}
}

// The account is charged what a round's rows cost among those of the others.
func TestRoundsArePutToTheAccount(t *testing.T) {
	for _, x := range []struct {
		name                string
		rows, nodes, tokens int
		draft               time.Duration
		asks                bool
		want                float64
	}{
		{"alone", 5, 5, 3, 0, false, 2 - 0.4},
		{"nothing was right", 5, 5, 1, 0, false, -0.4},
		{"beside others", 9, 5, 3, 0, false, 2 - (1.8/1.4 - 1)},
		{"with a draft model", 5, 5, 3, 250 * time.Microsecond, true, 2 - 0.4 - 0.25},
	} {
		c := armOf([4]float64{0.5})
		c.asks = x.asks
		a := tenth(c)
		a.meter = cost.Meter{Level: 1e-3, N: 100}
		a.chosen, a.round, a.idle = 0, x.tokens, 7
		took := time.Duration(a.shared.pass.Cost(x.rows) * 1e6)
		a.took(infer.Timing{Rows: x.rows, Nodes: x.nodes, Verify: took, Draft: x.draft})
		if !close1(a.account, x.want) || !close1(a.shared.gained, x.want) {
			t.Errorf("%s: %.4f on the account and %.4f for all, want %.4f", x.name, a.account, a.shared.gained, x.want)
		}
		if want := float64(x.tokens) - x.want; !close1(a.spent.Value(0, 0), want/float64(x.tokens)) {
			t.Errorf("%s: a token is taken to cost %.4f plain rounds, want %.4f", x.name, a.spent.Value(0, 0), want/float64(x.tokens))
		}
		if a.chosen != -1 || a.idle != 0 || a.shared.drafts != 1 || a.others != x.rows-x.nodes {
			t.Errorf("%s: chosen %d, idle for %d rounds, %d since a plain one, %d other rows", x.name, a.chosen, a.idle, a.shared.drafts, a.others)
		}
		if tried := map[bool]int{true: 1}[x.asks]; c.tried != tried {
			t.Errorf("%s: tried %d times, want %d", x.name, c.tried, tried)
		}
	}
}

// A candidate that asks a draft model and adds nothing is tried for a few rounds, then left
// alone, and tried again much later.
func TestWhatNeverPaysIsTriedNowAndThen(t *testing.T) {
	c := &arm{record: &record{asks: true}, laterNode: -1}
	a := tenth(c)
	a.meter = cost.Meter{Level: 1e-3, N: 100}
	a.left = 10_000
	var rounds []int // in which it was tried
	for i := range 4 * patience {
		a.chosen = -1
		a.choose()
		rows := 1
		if a.chosen == 0 {
			rounds, rows = append(rounds, i), 2
		}
		a.round = 1
		a.emitted++
		a.took(infer.Timing{Rows: rows, Nodes: rows, Verify: time.Duration(a.shared.pass.Cost(rows) * 1e6)})
	}
	if len(rounds) < 2*newcomer || len(rounds) > 4*newcomer {
		t.Fatalf("tried in rounds %v, want %d at first and as many once in %d rounds", rounds, newcomer, patience)
	}
	if rounds[newcomer-1] > patience/2 || rounds[newcomer]-rounds[newcomer-1] < patience {
		t.Errorf("tried in rounds %v, want %d soon and then none for %d rounds", rounds, newcomer, patience)
	}
	if lost := -a.account; !(lost > 0 && lost < credit+share*float64(a.emitted)) {
		t.Errorf("%.3f plain rounds were lost, want some, and less than the request may lose", lost)
	}
	if len(rounds) != c.tried {
		t.Errorf("%d trials are counted, want %d", c.tried, len(rounds))
	}
}

// A candidate that pays drafts in every round except the plain ones, which keep the cost of a
// round without a draft up to date.
func TestWhatPaysIsUsed(t *testing.T) {
	c := &arm{record: &record{asks: true}, laterNode: -1}
	a := tenth(c)
	a.meter = cost.Meter{Level: 1e-3, N: 100}
	a.left = 10_000
	used, gap := 0, 0
	for i := range 4 * patience {
		a.chosen = -1
		a.choose()
		rows := 1
		a.round = 1
		if a.chosen == 0 {
			rows, a.round = 5, 3
			used++
		} else if i > 2*newcomer {
			gap++
		}
		a.emitted += a.round
		a.took(infer.Timing{
			Rows: rows, Nodes: rows, Verify: time.Duration(a.shared.pass.Cost(rows) * 1e6), Draft: time.Duration(rows-1) * 50 * time.Microsecond,
		})
	}
	if plain := 4 * patience / plainAfter; gap > plain || gap < plain-1 {
		t.Errorf("%d rounds went without a draft that pays, want one after every %d", gap, plainAfter)
	}
	if want := float64(used) * (2 - 0.4 - 0.2); !close1(a.account, want) {
		t.Errorf("%.3f plain rounds are gained, want %.3f", a.account, want)
	}
}

// A trader has every trait. It drafts five, whose tokens identify the origins of its nodes, and
// remembers only the last tree.
type trader struct {
	took, ended int
	seen        []int
}

func (*trader) Start([]int32) error { return nil }

func (d *trader) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	d.seen = d.seen[:0]
	if p.MaxNodes >= 6 {
		five(p.Tree)
	}
	for n := range p.Tree.Len() {
		d.seen = append(d.seen, int(p.Tree.Token(n))%2)
	}
	return nil, nil
}

func (*trader) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

func (d *trader) Traits() infer.Traits {
	return infer.Traits{
		Harvest: true, Keeps: true, Took: func(infer.Timing) { d.took++ }, End: func() { d.ended++ },
		Origins: []string{"even", "odd"}, Origin: func(n int) int { return d.seen[n] },
	}
}

// auto has every trait of its candidates: a field that is added to Traits must be forwarded too.
func TestAutoHasTheTraitsOfItsCandidates(t *testing.T) {
	d := new(trader)
	a := tenth(newArm(new(record), "trader", d))
	traits := a.Traits()
	for i := range reflect.TypeFor[infer.Traits]().NumField() {
		if reflect.ValueOf(traits).Field(i).IsZero() {
			t.Errorf("auto loses the trait %s", reflect.TypeFor[infer.Traits]().Field(i).Name)
		}
	}
	a.meter, a.chosen = cost.Meter{Level: 1e-3, N: 100}, 0
	if traits.Took(infer.Timing{Rows: 1, Nodes: 1, Verify: time.Millisecond}); d.took != 1 {
		t.Errorf("the candidate was told of %d rounds, want 1", d.took)
	}
	if traits.End(); d.ended != 1 {
		t.Errorf("the candidate was told of %d ends, want 1", d.ended)
	}
}

// Prefixes are kept only if no candidate needs their rows.
func TestAutoKeepsPrefixesIfAllCandidatesDo(t *testing.T) {
	one := func(x infer.Traits) *arm { return &arm{record: new(record), traits: x} }
	keeps, needs, none := infer.Traits{Harvest: true, Keeps: true}, infer.Traits{Harvest: true}, infer.Traits{}
	for _, x := range []struct {
		all  []*arm
		want infer.Traits
	}{
		{[]*arm{one(keeps), one(none)}, keeps},
		{[]*arm{one(keeps), one(needs)}, needs},
		{[]*arm{one(needs), one(none), one(keeps)}, needs},
		{[]*arm{one(none)}, none},
	} {
		if got := tenth(x.all...).Traits(); got.Harvest != x.want.Harvest || got.Keeps != x.want.Keeps {
			t.Errorf("harvest %v, keeps %v, want %v and %v", got.Harvest, got.Keeps, x.want.Harvest, x.want.Keeps)
		}
	}
}

// Nodes keep their origins both when auto cuts the tree and when it takes all of it, even if the
// drafter has begun another by then.
func TestAutoKnowsWhereNodesComeFrom(t *testing.T) {
	for want, worth := range map[int]float64{3: 0.4, 5: 1} {
		other := &arm{record: &record{asks: true}, named: []string{"model"}, laterNode: -1}
		c := armOf([4]float64{0.8, 0.15}, [4]float64{0.5})
		x := newArm(c.record, "trader", new(trader))
		x.here, x.laterNode = c.here, -1
		a := tenth(other, x)
		a.meter, a.spent, a.account = cost.Meter{Level: 1e-3, N: 100}, cost.Ratio{Have: worth * 1e9, Of: 1e9}, 100
		other.tried, other.since = 100, 0
		traits := a.Traits()
		if diff := cmp.Diff([]string{"model", "even", "odd"}, traits.Origins); diff != "" {
			t.Fatal(diff)
		}
		p := infer.Proposal{Tree: tree.New(10, 60), MaxNodes: 60, MaxDepth: 9}
		if _, err := a.Grow(&p, nil, nil); err != nil {
			t.Fatal(err)
		}
		if p.Tree.Len() != want {
			t.Fatalf("a token is worth %v: a tree of %d nodes, want %d", worth, p.Tree.Len(), want)
		}
		for n := 1; n < p.Tree.Len(); n++ {
			if got, want := traits.Origin(n), 1+int(p.Tree.Token(n))%2; got != want {
				t.Errorf("node %d is from %s, want %s", n, traits.Origins[got], traits.Origins[want])
			}
		}
	}
}
