package chooser

import (
	"math"
	"reflect"
	"slices"
	"strings"
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
	a := &chooser{shared: &shared{}, all: arms, request: request{chosen: -1}}
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
		{"there is nothing to lose", 1, 0, 6, 1, 0},
		{"there is a little to lose", 1, 0.3, 6, 3, 0.8 + 0.4 - 0.2},
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

// A tree that was not used is watched for as long as the output follows it, also through rounds that candidates sleep through.
func TestTreesThatWereNotUsedAreFollowed(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		c := &arm{record: new(record), laterNode: -1}
		a := tenth(c)
		five(&c.full)
		c.live, c.fresh = 6, true
		root := tree.New(10, 1)
		for i, token := range []int32{11, 13, 14} {
			if i > 0 {
				c.full.Reset(token, 1) // no tree in this round
			}
			p, v := infer.Proposal{Tree: root, Pos: i}, infer.Verdict{Path: []int{0}, Next: token}
			if asleep && i > 0 {
				a.rested(i, []int32{10, token}, 0)
				continue
			}
			a.observe(&p, v)
		}
		a.catchUp()
		want := map[[2]int][2]float64{{0, 0}: {1, 1}, {0, 1}: {1, 0}, {1, 0}: {1, 1}, {2, 0}: {1, 1}}
		got := tally(&c.here)
		for k, v := range want {
			if got[k] != v {
				t.Errorf("asleep %v, depth and rank %v: tried and right %v, want %v", asleep, k, got[k], v)
			}
		}
		if len(got) != len(want) || c.laterNode != -1 || a.tokens != 3 {
			t.Errorf("asleep %v: %v, at node %d, %d tokens; want %v, -1, 3", asleep, got, c.laterNode, a.tokens, want)
		}
	}
}

func TestWhatARequestMayLose(t *testing.T) {
	short := slices.Repeat([]int{20}, pasts)
	for _, x := range []struct {
		name    string
		account account
		past    []int // tokens
		want    float64
	}{
		{"at its start, a share of an answer of usual length", account{}, nil, share * priorLength},
		{"not of the prompt's time", account{prefill: 8}, nil, share * priorLength},
		{"later, of the tokens that there are", account{tokens: 100}, nil, share * 100},
		{"with a gain", account{tokens: 100, gained: 3}, nil, 3 + share*100},
		{"with a loss", account{tokens: 100, gained: -1}, nil, share*100 - 1},
		{"with a loss that is all", account{tokens: 100, gained: -4}, nil, 0},
		{"with what it was lent", account{tokens: 100, gained: -4, lent: 2}, nil, share*100 - 2},
		{"where answers are short", account{}, short, share * 20},
		{"where one is", account{}, append([]int{20}, slices.Repeat([]int{90}, pasts-1)...), share * 20},
		{"where few are known, which are long", account{}, []int{90, 90}, share * priorLength},
		{"where few are known, one of them short", account{}, []int{90, 20}, share * 20},
		{"where one is, and this one is longer", account{tokens: 21}, append([]int{20}, slices.Repeat([]int{90}, pasts-1)...), share * (21 + 69*(pasts-1.)/pasts)},
		{"longer than all", account{tokens: 91}, slices.Repeat([]int{90}, pasts), share * 91},
		{"longer than the few that are known", account{tokens: 21}, []int{20, 90}, share * (21 + 27*(pasts-1.)/pasts)},
		{"longer than all but one", account{tokens: 100}, append([]int{420}, slices.Repeat([]int{90}, pasts-1)...), share * 120},
		{"where they were once", account{}, append(short, slices.Repeat([]int{500}, pasts)...), share * 500},
		{"where requests ended before their answers", account{}, slices.Repeat([]int{0}, pasts), share * priorLength},
	} {
		s := new(shared)
		for _, n := range x.past {
			s.end(&account{tokens: n}, false, 0)
		}
		x.account.ahead = s.ahead(x.account.tokens)
		if got := x.account.funds(); !close1(got, x.want) {
			t.Errorf("%s: %.4f plain rounds, want %.4f", x.name, got, x.want)
		}
	}
	// An account that may expect gains reckons with the shortest but one, once it knows enough.
	for _, hope := range []float64{0, 1} {
		s := &shared{hope: hope}
		for i := range pasts {
			if got := s.ahead(0); got != 20 && i > 0 {
				t.Errorf("after %d answers, the next is expected to have %v tokens, want 20", i, got)
			}
			s.end(&account{tokens: 20 + 2*i}, false, 0)
		}
		if got := s.ahead(0); got != 20+2*hope {
			t.Errorf("where requests are expected to gain: %v, the next answer is expected to have %v tokens, want %v", hope, got, 20+2*hope)
		}
	}
	if a := tenth(); a.within(0) != narrowest || a.within(0.35) != smallest || a.within(0.75) != 8 || a.within(1.55) != 16 || a.within(1e9) != tree.MaxNodes {
		t.Errorf("trees within 0, 0.35, 0.75, 1.55 and 1e9 plain rounds: %d, %d, %d, %d and %d", a.within(0), a.within(0.35), a.within(0.75), a.within(1.55), a.within(1e9))
	}
	for row, want := range map[float64]int{0.05: smallest, 0.2: narrowest} { // by passes over prompts
		a := tenth()
		a.shared.pass, a.shared.row = cost.Curve{}, row
		a.shared.pass.Add(1, experts.Read{}, 1, 1)
		if got := a.within(0); got != want {
			t.Errorf("where rows cost %.2f, a first tree has %d nodes, want %d", row, got, want)
		}
	}
}

// A size that was never seen may cost more than smaller ones let expect, and is at most twice as
// large as what was.
func TestNewSizesAreRisks(t *testing.T) {
	a := &chooser{shared: new(shared)}
	for _, rows := range []int{1, 2, 4, 8} {
		a.shared.pass.Add(rows, experts.Read{}, 1, 1)
	}
	if got := a.risk(8); !close1(got, a.extra(8)) {
		t.Errorf("a pass of a size that is known costs %.3f more at worst, want what it costs", got)
	}
	if got, want := a.risk(16), a.extra(16)+newRow*8; !close1(got, want) {
		t.Errorf("a pass of a new size costs %.3f more at worst, want %.3f", got, want)
	}
	if got := a.within(1e9); got != 16 {
		t.Errorf("whatever it may cost, a tree has %d nodes, want 16", got)
	}
}

// The account is charged what a round's rows cost among those of the others, and all that plain
// decoding has not.
func TestRoundsArePutToTheAccount(t *testing.T) {
	us := time.Microsecond
	for _, x := range []struct {
		name                string
		rows, nodes, tokens int
		draft               time.Duration
		overhead, drafting  time.Duration
		asks                bool
		want                float64
	}{
		{"alone", 5, 5, 3, 0, 0, 0, false, 2 - 0.4},
		{"nothing was right", 5, 5, 1, 0, 0, 0, false, -0.4},
		{"beside others", 9, 5, 3, 0, 0, 0, false, 2 - (1.8/1.4 - 1)},
		{"with a draft model", 5, 5, 3, 250 * us, 0, 0, true, 2 - 0.4 - 0.25},
		{"with what drafters did", 5, 5, 3, 0, 120 * us, 100 * us, false, 2 - 0.4 - 0.1},
		{"in vain", 1, 1, 1, 0, 70 * us, 50 * us, false, -0.05},
		{"and what more tokens cost", 5, 5, 3, 0, 130 * us, 100 * us, false, 2 - 0.4 - 0.1 - 0.03 + 3*0.01},
	} {
		c := armOf([4]float64{0.5})
		c.asks = x.asks
		a := tenth(c)
		a.meter = cost.Meter{Level: 1e-3, N: 100}
		if strings.HasPrefix(x.name, "and") {
			a.shared.rest = cost.Ratio{Have: 1e-5, Of: 1} // seconds per token
		}
		for range 4 {
			a.shared.pass.Add(x.rows, experts.Read{}, a.shared.pass.Cost(x.rows), 1)
		}
		a.chosen, a.round, a.idle, a.steps = 0, x.tokens, 7, 1
		took := time.Duration(a.shared.pass.Cost(x.rows) * 1e6)
		a.took(infer.Timing{Rows: x.rows, Nodes: x.nodes, Verify: took, Draft: x.draft, Overhead: x.overhead, Drafting: x.drafting})
		if !close1(a.gained, x.want) {
			t.Errorf("%s: %.4f on the account, want %.4f", x.name, a.gained, x.want)
		}
		if want := float64(x.tokens) - x.want; !close1(a.spent.Value(0, 0), want/float64(x.tokens)) {
			t.Errorf("%s: a token is taken to cost %.4f plain rounds, want %.4f", x.name, a.spent.Value(0, 0), want/float64(x.tokens))
		}
		if a.chosen != -1 || a.idle != 0 || a.others != x.rows-x.nodes {
			t.Errorf("%s: chosen %d, idle for %d rounds, %d other rows", x.name, a.chosen, a.idle, a.others)
		}
		if tried := map[bool]int{true: 1}[x.asks]; c.tried != tried {
			t.Errorf("%s: tried %d times, want %d", x.name, c.tried, tried)
		}
	}
}

// A pass of a new size is charged what it took; one of a size that is known, what it usually takes.
func TestSurprisesAreCharged(t *testing.T) {
	for _, x := range []struct {
		samples int
		want    float64
	}{{0, 3}, {8, 0.4}} {
		c := armOf([4]float64{0.5})
		a := &chooser{shared: new(shared), all: []*arm{c}}
		a.shared.pass.Add(1, experts.Read{}, 1, 1)
		for range x.samples {
			a.shared.pass.Add(5, experts.Read{}, 1.4, 1)
		}
		a.meter, a.round = cost.Meter{Level: 1e-3, N: 100}, 1
		a.took(infer.Timing{Rows: 5, Nodes: 5, Verify: 4 * time.Millisecond})
		if got := -a.gained; math.Abs(got-x.want) > 0.4 {
			t.Errorf("a pass of 4 plain ones, after %d of 1.4: charged with %.2f, want about %.1f", x.samples, got, x.want)
		}
	}
}

// What a draft model reads because it was not asked for long is charged and told apart from what its
// rounds cost.
func TestReadingIsCharged(t *testing.T) {
	c := armOf([4]float64{0.5})
	c.asks, c.tried = true, 20
	c.draft, c.step = cost.Ratio{Have: 2, Of: 10}, cost.Ratio{Have: 2, Of: 20}
	a := tenth(c)
	a.meter = cost.Meter{Level: 1e-3, N: 100}
	a.perToken, a.backlog, a.steps, a.chosen, a.round = 0.1, 100+near, 2, 0, 1
	for range 4 {
		a.shared.pass.Add(5, experts.Read{}, a.shared.pass.Cost(5), 1)
	}
	if got, want := c.entry(a), 100*firstRead*0.1; !close1(got, want) {
		t.Errorf("reading 100 tokens is expected to cost %.3f, want %.3f", got, want)
	}
	a.took(infer.Timing{Rows: 5, Nodes: 5, Verify: time.Duration(a.shared.pass.Cost(5) * 1e6), Draft: 1200 * time.Microsecond})
	if want := -(0.4 + 1.2); !close1(a.gained, want) {
		t.Errorf("%.3f on the account, want %.3f", a.gained, want)
	}
	if got := c.reading.Value(0, 0); !close1(got, 0.01) {
		t.Errorf("a token is taken to cost %.4f, want 0.01", got)
	}
	if got := c.draft.Value(0, 0); !close1(got, 0.2) {
		t.Errorf("a round's draft is taken to cost %.3f, want 0.2", got)
	}
}

// Greedy requests are expected to gain by drafts until some have not, sampled ones only once some have; what has
// lost is forgotten in the end.
func TestWhoIsExpectedToGain(t *testing.T) {
	for _, x := range []struct {
		name   string
		hope   float64
		gained []float64
		later  int // requests without drafts
		want   bool
		trial  bool // drafts were only tried
	}{
		{"greedy", 1, nil, 0, true, false},
		{"greedy, one has lost", 1, []float64{-1}, 0, true, false},
		{"greedy, two have lost", 1, []float64{-1, -1}, 0, false, false},
		{"greedy, two have lost long ago", 1, []float64{-1, -1}, 20, true, false},
		{"greedy, one of four has lost", 1, []float64{1, -1, 1, 1}, 0, true, false},
		{"sampled", 0, nil, 0, false, false},
		{"sampled, some have gained", 0, []float64{1, 1, 1}, 0, false, false},
		{"sampled, many have gained", 0, slices.Repeat([]float64{1}, 20), 0, true, false},
		{"greedy, five have tried in vain", 1, []float64{-1, -1, -1, -1, -1}, 0, true, true},
		{"greedy, eight have tried in vain", 1, slices.Repeat([]float64{-1}, 8), 0, false, true},
	} {
		s := &shared{hope: x.hope}
		a := &chooser{shared: s}
		for _, g := range x.gained {
			s.end(&account{tokens: 9, gained: g}, true, map[bool]int{false: enough}[x.trial])
		}
		for range x.later {
			if err := a.Start(nil); err != nil {
				t.Fatal(err)
			}
			s.end(&account{tokens: 9}, false, 0)
		}
		if s.bold() != x.want {
			t.Errorf("%s: expected to gain: %v, want %v", x.name, s.bold(), x.want)
		}
	}
}

// What few passes of a size took is believed within what passes over prompts make likely, and what might be
// cheap counts as such until it was measured often enough.
func TestFewMeasuresAreBelievedWithinBounds(t *testing.T) {
	for _, x := range []struct {
		name                string
		row, cost           float64 // by the prompt; of a pass with 8 rows
		samples             int
		extra, hoped, worst float64
	}{
		{"no prompt has told", 0, 2.5, 1, 1.1, 1.1, unheard},
		{"as likely", 0.1, 1.8, 1, 0.75, 0.7, rowSlack + 1.4},
		{"one was interrupted", 0.02, 4, 1, rowSlack + 0.28, 0.14, rowSlack + 0.28},
		{"a small model's rows are not free", 0.5, 1, 1, 3, 3, rowSlack + 7},
		{"many say that they are dear", 0.02, 4, 100, 3, 3, rowSlack + 0.28},
	} {
		a := &chooser{shared: &shared{row: x.row, hope: 1, fortune: cost.Ratio{Have: 5, Of: 5}}}
		a.shared.pass.Add(1, experts.Read{}, 1, 1)
		for range x.samples {
			a.shared.pass.Add(8, experts.Read{}, x.cost, 1)
		}
		if got := a.extra(8); math.Abs(got-x.extra) > 0.1 {
			t.Errorf("%s: a pass with 8 rows is taken to cost %.3f more, want %.2f", x.name, got, x.extra)
		}
		if got := a.hoped(8); math.Abs(got-x.hoped) > 0.1 {
			t.Errorf("%s: it is hoped to cost %.3f more, want %.2f", x.name, got, x.hoped)
		}
		if known := x.samples > 4; a.told(8) != known {
			t.Errorf("%s: measured often enough: %v", x.name, !known)
		}
		if a.shared.hope, a.shared.fortune = 0, (cost.Ratio{}); !a.told(8) || a.hoped(8) != a.extra(8) {
			t.Errorf("%s: a cautious account measures it again, or hopes for less than %.3f", x.name, a.extra(8))
		}
		if got := a.dearest(8); !close1(got, x.worst) {
			t.Errorf("%s: it is said to cost %.3f more at most, want %.2f", x.name, got, x.worst)
		}
	}
}

// What is read again, after a preemption or as a long text, makes neither a token of it dearer nor the request shorter.
func TestReadingAgainIsNoDearerPrompt(t *testing.T) {
	a := &chooser{shared: new(shared), request: request{promptLen: 101}}
	a.shared.pass, a.meter.Level = tenth(&arm{record: new(record)}).shared.pass, 1
	one := a.one()
	seconds := func(rounds float64) time.Duration { return time.Duration(rounds * one * float64(time.Second)) }
	a.prefilled(seconds(11), 100)
	token := a.perToken
	a.learnRow(experts.Read{})
	row := a.shared.row
	if !close1(token, 11./101) || !close1(row, 0.1) {
		t.Fatalf("a token of the prompt took %.4f plain rounds and a row %.4f, want %.4f and 0.1", token, row, 11./101)
	}
	a.prefilled(seconds(11+300*0.11), 100+300)
	if a.learnRow(experts.Read{}); math.Abs(a.perToken/token-1) > 0.05 || math.Abs(a.shared.row/row-1) > 0.05 {
		t.Errorf("after 300 tokens were read again, a token takes %.4f and a row %.4f, before %.4f and %.4f", a.perToken, a.shared.row, token, row)
	}
}

// Passes over prompts say what a row costs; one that was interrupted moves it little, and neither short prompts nor
// models with experts say anything.
func TestPromptsSayWhatARowCosts(t *testing.T) {
	a := &chooser{shared: new(shared)}
	learn := func(tokens int, prefill float64, x experts.Read) float64 {
		a.ran, a.prefill = tokens, prefill
		a.learnRow(x)
		return a.shared.row
	}
	for _, x := range []struct {
		name    string
		tokens  int
		prefill float64
		of      int
		want    float64
	}{
		{"a short one", 9, 5, 0, 0},
		{"one of experts", 101, 11, 8, 0},
		{"a long one", 101, 11, 0, 0.1},
		{"an interrupted one", 101, 101, 0, 0.15},
		{"one that was mostly kept", 101, 1, 0, 0.075},
	} {
		if got := learn(x.tokens, x.prefill, experts.Read{Of: x.of}); !close1(got, x.want) {
			t.Errorf("%s: a row costs %.3f, want %.3f", x.name, got, x.want)
		}
	}
}

// The first pass of a draft model is charged, but believed only up to twice what was expected, and so is what it
// reads: a draft model that seems ten times as dear as it is would not be asked again.
func TestAFirstPassIsNotBelieved(t *testing.T) {
	c := armOf([4]float64{0.5})
	c.asks = true
	a := tenth(c)
	a.meter = cost.Meter{Level: 1e-3, N: 100}
	a.perToken, a.backlog, a.steps, a.chosen, a.round = 0.1, 100+near, 1, 0, 1
	draft, read := a.drafting(20)
	if !close1(draft+read, 20) {
		t.Errorf("charged with %.2f and %.2f for reading, want 20 in all", draft, read)
	}
	if got, want := c.reading.Value(0, 0), believed*firstRead*0.1; !close1(got, want) {
		t.Errorf("a token is taken to cost %.4f, want %.4f", got, want)
	}
	if got, want := c.draft.Value(0, 0), believed*firstDraft; !close1(got, want) {
		t.Errorf("a round's draft is taken to cost %.3f, want %.3f", got, want)
	}
	a.backlog = 0
	a.drafting(3)
	if got := c.draft.Value(0, 0); got < 1.5 {
		t.Errorf("after a second pass that was as slow, a round's draft is taken to cost %.3f, want more than 1.5", got)
	}
}

// A request is lent the price of a draft model's reading while most before gained by it. Before anything is known of
// it none is, unless many could not try it or requests are expected to gain.
func TestReadingIsLentWhileItPays(t *testing.T) {
	for _, x := range []struct {
		name    string
		won     cost.Ratio
		backlog int
		lent    float64
		want    float64
		denied  int
		hope    float64
	}{
		{name: "nothing is known", backlog: 50 + near},
		{name: "nothing is known of it, but greedy requests gain", backlog: 50 + near, hope: 1, want: 50 * 0.02},
		{name: "nothing is known, and some could not pay", backlog: 50 + near, denied: starved - 1},
		{name: "nothing is known, and many could not pay", backlog: 50 + near, denied: starved, want: 50 * 0.02},
		{"all have gained", cost.Ratio{Have: 5, Of: 5}, 50 + near, 0, 50 * 0.02, 0, 0},
		{"it has some already", cost.Ratio{Have: 5, Of: 5}, 650, 2, lendShare*(40+60) - 2, 0, 0},
		{"too much waits", cost.Ratio{Have: 5, Of: 5}, 650, 0, lendShare * (40 + 60), 0, 0},
		{"some have lost", cost.Ratio{Have: 4, Of: 5}, 50 + near, 0, 50 * 0.02, 0, 0},
		{"most have lost", cost.Ratio{Have: 0.9, Of: 5}, 50 + near, 0, 0, 0, 0},
	} {
		c := &arm{record: &record{asks: true, won: x.won, denied: x.denied}}
		c.reading, c.step = cost.Ratio{Have: 0.02e9, Of: 1e9}, cost.Ratio{Have: 0.1e9, Of: 1e9}
		a := tenth(c)
		a.shared.hope = x.hope
		a.account = account{prefill: 40, least: 60, lent: x.lent}
		if a.backlog = x.backlog; math.Abs(a.lends(c)-x.want) > 1e-4 {
			t.Errorf("%s: lent %.3f, want %.3f", x.name, a.lends(c), x.want)
		}
		if c.used, c.tried = true, 20; a.lends(c) != 0 {
			t.Errorf("%s: lent %.3f in a request that has read its prompt", x.name, a.lends(c))
		}
	}
}

// What a request was lent is no more than reading took: a round that was lent the price and read nothing, or less,
// leaves the rest unlent.
func TestNoMoreIsLentThanReadingTook(t *testing.T) {
	for _, x := range []struct {
		name string
		took time.Duration // of the draft model
		want float64
	}{
		{"its draft model was not asked", 0, 0},
		{"reading was cheaper", 600 * time.Microsecond, 0.4},
		{"reading was dearer", 1700 * time.Microsecond, 1},
	} {
		c := armOf([4]float64{0.5})
		c.asks, c.tried, c.won = true, 20, cost.Ratio{Have: 5, Of: 5}
		c.draft, c.step = cost.Ratio{Have: 2e6, Of: 1e7}, cost.Ratio{Have: 2e6, Of: 2e7}
		c.reading = cost.Ratio{Have: 0.01e9, Of: 1e9}
		a := tenth(c)
		a.meter = cost.Meter{Level: 1e-3, N: 100}
		a.ahead, a.least, a.backlog, a.chosen, a.round = 64, 64, 100+near, 0, 1
		a.limit(c)
		if x.took > 0 {
			a.steps = 2
		}
		a.took(infer.Timing{Rows: 1, Nodes: 1, Verify: time.Millisecond, Draft: x.took})
		if !close1(a.lent, x.want) {
			t.Errorf("%s: %.3f lent, want %.3f", x.name, a.lent, x.want)
		}
	}
}

// The first round with a draft model makes one pass: nobody knows what one takes.
func TestTheFirstDraftIsOnePass(t *testing.T) {
	for _, known := range []bool{false, true} {
		c := armOf([4]float64{0.5})
		a := tenth(c)
		a.account = account{gained: 20}
		if known {
			c.tried, c.step, c.draft = 20, cost.Ratio{Have: 0.1e9, Of: 1e9}, cost.Ratio{Have: 0.1e9, Of: 1e9}
		}
		if a.limit(c); (a.most == 1) == known {
			t.Errorf("%d passes at most, with what they take known: %v", a.most, known)
		}
	}
}

// Requests that could not pay for trying a draft model are counted until one tries it.
func TestRequestsThatCouldNotPayAreCounted(t *testing.T) {
	c := newArm(&record{asks: true}, "asker", &asker{})
	a := tenth(c)
	a.meter = cost.Meter{Level: 1e-3, N: 100}
	a.perToken = 1
	for range 3 {
		a.account, c.wanted = account{tokens: 9, ahead: 9}, false
		a.backlog = 1000
		a.choose()
		if a.chosen >= 0 {
			t.Fatal("it was tried")
		}
		a.end()
	}
	if c.denied != 3 {
		t.Errorf("%d requests counted, want 3", c.denied)
	}
	c.wanted, c.used = true, true
	if a.end(); c.denied != 0 {
		t.Errorf("%d requests counted after one that tried it", c.denied)
	}
}

// A draft is ended where the account would not pay for another pass.
func TestDraftsEndWhereMoneyDoes(t *testing.T) {
	d := &asker{}
	c := newArm(&record{asks: true, tried: 100, step: cost.Ratio{Have: 1e8, Of: 1e9}, draft: cost.Ratio{Have: 3e8, Of: 1e9}}, "asker", d)
	a := tenth(c)
	for want, gained := range map[int]float64{1: 0.25 / boldness, 2: 0.35 / boldness, 5: 0.65 / boldness} {
		a.gained, a.chosen, a.steps = gained, 0, 0
		a.limit(c)
		p := &infer.Proposal{Tree: tree.New(1, 9)}
		passes := 0
		for {
			passes++
			ask, err := a.further(p, []infer.Row{{}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(ask) == 0 {
				break
			}
		}
		if passes != want || d.finished != 1 {
			t.Errorf("with %.2f, %d passes and %d ends, want %d and one", gained, passes, d.finished, want)
		}
		d.finished = 0
	}
}

// An asker asks for ever.
type asker struct{ finished int }

func (*asker) Start([]int32) error                                            { return nil }
func (*asker) Grow(*infer.Proposal, []infer.Row, infer.Chance) ([]int, error) { return []int{0}, nil }
func (*asker) Observe(infer.Proposal, infer.Verdict, infer.Scores) error      { return nil }
func (d *asker) Traits() infer.Traits {
	return infer.Traits{Finish: func(*infer.Proposal) error { d.finished++; return nil }}
}

// A drawer asks once, and then drafts five.
type drawer struct{ asker }

func (*drawer) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	if rows == nil {
		return []int{0}, nil
	}
	five(p.Tree)
	return nil, nil
}

func (*drawer) Traits() infer.Traits {
	return infer.Traits{Finish: func(p *infer.Proposal) error { five(p.Tree); return nil }}
}

// How often a draft model's children are right is told by its own tree: others, such as a predicted answer or what a grammar forces, may have
// added nodes to the round's, and a budget may have left it some of them.
func TestADraftModelIsJudgedByItsOwnTree(t *testing.T) {
	for _, finish := range []bool{false, true} {
		c := newArm(&record{asks: true}, "drawer", new(drawer))
		c.laterNode = -1
		a := tenth(c)
		a.meter = cost.Meter{Level: 1e-3, N: 100}
		a.gained = 10
		p := infer.Proposal{Tree: tree.New(10, 9), MaxNodes: 9, MaxDepth: 9}
		if ask, err := a.Grow(&p, nil, nil); err != nil || len(ask) != 1 {
			t.Fatal(ask, err)
		}
		var err error
		if finish {
			err = a.Traits().Finish(&p)
		} else {
			_, err = a.Grow(&p, []infer.Row{}, nil)
		}
		if err != nil || p.Tree.Len() != 6 {
			t.Fatal(p.Tree.Len(), err)
		}
		p.Tree = tree.New(10, 9) // a part of it, and more
		n := p.Tree.Add(0, 11)
		n = p.Tree.Add(n, 20)
		p.Tree.Add(n, 21)
		if err := a.Observe(p, infer.Verdict{Path: []int{0, 1, 2, 3}, Next: 30}, nil); err != nil {
			t.Fatal(err)
		}
		got, want := tally(&c.here), map[[2]int][2]float64{{0, 0}: {1, 1}, {0, 1}: {1, 0}, {1, 0}: {1, 0}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("ended early %v: tried and right, by depth and rank, %v, want %v", finish, got, want)
		}
	}
}

// A candidate that asks a draft model and adds nothing is tried for a few rounds, until that is certain enough, and again when
// these were long ago.
func TestWhatNeverPaysIsTriedNowAndThen(t *testing.T) {
	const rounds = 6000
	c := armOf([4]float64{})
	c.asks = true
	a := tenth(c)
	a.meter = cost.Meter{Level: 1e-3, N: 100}
	a.left = 10_000
	var tried []int // rounds
	for i := range rounds {
		a.chosen = -1
		a.choose()
		rows := 1
		if a.chosen == 0 {
			tried, rows = append(tried, i), 2
		}
		a.round = 1
		a.tokens++
		a.took(infer.Timing{Rows: rows, Nodes: rows, Verify: time.Duration(a.shared.pass.Cost(rows) * 1e6)})
	}
	early, _ := slices.BinarySearch(tried, 200)
	if later := len(tried) - early; early < newcomer || early > 20 || later < 2 || later > rounds/200 {
		t.Errorf("tried in rounds %v, want a few at first and then few", tried)
	}
	if lost := -a.gained; !(lost > 0 && lost < share*float64(a.tokens)/2) {
		t.Errorf("%.3f plain rounds were lost, want some, and much less than the request may lose", lost)
	}
	if len(tried) != c.tried {
		t.Errorf("%d trials are counted, want %d", c.tried, len(tried))
	}
}

// Where a draft model gains nothing on average, a request asks it until it is known whether this one does.
func TestRequestsDiffer(t *testing.T) {
	for _, x := range []struct {
		name  string
		round int // tokens
		least int // rounds with drafts of 40
		most  int
	}{{"nothing is right", 1, 1, 6}, {"everything is", 3, 40, 40}} {
		c := newArm(&record{asks: true, tried: 500}, "asker", &asker{})
		a := tenth(c)
		a.meter = cost.Meter{Level: 1e-3, N: 100}
		a.ahead, a.left = 64, 64
		for range 200 {
			c.asked.add(1.28, 0.3, 1, remembered)
		}
		c.step, c.draft = cost.Ratio{Have: 0.1e9, Of: 1e9}, cost.Ratio{Have: 0.1e9, Of: 1e9}
		used := 0
		for range 40 {
			a.chosen = -1
			rows := 1
			a.round = 1
			if a.choose(); a.chosen == 0 {
				rows, a.round = 3, x.round
				used++
			}
			a.tokens += a.round
			a.took(infer.Timing{Rows: rows, Nodes: rows, Verify: time.Duration(a.shared.pass.Cost(rows) * 1e6), Draft: time.Duration(rows/2) * 100 * time.Microsecond})
		}
		if used < x.least || used > x.most {
			t.Errorf("%s: drafts in %d rounds of 40, want %d to %d", x.name, used, x.least, x.most)
		}
	}
}

// A trial is paid by the request alone: what it would have to be lent for reading is lent to candidates that are expected to gain.
func TestNothingIsLentForTrials(t *testing.T) {
	for _, x := range []struct {
		name    string
		tokens  float64 // that rounds with drafts brought
		backlog int
		chosen  int
		loan    float64
	}{
		{"it gains", 2, 100 + near, 0, 1},
		{"it may gain", 1.28, 0, 0, 0},
		{"it may gain, but has to read much", 1.28, 100 + near, -1, 0},
	} {
		c := newArm(&record{asks: true, tried: 500, won: cost.Ratio{Have: 5, Of: 5}}, "asker", &asker{})
		c.reading = cost.Ratio{Have: 0.01e9, Of: 1e9}
		c.step, c.draft = cost.Ratio{Have: 0.1e9, Of: 1e9}, cost.Ratio{Have: 0.1e9, Of: 1e9}
		for d := range c.cells {
			c.cells[d][0] = cost.Ratio{Of: 1e6} // no chain promises anything
		}
		a := tenth(c)
		a.meter = cost.Meter{Level: 1e-3, N: 100}
		a.ahead, a.least, a.left, a.backlog = 48, 48, 48, x.backlog
		for range 200 {
			c.asked.add(x.tokens, 0.3, 1, remembered)
		}
		if a.choose(); a.chosen != x.chosen {
			t.Errorf("%s: chosen %d, want %d", x.name, a.chosen, x.chosen)
		}
		if a.chosen >= 0 {
			if a.limit(c); !close1(a.loan, x.loan) {
				t.Errorf("%s: lent %.2f, want %.2f", x.name, a.loan, x.loan)
			}
		}
	}
}

// A draft model that is asked now and then reads the tokens of the rounds between. Were they taken for its pass, it would seem
// dearer the less it is asked, and be asked less.
func TestRareTrialsDoNotMakePassesDear(t *testing.T) {
	c := armOf([4]float64{0.5})
	c.asks, c.tried = true, 20
	a := tenth(c)
	a.meter = cost.Meter{Level: 1e-3, N: 100}
	a.perToken = 0.12
	for range 30 {
		for _, waits := range []int{1, 8} {
			a.backlog, a.steps, a.chosen = waits, 1, 0
			a.drafting(0.15 + 0.03*float64(max(0, waits-near)))
		}
	}
	if got := c.step.Value(firstDraft, 0.5); math.Abs(got-0.15) > 0.02 {
		t.Errorf("a pass is taken to cost %.3f, want 0.15", got)
	}
	if got := c.reads(a); math.Abs(got-0.03) > 0.005 {
		t.Errorf("reading a token is taken to cost %.4f, want 0.03", got)
	}
}

// What a row of a prompt costs is measured in every request, also if it begins with a nap; what the first prompt
// of a process took is forgotten.
func TestPromptsAreMeasuredAfterNaps(t *testing.T) {
	made := New([]Candidate{{Name: "listener", New: func() infer.Drafter { return &listener{t: t} }}}, false)().(*drafter)
	prompt := make([]int32, 101)
	for request := range 12 {
		if err := made.Start(prompt); err != nil {
			t.Fatal(err)
		}
		traits := made.Traits()
		prefill := 11 * time.Millisecond
		if request == 0 {
			prefill = 300 * time.Millisecond
		}
		pos, left, from := len(prompt)-1, 0, -1
		for range 40 {
			if left > 0 {
				if left--; from < 0 {
					from = pos
				}
				pos++
				continue
			}
			if from >= 0 {
				traits.Rested(from, make([]int32, pos-from+1), 0)
				from = -1
			}
			p := infer.Proposal{Tree: tree.New(0, 4), Pos: pos, MaxNodes: 4, MaxDepth: 3, Prefill: prefill, Prefilled: len(prompt)}
			if _, err := made.Grow(&p, nil, nil); err != nil {
				t.Fatal(err)
			}
			if err := made.Observe(p, infer.Verdict{Path: []int{0}}, nil); err != nil {
				t.Fatal(err)
			}
			traits.Took(infer.Timing{Rows: 1, Nodes: 1, Verify: time.Millisecond})
			pos++
			left = traits.Rest()
		}
		traits.End()
	}
	if got := made.shared.row; math.Abs(got-0.1) > 0.02 {
		t.Errorf("a row of a prompt is taken to cost %.3f, want 0.1", got)
	}
}

// A candidate that pays drafts in every round except the plain ones, which keep the cost of a
// round without a draft up to date.
func TestWhatPaysIsUsed(t *testing.T) {
	const rounds = 384
	c := &arm{record: &record{asks: true}, laterNode: -1}
	a := tenth(c)
	a.meter = cost.Meter{Level: 1e-3, N: 100}
	a.left, a.gained = 10_000, 10 // enough not to begin slowly
	used, gap := 0, 0
	for i := range rounds {
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
		a.tokens += a.round
		a.took(infer.Timing{
			Rows: rows, Nodes: rows, Verify: time.Duration(a.shared.pass.Cost(rows) * 1e6), Draft: time.Duration(rows-1) * 50 * time.Microsecond,
		})
	}
	if plain := rounds / plainAfter; gap > plain || gap < plain-1 {
		t.Errorf("%d rounds went without a draft that pays, want one after every %d", gap, plainAfter)
	}
	if want := float64(used) * (2 - 0.4 - 0.2); !close1(a.gained-10, want) {
		t.Errorf("%.3f plain rounds are gained, want %.3f", a.gained-10, want)
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
		a.meter, a.spent, a.gained = cost.Meter{Level: 1e-3, N: 100}, cost.Ratio{Have: worth * 1e9, Of: 1e9}, 100
		other.tried = 100
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

// A candidate may have been chosen without having asked its draft model. What its first draft then costs is
// known from nothing but this draft.
func TestFirstDraftsAfterRoundsWithoutAreCharged(t *testing.T) {
	c := &arm{record: &record{asks: true, tried: 5}, laterNode: -1}
	a := tenth(c)
	a.meter = cost.Meter{Level: 1e-3, N: 100}
	a.backlog = near + 50
	a.chosen, a.round, a.steps = 0, 1, 1
	a.took(infer.Timing{Rows: 1, Nodes: 1, Verify: time.Millisecond, Draft: 500 * time.Microsecond, Steps: 1})
	if !close1(a.gained, -0.5) {
		t.Errorf("%.3f on the account, want -0.5", a.gained)
	}
	if got := c.draft.Value(0, 0) + 50*c.reading.Value(0, 0); !close1(got, 0.5) {
		t.Errorf("the draft and its reading are taken to cost %.3f, want 0.5", got)
	}
}

// While nothing is used, growing trees takes a small share of the time. It is not done where the account does
// not pay for it.
func TestTreesInVainTakeASmallShareOfTheTime(t *testing.T) {
	const rounds = 400
	for _, x := range []struct {
		watch, gained float64
		unused, want  int
	}{
		{0.018, 10, 0, rounds},
		{0.018, 10, settle, 44},
		{0.198, 10, settle, rounds / 99},
		{0.0001, 10, settle, rounds},
		{0.0001, 10, 3 * quiet, rounds / 4},
		{0.018, -10, 0, 0},
	} {
		a := tenth()
		a.meter.Level = 1e-3
		a.shared.watch = cost.Ratio{Have: x.watch * 1e9, Of: 1e9}
		a.gained, a.unused = x.gained, x.unused
		looks := 0
		for a.rounds = range rounds {
			if a.looks() {
				looks++
			}
		}
		if looks != x.want {
			t.Errorf("%+v: trees are grown in %d of %d rounds", x, looks, rounds)
		}
	}
}

// The first measure of growing trees may be cold or interrupted. It neither takes all that an answer may lose nor
// keeps trees from being grown in later ones.
func TestAColdFirstLookIsNoReasonNotToLookAgain(t *testing.T) {
	a := tenth()
	a.meter = cost.Meter{Level: 1e-3, N: 100}
	a.ahead, a.round, a.looked = priorLength, 1, true
	a.took(infer.Timing{Rows: 1, Nodes: 1, Verify: time.Millisecond, Overhead: 20 * time.Millisecond, Drafting: 20 * time.Millisecond})
	if !close1(a.gained, -mostWatch) {
		t.Errorf("%.3f on the account, want %.3f", a.gained, -mostWatch)
	}
	if !a.looks() {
		t.Errorf("no trees are grown any more, which are taken to cost %.3f", a.shared.watch.Value(firstWatch, 1))
	}
}

// A listener writes down what it is told.
type listener struct {
	infer.Drafter
	tokens []int32
	pos    int // of the next root
	t      *testing.T
}

func (d *listener) Start(prompt []int32) error {
	d.tokens, d.pos = append(d.tokens[:0], prompt...), len(prompt)-1
	return nil
}
func (*listener) Grow(*infer.Proposal, []infer.Row, infer.Chance) ([]int, error) { return nil, nil }
func (*listener) Traits() infer.Traits                                           { return infer.Traits{End: func() {}} }

func (d *listener) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	if last := d.tokens[len(d.tokens)-1]; p.Pos != d.pos || p.Tree.Token(0) != last {
		d.t.Errorf("a round begins at %d with %d, want at %d with %d", p.Pos, p.Tree.Token(0), d.pos, last)
	}
	for _, n := range v.Path[1:] {
		d.tokens = append(d.tokens, p.Tree.Token(n))
	}
	d.tokens = append(d.tokens, v.Next)
	d.pos += len(v.Path)
	return nil
}

// While nothing pays candidates sleep through most rounds. Afterwards, and at the end if they keep anything of the sequence, they
// know all that was emitted, also where others proposed rounds in between.
func TestSleepersMissNothing(t *testing.T) {
	d := &listener{t: t}
	made := New([]Candidate{{Name: "listener", New: func() infer.Drafter { return d }}}, false)()
	prompt := []int32{5, 6, 7}
	if err := made.Start(prompt); err != nil {
		t.Fatal(err)
	}
	traits := made.Traits()
	text := slices.Clone(prompt)
	slept, rested, from, left := 0, 0, -1, 0
	for round := range int32(200) {
		pos := len(text) - 1
		if left > 0 {
			if left--; from < 0 {
				from = pos
			}
			text = append(text, 100+round)
			continue
		}
		if from >= 0 {
			traits.Rested(from, text[from:], time.Millisecond)
			from = -1
		}
		tr := tree.New(text[pos], 4)
		p := infer.Proposal{Tree: tr, Pos: pos, MaxNodes: 4, MaxDepth: 3}
		v := infer.Verdict{Path: []int{0}, Next: 100 + round}
		if round%41 != 40 {
			if _, err := made.Grow(&p, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if round%41 >= 39 { // another's tree, for which the chooser was asked or not
			v.Path = append(v.Path, tr.Add(0, 1000+round))
			text = append(text, 1000+round)
		}
		before := len(d.tokens)
		if err := made.Observe(p, v, nil); err != nil {
			t.Fatal(err)
		}
		if len(d.tokens) == before {
			slept++
		}
		text = append(text, v.Next)
		traits.Took(infer.Timing{Rows: 1, Nodes: 1, Verify: time.Millisecond, Overhead: 300 * time.Microsecond, Drafting: 200 * time.Microsecond})
		left = traits.Rest()
		rested += left
	}
	if from >= 0 {
		traits.Rested(from, text[from:], time.Millisecond)
	}
	if slept == 0 || rested < 100 {
		t.Errorf("auto sat out %d of 200 rounds, and candidates slept through %d of the others, want most and some", rested, slept)
	}
	traits.End()
	if !slices.Equal(d.tokens, text) {
		t.Errorf("candidates were told\n%d, want\n%d", d.tokens, text)
	}
}

// What a token is worth follows from all rounds. Were it from those that candidates are awake in, an answer in which some rounds
// emit many tokens, and drafts do not pay in the others, would hold tokens for cheaper than they are.
func TestRoundsThatAreSleptThroughTakeTime(t *testing.T) {
	a := tenth()
	a.spent = cost.Ratio{Have: 15, Of: 30}
	before := a.worth()
	a.rested(0, make([]int32, 101), 0)
	a.catchUp()
	if after := a.worth(); before > 0.7 || after < 0.95 {
		t.Errorf("a token is worth %.2f plain rounds, and %.2f after 100 of them, want about 1", before, after)
	}
}

// A trial's few rounds were dear and brought little, but every second first child was right: a chain pays, and the next
// drafts are hardly larger. What such drafts bring and cost then corrects what is expected of the next.
func TestAChainPaysWhereTrialsWereDear(t *testing.T) {
	c := newArm(&record{asks: true, tried: 30, step: cost.Ratio{Have: 0.1e9, Of: 1e9}, draft: cost.Ratio{Have: 0.1e9, Of: 1e9}}, "asker", &asker{})
	a := tenth(c)
	a.meter = cost.Meter{Level: 1e-3, N: 100}
	a.gained, a.left = 10, 100
	c.asked.add(1.4, 0.7, 1, 1)
	for d := range c.cells {
		c.cells[d][0] = cost.Ratio{Have: 60, Of: 100}
	}
	a.choose()
	if a.chosen != 0 || !c.narrow {
		t.Fatalf("chosen %d, by a chain: %v", a.chosen, c.narrow)
	}
	if nodes := a.limit(c); a.most != c.deep || nodes > c.deep+1+chainMore {
		t.Errorf("a draft has at most %d passes and %d nodes, the best chain %d passes", a.most, nodes, c.deep)
	}
	for range 40 { // none is right, and they cost twice as much
		a.chosen, a.round = 0, 1
		c.tried, c.narrow = 30, true
		a.tried(c, 2*c.costs)
	}
	a.gained, a.chosen = 10, -1
	if a.choose(); a.chosen == 0 {
		t.Errorf("drafts that never brought anything are chosen, of which %.2f tokens for %.2f rounds are expected", c.adds, c.costs)
	}
}

// A chain is priced by the quickest of recent passes, and few rows by those of a prompt, where these are less: drafts among plain
// rounds take longer than one after the other.
func TestChainsArePricedByQuickPasses(t *testing.T) {
	for _, x := range []struct {
		name             string
		step, quick, row float64
		want             float64 // of a chain of one
	}{
		{"nothing else is known", 0.2, 0, 0, 0.1 + 0.2},
		{"a quick pass", 0.4, 0.2, 0, 0.1 + 0.2*quickSlack},
		{"no pass is quicker than the mean", 0.2, 0.3, 0, 0.1 + 0.2},
		{"rows of prompts are cheaper", 0.2, 0, 0.02, 0.02 + 0.2},
		{"rows of prompts are dearer", 0.2, 0, 0.3, 0.1 + 0.2},
	} {
		c := newArm(&record{asks: true, step: cost.Ratio{Have: x.step * 1e9, Of: 1e9}, quick: x.quick}, "asker", &asker{})
		a := tenth(c)
		a.shared.row = x.row
		c.cells[0][0] = cost.Ratio{Have: 60, Of: 100}
		for d := 1; d < len(c.cells); d++ {
			c.cells[d][0] = cost.Ratio{Have: 0, Of: 1e6} // only the first is ever right
		}
		if c.chain(a); c.deep != 1 || !close1(c.costs, x.want) {
			t.Errorf("%s: a chain of %d takes %.3f plain rounds, want one of 1 and %.3f", x.name, c.deep, c.costs, x.want)
		}
	}
}

// An eager listener counts how often it is to grow a tree.
type eager struct {
	listener
	looks int
}

func (d *eager) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	if p.MaxDepth > 0 {
		d.looks++
	}
	return nil, nil
}

// Where a chooser is asked in one of sixteen rounds only, as beside many others that gain nothing, trees are looked at whichever of
// sixteen it is: a look that is due in another round waits for the next one in which the chooser is asked.
func TestALookThatIsDueWaitsUntilTheChooserIsAsked(t *testing.T) {
	const rare, rounds = 16, 2000
	for phase := range rare {
		d := &eager{listener: listener{t: t}}
		made := New([]Candidate{{Name: "eager", New: func() infer.Drafter { return d }}}, false)()
		text := []int32{5, 6, 7}
		if err := made.Start(text); err != nil {
			t.Fatal(err)
		}
		traits := made.Traits()
		from, left, begun := -1, 0, 0
		for round := range rounds {
			if round == rounds/4 {
				begun = d.looks
			}
			pos, next := len(text)-1, int32(100+round)
			text = append(text, next)
			if left > 0 {
				if left--; from < 0 {
					from = pos
				}
				continue
			}
			if from >= 0 {
				traits.Rested(from, text[from:pos+1], 0)
				from = -1
			}
			p := infer.Proposal{Tree: tree.New(text[pos], 4), Pos: pos, MaxNodes: 4}
			if round%rare == phase {
				p.MaxDepth = 3
				if _, err := made.Grow(&p, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := made.Observe(p, infer.Verdict{Path: []int{0}, Next: next}, nil); err != nil {
				t.Fatal(err)
			}
			traits.Took(infer.Timing{Rows: 1, Nodes: 1, Verify: time.Millisecond, Overhead: 31 * time.Microsecond, Drafting: 31 * time.Microsecond})
			left = traits.Rest()
		}
		traits.End()
		if n := d.looks - begun; n < 16 || n > rounds/rare {
			t.Errorf("asked in the rounds %d, %d, …: trees are looked at %d times in %d rounds", phase, phase+rare, n, rounds-rounds/4)
		}
	}
}
