package budget_test

import (
	"math"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/budget"
	"talf/infer/draft/cost"
	"talf/infer/experts"
	"talf/tree"
)

// Where drafts do not pay, draft models read nothing ahead and are asked about few sequences, those
// for which they have to read least, so that finding out whether they pay again costs about a
// hundredth of the time. When they do, all are asked, but not all that was left unread is read in one
// pass.
func TestWhatIsUnreadIsReadOnlyIfItPays(t *testing.T) {
	const (
		n                       = 64
		pass, node, token       = 1e-3, 1e-5, 3e-6
		target, row             = 5e-3, 1e-4
		prompt                  = 200
		quietRounds, goodRounds = 1500, 1500
	)
	var m cost.Model
	for rows := 1; rows <= 1024; rows *= 2 {
		for range 10 {
			m.AddTarget(rows, experts.Read{}, target+row*float64(rows))
		}
	}
	for x := 1.0; x <= 16; x++ {
		m.AddDraft(true, int(x), pass+node*x)
	}
	m.AddReading(100, 100*token)
	u := budget.New(&m, 0)
	backlog := make([]int, n)
	bids := make([]*infer.Bid, n)
	for i := range bids {
		bids[i], backlog[i] = &infer.Bid{Method: "m"}, prompt+i
	}
	var spent, all float64
	asked, most := 0, 0
	round := func(good bool) {
		for _, b := range bids {
			b.Keep, b.Tree, b.LogV, b.Rows = b.Keep[:0], nil, nil, 1
		}
		u.Begin(bids)
		var ask []*infer.Bid
		for i, b := range bids {
			if backlog[i]++; backlog[i] > 2*prompt {
				backlog[i] = prompt // another sequence
			}
			if b.Most != 1 {
				b.Level, b.Nodes, b.Reach, b.Backlog = 0, 1, 1, backlog[i]
				ask = append(ask, b)
			}
		}
		if len(ask) > 0 {
			u.Ask(ask)
		}
		var went []*infer.Bid
		read, unread, dearest, cheapest := 0, 0, 0, math.MaxInt
		for i, b := range bids {
			if b.Most == 1 || !b.Go {
				cheapest = min(cheapest, backlog[i])
				continue
			}
			went = append(went, b)
			dearest, read, unread = max(dearest, backlog[i]), read+backlog[i], unread+max(0, backlog[i]-16)
			b.Tree, b.LogV, b.Live, b.Rows = tree.New(0, 2), []float64{0, math.Log(0.9)}, 2, 2
			b.Tree.Add(0, 1)
			backlog[i] = 0
		}
		if len(went) > 0 {
			asked += len(went)
			if most = max(most, unread); !good && dearest > cheapest {
				t.Errorf("a sequence with %d unread tokens is asked, one with %d is not", dearest, cheapest)
			}
			took := pass + node*float64(len(went)) + token*float64(read)
			spent += took
			u.Asked(went, read, time.Duration(took*1e9))
		}
		u.Cut(bids)
		rows := 0
		for _, b := range bids {
			tokens := []int32{5}
			if b.Tree != nil && good {
				tokens = []int32{1, 5}
			}
			rows++
			if b.Tree != nil && b.Keep[1] {
				rows++
			}
			u.Learn(b, tokens)
		}
		all += target + row*float64(rows)
		u.End(&infer.Pass{Trees: n, Rows: rows})
	}
	for range quietRounds {
		round(false)
	}
	if share := spent / all; !u.Postpones() || asked == 0 || share > 0.013 {
		t.Errorf("drafts that never pay: postponed %v, %d asks take %.2f%% of the time", u.Postpones(), asked, 100*share)
	}
	asked = 0
	for i := range backlog {
		backlog[i] = prompt
	}
	since := goodRounds
	for r := range goodRounds {
		if round(true); since == goodRounds && !u.Postpones() {
			since = r
		}
	}
	t.Logf("it takes %d rounds to find out that drafts pay", since)
	if u.Postpones() || asked < n*goodRounds/4 {
		t.Errorf("drafts that are always right: postponed %v, %d asks in %d rounds of %d", u.Postpones(), asked, goodRounds, n)
	}
	if most > 512+2*prompt {
		t.Errorf("%d unread tokens are read in one pass", most)
	}
}
