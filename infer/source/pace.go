package source

import (
	"slices"
	"time"
)

// A pace is what passes of levels take, to decide which levels run ahead. A level that runs ahead and is asked
// for saves a wait, with the copies and the launch around it; one that nobody asks for costs what a level takes.
type pace struct {
	wait, level time.Duration // as set; 0: as measured
	one         timings       // passes of one level
	more        timings       // levels that ran ahead, each
	idle        int           // decisions against levels that only their time speaks against
	ran, used   int           // nodes that ran ahead, and those of them that were asked for
}

// timings are the last times that something took.
type timings struct {
	took [16]time.Duration
	n    int
}

func (t *timings) note(d time.Duration) {
	t.took[t.n%len(t.took)] = d
	t.n++
}

// enough is how many times are looked at before they count: the first passes allocate memory and make graphs.
const enough = 6

// median returns the middle one, 0 while they are too few.
func (t *timings) median() time.Duration {
	if t.n < enough {
		return 0
	}
	x := t.took
	s := x[:min(t.n, len(x))]
	slices.Sort(s)
	return s[len(s)/2]
}

// note notes what a pass of levels took.
func (p *pace) note(levels int, took time.Duration) {
	if levels == 1 {
		p.one.note(took)
	} else if one := p.one.median(); one > 0 {
		p.more.note(max(0, took-one) / time.Duration(levels-1))
	}
}

// pays reports whether a level runs ahead that is asked for in a share of rounds. Until it is known what passes
// take, a wait counts as much as a level.
func (h *Head) pays(share float64) bool {
	p := &h.ahead
	wait, level := p.wait, p.level
	if wait+level == 0 {
		one, more := p.one.median(), p.more.median()
		if wait, level = max(0, one-more), more; one == 0 || more == 0 {
			wait, level = 1, 1
		}
	}
	if share*float64(wait) >= (1-share)*float64(level) {
		return true
	}
	if 2*share < 1 {
		return false
	}
	p.idle++
	return p.idle%triedAgain == 0 && p.wait+p.level == 0
}

// Pace sets what a wait for the device and a level of a draft tree take, which are measured otherwise. They decide
// which levels run before they are asked for.
func (h *Head) Pace(wait, level time.Duration) { h.ahead.wait, h.ahead.level = wait, level }

// RanAhead returns how many nodes of draft trees have run before they were asked for, and how many of them were then asked for.
func (h *Head) RanAhead() (ran, asked int) { return h.ahead.ran, h.ahead.used }
