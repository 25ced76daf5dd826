package chooser

import (
	"errors"
	"testing"

	"talf/infer"
	"talf/tree"
)

// A hoarder has tables of so many bytes, and may fail.
type hoarder struct {
	listener
	bytes int
	fails bool
	deaf  bool // it cannot be told of tokens
}

func (d *hoarder) Bytes() int { return d.bytes }

func (d *hoarder) Grow(*infer.Proposal, []infer.Row, infer.Chance) ([]int, error) {
	if d.fails {
		panic("no")
	}
	return nil, nil
}

func (d *hoarder) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	if d.deaf {
		return errors.New("no")
	}
	return d.listener.Observe(p, v, s)
}

func (d *hoarder) Start(prompt []int32) error {
	if d.fails && len(prompt) == 0 {
		return errors.New("no")
	}
	return d.listener.Start(prompt)
}

// A chooser whose sequence has ended serves the next one, unless it has become large or a call of it has failed; two
// sequences at once have two.
func TestChoosersServeOneSequenceAfterAnother(t *testing.T) {
	for _, x := range []struct {
		name   string
		prompt int
		bytes  int
		fails  bool
		deaf   bool
		want   int // choosers for two sequences, one after the other
	}{
		{"small", 3, idleBytes, false, false, 1},
		{"a long prompt", idleText + 1, 0, false, false, 2},
		{"large tables", 3, idleBytes + 1, false, false, 2},
		{"one that panicked", 3, 0, true, false, 2},
		{"one that did not start", 0, 0, true, false, 2},
		{"one that could not be told of a rest", 3, 0, false, true, 2},
	} {
		made := 0
		of := New([]Candidate{{Name: "hoarder", New: func() infer.Drafter {
			made++
			return &hoarder{listener: listener{t: t}, bytes: x.bytes, fails: x.fails, deaf: x.deaf}
		}}}, false)
		for range 2 {
			d := of()
			traits := d.Traits()
			func() {
				defer func() { _ = recover() }()
				if err := d.Start(make([]int32, x.prompt)); err != nil {
					return
				}
				p := infer.Proposal{Tree: tree.New(0, 4), Pos: x.prompt - 1, MaxNodes: 4, MaxDepth: 3}
				_, _ = d.Grow(&p, nil, nil)
				traits.Rested(x.prompt-1, []int32{0, 0}, 0)
			}()
			traits.End()
		}
		if made != x.want {
			t.Errorf("%s: %d choosers were made for two sequences, want %d", x.name, made, x.want)
		}
		one, other := of(), of()
		idle := one.(*drafter).shared.idle
		one.Traits() // takes one
		if len(idle) != 2-x.want || len(idle) > 0 && idle[0] != nil {
			t.Errorf("%s: of %d choosers that wait one is still there when it serves a sequence", x.name, len(idle))
		}
		if one.(*drafter).c == other.(*drafter).chooser() {
			t.Errorf("%s: two sequences have one chooser", x.name)
		}
	}
}

// Choosers that wait for a sequence are given back when nobody runs; one that serves a sequence goes on.
func TestChoosersThatWaitAreGivenBack(t *testing.T) {
	made := 0
	of := New([]Candidate{{Name: "hoarder", New: func() infer.Drafter {
		made++
		return &hoarder{listener: listener{t: t}}
	}}}, false)
	begin := func() infer.Traits {
		d := of()
		traits := d.Traits()
		if err := d.Start([]int32{1}); err != nil {
			t.Fatal(err)
		}
		return traits
	}
	one, other := begin(), begin()
	one.End()
	one.Idle.Release()
	if n := len(of().(*drafter).shared.idle); n != 0 || one.Idle != other.Idle {
		t.Errorf("%d choosers wait after a release", n)
	}
	other.End()
	begin().End()
	if begin(); made != 2 {
		t.Errorf("%d choosers were made, want 2: one waits again", made)
	}
}

// That the output repeats what it had shows without asking anybody.
func TestCopiesShow(t *testing.T) {
	x := newText()
	x.start([]int32{1, 2, 3, 4, 5, 6, 7})
	for i, want := range []int{0, 0, 0, 1, 2, 0, 0} { // after 1 2 3 come 4 and 5
		x.follow([]int32{[]int32{1, 2, 3, 4, 5, 9, 1}[i]})
		if x.run != want {
			t.Errorf("after %d tokens %d are copied, want %d", i+1, x.run, want)
		}
	}
	x.start([]int32{1})
	if x.run != 0 || x.Len() != 1 {
		t.Error("a sequence begins with what another had")
	}
}

// Naps grow while nothing is gained, and end where trees are to be looked at.
func TestNapsGrowUntilThereIsSomethingToDo(t *testing.T) {
	model := newArm(&record{asks: true, tried: 99}, "model", new(listener))
	a := tenth(model)
	a.idle = settle
	for i, want := range []int{firstNap, 2*firstNap + 1, longestNap, longestNap} {
		if got := a.naps(); got != want {
			t.Errorf("nap %d lasts %d rounds, want %d", i, got, want)
		}
	}
	a.text, a.unused = newText(), settle
	a.shared.watch.Have, a.shared.watch.Of = 0.02e9, 1e9
	a.rounds = 5
	if got, want := a.naps(), a.every()-6; got != want {
		t.Errorf("a nap lasts %d rounds where trees are to be looked at after %d", got, want)
	}
	a.idle = settle - 1
	if got := a.naps(); got != 0 {
		t.Errorf("a nap of %d rounds soon after a draft", got)
	}
	if a.idle = settle; a.naps() > firstNap {
		t.Error("naps are long soon after a draft")
	}
}

// Of the sequence that a chooser served before, a later one knows what all choosers share, and nothing else.
func TestAChooserBeginsASequenceAfresh(t *testing.T) {
	of := New([]Candidate{{Name: "hoarder", New: func() infer.Drafter { return &hoarder{listener: listener{t: t}} }}}, false)
	c := of().(*drafter).chooser()
	if err := c.Start([]int32{1}); err != nil {
		t.Fatal(err)
	}
	x, fresh := c.all[0], *c.all[0]
	x.here[0][0].Add(1, 1)
	x.mine.add(2, 1, 1, 1)
	x.net, x.used, x.earned, x.wanted, x.fresh, x.reach, x.laterNode = 1, true, 3, true, true, 7, 2
	c.gained, c.tokens, c.rounds, c.nap, c.drafted, c.earned, c.idle = 5, 9, 9, 3, true, 3, 100
	c.miss(4, 1, 2)
	if err := c.Start([]int32{1}); err != nil {
		t.Fatal(err)
	}
	if x.here != fresh.here || x.mine != fresh.mine || x.net != 0 || x.used || x.earned != 0 || x.wanted || x.fresh || x.reach != 0 || x.laterNode != -1 {
		t.Errorf("a candidate begins with %+v", x)
	}
	if c.gained != 0 || c.tokens != 0 || c.rounds != 0 || c.nap != 0 || c.drafted || c.earned != 0 || c.idle != 0 || len(c.missed) != 0 {
		t.Errorf("a request begins with %+v", c.request)
	}
}
