package source

import (
	"math"
	"slices"
	"testing"
	"time"

	"talf/infer"
	"talf/tree"
)

// What has run answers an ask for its nodes in any order, and nothing else.
func TestNodesThatRanAnswerWhateverTheOrder(t *testing.T) {
	ran := func() *leveller {
		x := &leveller{}
		x.begin(true, 9)
		x.keep(0, []int32{1, 2}, []float32{-1, -2})
		for i, n := range []struct {
			parent int
			token  int32
			ids    []int32
			logp   []float32
		}{
			{0, 1, []int32{5, 6}, []float32{-1, -3}},
			{0, 2, []int32{7, 8}, []float32{-1, float32(math.Inf(-1))}},
			{1, 5, []int32{3, 4}, []float32{-0.5, -0.75}},
			{2, 7, []int32{4, 3}, []float32{1e-7, -8}},
		} {
			if w := x.add(n.parent, n.token); w != i+1 {
				t.Fatalf("node %d is added as %d", i+1, w)
			}
			x.keep(i+1, n.ids, n.logp)
		}
		return x
	}
	if x := ran(); x.kept[4].score != -3 || x.below(4, 0) != -3 || !math.IsInf(x.below(2, 1), -1) {
		t.Errorf("scores of nodes are %v", x.kept)
	}
	ask := func(tokens []int32, parents []int) infer.Ask {
		w := tree.New(9, 16)
		for i, token := range tokens {
			w.Add(parents[i], token)
		}
		return infer.Ask{Tree: w, From: 1, Width: 2}
	}
	for name, c := range map[string]struct {
		tokens  []int32
		parents []int
		nodes   []int // of what runs
		full    bool
		width   int
		run     bool
	}{
		"a part":             {[]int32{2, 7}, []int{0, 1}, []int{2, 4}, false, 2, false},
		"another order":      {[]int32{2, 1, 7, 5}, []int{0, 0, 1, 2}, []int{2, 1, 4, 3}, false, 2, false},
		"fewer tokens":       {[]int32{1}, []int{0}, []int{1}, false, 1, false},
		"another token":      {[]int32{1, 6}, []int{0, 1}, []int{1, 5}, false, 2, true},
		"another parent":     {[]int32{1, 7}, []int{0, 1}, []int{1, 5}, false, 2, true},
		"below another node": {[]int32{3, 1, 5}, []int{0, 0, 1}, []int{5, 1, 6}, false, 2, true},
		"whole rows":         {[]int32{1}, []int{0}, []int{5}, true, 2, true},
		"more tokens":        {[]int32{1}, []int{0}, []int{5}, false, 3, true},
	} {
		x, a := ran(), ask(c.tokens, c.parents)
		a.Full, a.Width = c.full, c.width
		run, err := x.ask(&a)
		if err != nil || run != c.run || !slices.Equal(x.node[1:], c.nodes) {
			t.Errorf("an ask for %s: nodes %v, whether something runs: %v, error %v", name, x.node[1:], run, err)
		}
		for n, w := range c.nodes {
			if w >= 5 {
				continue
			}
			k := x.kept[w]
			if r := x.answer(&a, n+1); !slices.Equal(r.Tokens, x.ids[k.at:][:a.Width]) || !slices.Equal(r.LogProb, x.logp[k.at:][:a.Width]) {
				t.Errorf("an ask for %s: node %d is answered by %v", name, n+1, r)
			}
		}
	}
	x, held := ran(), ask([]int32{1}, []int{0})
	held.Allow = func(int) []uint64 { return nil }
	if run, _ := x.ask(&held); !run {
		t.Error("a grammar's ask is answered by what has run without it")
	}
}

// Expected are as many nodes of a depth as the last rounds asked for, rounded up unless they were always as many.
func TestExpectedLevels(t *testing.T) {
	x := &leveller{}
	round := func(nodes ...int) {
		x.begin(true, 0)
		for _, n := range nodes {
			x.asked = append(x.asked, asked{nodes: n})
		}
	}
	for range 3 {
		round(10, 4, 1)
	}
	round(10, 7)
	round() // nothing is asked below the root: no round to go by
	x.begin(true, 0)
	for d, want := range []struct {
		nodes int
		share float64
	}{1: {10, 1}, 2: {8, 1}, 3: {1, 0.75}, 4: {0, 0}} {
		if d == 0 {
			continue
		}
		if n, share := x.expected(d, 1); n != want.nodes || share != want.share {
			t.Errorf("depth %d: %d nodes in a share of %v, want %d in %v", d, n, share, want.nodes, want.share)
		}
	}
	if n, share := x.expected(4, 3); n != 0 || share != 0 {
		t.Errorf("below what was asked: %d nodes in a share of %v", n, share)
	}
	for range recentRounds {
		round(2, 2)
	}
	x.begin(true, 0)
	if n, _ := x.expected(1, 1); n != 2 {
		t.Errorf("%d nodes are expected after rounds of 2", n)
	}
	// Levels that ran ahead in vain are not expected for a while.
	x.keep(0, []int32{1, 2}, []float32{-1, -2})
	x.keep(x.add(0, 1), []int32{3}, []float32{-1})
	x.ranTo = 1
	w := tree.New(0, 8)
	w.Add(0, 1)
	w.Add(0, 2)
	if run, err := x.ask(&infer.Ask{Tree: w, From: 1, Width: 1}); !run || err != nil {
		t.Fatalf("a node that has not run is answered: %v", err)
	}
	x.begin(true, 0)
	if n, share := x.expected(1, 1); n != 2 || share != 1-1.0/recentRounds {
		t.Errorf("after a level that ran in vain %d nodes are expected in a share of %v", n, share)
	}
}

// A level runs ahead if the wait that it saves is worth more than what it costs when nobody asks for it.
func TestLevelsThatPay(t *testing.T) {
	h := &Head{}
	h.Pace(3*time.Microsecond, time.Microsecond)
	for share, want := range map[float64]bool{1: true, 0.25: true, 0.24: false, 0: false} {
		if h.pays(share) != want {
			t.Errorf("a level that is asked for in %v of rounds pays: %v", share, !want)
		}
	}
	h.Pace(0, 0)
	if !h.pays(0.5) || h.pays(0.4) {
		t.Error("before anything is measured, a wait does not count as much as a level")
	}
	for range enough {
		h.ahead.note(1, 100*time.Microsecond)
	}
	for range enough {
		h.ahead.note(5, 480*time.Microsecond) // 95 each: a wait is 5
	}
	if !h.pays(1) || !h.pays(0.96) || h.pays(0.9) {
		t.Error("levels that take nineteen times as long as a wait run ahead in vain")
	}
	for range 16 {
		h.ahead.note(5, 140*time.Microsecond) // 10 each: a wait is 90
	}
	if !h.pays(0.2) || h.pays(0.05) {
		t.Error("levels of a ninth of a wait do not run ahead")
	}
	// What never pays is tried again at times, as long as it is likely.
	for range 16 {
		h.ahead.note(5, 500*time.Microsecond)
	}
	tried := 0
	for range 2 * triedAgain {
		if h.pays(0.9) {
			tried++
		}
	}
	if tried != 2 {
		t.Errorf("a level that does not pay is tried %d times in %d", tried, 2*triedAgain)
	}
}
