package grow

import (
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft/cost"
)

// A machine is what rounds cost in a test: seconds of a pass by its rows, and of a draft pass.
type machine struct {
	pass func(rows int) float64
	step float64
}

// round plans and takes a round whose draft offers so many nodes of a probability of a half; each that
// is drafted adds worth tokens. It returns the nodes of the tree.
func (m machine) round(a *Account, c Pace, offers int, worth float64) int {
	tuning, limit := a.plan(c, 1024, nil)
	nodes, best := min(limit, 1+offers), 0.0
	if tuning.Price != nil {
		most := nodes
		nodes = 1
		for i := 1; i < most; i++ {
			if gain := 0.5*float64(i) - tuning.Price[i]; gain > best {
				nodes, best = i+1, gain
			}
		}
	}
	t := infer.Timing{Rows: nodes, Nodes: nodes, Verify: seconds(m.pass(nodes))}
	tokens := 1
	if limit > 1 {
		t.Steps, t.Asked, t.Draft = 1, 4, seconds(m.step)
		tokens += int(worth * float64(nodes-1))
		if nodes > 1 {
			a.observe(float64(tokens-1), float64(nodes-1)/2, nil, nil)
		}
	}
	a.took(t, tokens, limit, 1024)
	return nodes
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Drafts that never pay cost fewer and fewer rounds; when they begin to, drafting goes on without a pause.
func TestDraftingPausesWhileItDoesNotPay(t *testing.T) {
	m := machine{func(rows int) float64 { return 1 + 0.05*float64(rows) }, 0.5}
	a := new(Account)
	drafted := 0
	for i := range 1000 {
		if m.round(a, Pace{}, 8, 0) > 1 && i >= cost.Warm {
			drafted++
		}
	}
	if drafted == 0 || drafted > 60 {
		t.Errorf("%d of 1000 rounds draft what is never right, want a few", drafted)
	}
	for range 4 * (longPause + 2*trial) { // until trials show that it pays
		m.round(a, Pace{}, 8, 0.5)
	}
	for i := range 100 {
		if m.round(a, Pace{}, 8, 0.5) < 2 {
			t.Fatalf("round %d pauses, and every tree adds four tokens", i)
		}
	}
	if a.pause.next != 0 {
		t.Errorf("the next pause would have %d rounds, as if it followed one", a.pause.next)
	}
}

// A method of given size drafts whatever it costs.
func TestGivenSizesNeverPause(t *testing.T) {
	m := machine{func(rows int) float64 { return 1 + 0.05*float64(rows) }, 0.5}
	a := new(Account)
	for i := range 300 {
		if _, limit := a.plan(Pace{N: 6, Stop: true}, 1024, nil); limit < 2 && i >= cost.Warm {
			t.Fatalf("round %d asks for no draft", i)
		}
		m.round(a, Pace{N: 6, Stop: true}, 8, 0)
	}
}

// What looked worthless is drafted again from time to time, so that it is noticed when it is not.
func TestDraftsThatBecomeRightAreNoticed(t *testing.T) {
	m := machine{func(rows int) float64 { return 1 + 0.05*float64(rows) }, 0.01}
	a := new(Account)
	for range 200 {
		m.round(a, Pace{N: 6}, 8, 0)
	}
	large := 0
	for range 100 {
		if m.round(a, Pace{N: 6}, 8, 0.8) == 6 {
			large++
		}
	}
	if large < 70 {
		t.Errorf("%d of 100 trees are as large as they may be, and all of their nodes pay", large)
	}
}

// Trees that use their room get more of it, up to the bound, and trees that do not lose it again.
func TestSizesFollowTheTrees(t *testing.T) {
	free := machine{func(int) float64 { return 1 }, 0.01}
	a := new(Account)
	for range 64 {
		free.round(a, Pace{}, 1000, 0.1)
	}
	if n := a.size.now(); n != MostNodes {
		t.Errorf("trees may have %d nodes where rows are free, want %d", n, MostNodes)
	}
	for range 8 * sizeSpan {
		free.round(a, Pace{}, 3, 1)
	}
	if n := a.size.now(); n > 16 {
		t.Errorf("trees of 4 nodes may have %d", n)
	}
}

// Prices are those of the pass that a tree shares, by the rows that it adds to it.
func TestPricesFollowTheCurveOfCosts(t *testing.T) {
	m := machine{func(rows int) float64 { return 1 + 0.1*float64(max(rows-8, 0)) }, 0.1} // eight rows are free
	a := new(Account)
	for i := range 200 {
		m.round(a, Pace{}, []int{0, 1, 3, 7, 15}[i%5], 0.5)
	}
	tuning, n := a.plan(Pace{}, 16, nil)
	if n != 16 || len(tuning.Price) != 16 {
		t.Fatalf("%d prices of %d nodes", len(tuning.Price), n)
	}
	if p := tuning.Price; p[7] > 0.1*p[15] || p[0] != 0 {
		t.Errorf("eight rows cost %v, sixteen %v: want nothing and much", p[7], p[15])
	}
	for i := 1; i < n; i++ {
		if tuning.Price[i] < tuning.Price[i-1] {
			t.Errorf("%d rows cost %v, fewer cost %v", i, tuning.Price[i], tuning.Price[i-1])
		}
	}
}

// Where another judges whether drafts pay, there are no pauses.
func TestUnpausedDraftsGoOn(t *testing.T) {
	m := machine{func(rows int) float64 { return 1 + 0.05*float64(rows) }, 0.5}
	a := new(Account)
	for i := range 300 {
		if _, limit := a.plan(Pace{Always: true}, 1024, nil); limit < 2 && i >= cost.Warm {
			t.Fatalf("round %d asks for no draft", i)
		}
		m.round(a, Pace{Always: true}, 8, 0)
	}
}

// Sizes that a bound on trees keeps from being measured at first are measured when there is room for them, but
// not waited for without end.
func TestSizesThatWereCutAreMeasuredLater(t *testing.T) {
	m := machine{func(rows int) float64 { return 1 + 0.05*float64(rows) }, 0.5}
	warm := func(cut int) (rounds int, sizes map[int]bool) {
		a := new(Account)
		sizes = map[int]bool{}
		for ; a.rounds < cost.Warm; rounds++ {
			most := 1024
			if rounds < cut {
				most = 4
			}
			_, limit := a.plan(Pace{}, most, nil)
			sizes[limit] = true
			a.took(infer.Timing{Rows: limit, Nodes: limit, Verify: seconds(m.pass(limit))}, 1, limit, most)
		}
		return rounds, sizes
	}
	for _, x := range []struct{ cut, rounds int }{{0, cost.Warm}, {20, 18 + cost.Warm}, {1 << 20, mostCut + cost.Warm}} {
		rounds, sizes := warm(x.cut)
		if rounds != x.rounds || sizes[firstSize] != (x.cut < 1<<20) {
			t.Errorf("%d rounds of small trees: %d rounds measure the sizes %v, want %d", x.cut, rounds, sizes, x.rounds)
		}
	}
}
