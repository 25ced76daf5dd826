package draft_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/tree"
)

func TestDynaTreesConform(t *testing.T) {
	conform(t,
		"fixed:D=2,B=5,tau=0,N=17", "fixed:D=3,B=1,tau=0.3", "dynatree:N=9", "dynatree:a=0.1,W=5,etaD=3,etah=0.5", "dynatree:a=1,etaD=0.5,depth=off",
		"dynatree:rows", "dynatree:rows,N=9", "dynatree:set=rows,a=0.3,W=2,etaD=3,etah=0.5",
		"dynatree:rows,breadth=off", "dynatree:rows,depth=off", "dynatree:rows,prune=off,N=40", "dynatree:rows,history=off", "dynatree:rows,D0=1,Dmax=2,depth=off,etaD=1",
		"dynatree:breadth=off,depth=off,prune=on,history=off,N=60",
	)
}

func TestBadDynaTreesAreRefused(t *testing.T) {
	for spec, want := range map[string]string{
		"fixed:N=0":                  `"fixed:N=0": N is 0, want 1..1024`,
		"fixed:D=65":                 "D is 65, want 1..64",
		"fixed:B=0":                  "B is 0, want 1..256",
		"fixed:tau=1":                "tau is 1, want 0 <= tau < 1",
		"dynatree:tau=NaN":           "tau is NaN, want 0 <= tau < 1",
		"dynatree:stop=-1":           "stop is -1, want 0 <= stop < 1",
		"dynatree:deep=1":            "deep is 1, want 0 <= deep < 1",
		"dynatree:low=0.9":           "0 <= low < high",
		"dynatree:D0=9":              "base depth is 9, want 1 to 8",
		"dynatree:Bmid=4":            "breadths are 1, 4 and 3",
		"dynatree:stop=0.6":          "want stop <= deep",
		"dynatree:rows,stop=0.3":     "want stop <= deep",
		"dynatree:root=257":          "root is 257, want 0..256",
		"dynatree:set=columns":       `set is "columns", want paper or rows`,
		"dynatree:W=0":               "W is 0, want 1..1024",
		"dynatree:a=65":              "a is 65, want 0..64",
		"dynatree:etaD=-1":           "etaD is -1, want 0..100",
		"dynatree:etah=Inf":          "etah is Inf, want 0..100", // times nothing is no number
		"dynatree:history=sometimes": "want answers, rounds or off",
	} {
		if _, _, err := draft.New(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", spec, err, want)
		}
	}
}

// grown grows d's tree below a root from a draft that always gives token 1 the probability
// exp(logp).
func grown(t *testing.T, d infer.Drafter, pos int, logp float32) infer.Proposal {
	t.Helper()
	p := infer.Proposal{Tree: tree.New(0, 64), Pos: pos, MaxNodes: 64, MaxDepth: 50}
	var rows []infer.Row
	for {
		ask, err := d.Grow(&p, rows, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(ask) == 0 {
			return p
		}
		rows = rows[:0]
		for range ask {
			rows = append(rows, infer.Row{Tokens: []int32{1, 2, 3}, LogProb: []float32{logp, -5, -6}})
		}
	}
}

// If everything is accepted, trees become deeper; if nothing is, they become shallower, between
// 1 and Dmax-1. The next sequence starts with D0 again, and the chunks of a prompt and other
// drafters' trees teach nothing.
func TestHistoryMovesTheDepth(t *testing.T) {
	d, _, err := draft.New("dynatree:history=rounds,D0=4,Dmax=9,etaD=1,etah=0,W=2,a=0.5,tau=0.05,stop=0.05,deep=0.2,prune=on")
	if err != nil {
		t.Fatal(err)
	}
	deepest := func(p infer.Proposal) int { return p.Tree.Depth(p.Tree.Len() - 1) }
	rounds := func(accept bool) (depths []int) {
		for i := range 12 {
			p := grown(t, d, 3+i, -0.3) // paths of two tokens have 0.55, of four 0.3, of six 0.16
			depths = append(depths, deepest(p))
			v := infer.Verdict{Path: []int{0}, Next: 9}
			if accept {
				v.Path = p.Tree.AppendPath(nil, p.Tree.Len()-1)
			}
			other := p
			other.Tree = tree.New(0, 9)
			other.Tree.Add(0, 5)
			for _, o := range []infer.Proposal{other, p} {
				if err := d.Observe(o, v, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		return depths
	}
	for range 2 {
		if err := d.Start([]int32{1}); err != nil {
			t.Fatal(err)
		}
		// Paths of more than 0.2 continue beyond D0: to depth 6 at once, whatever D0 is.
		up := rounds(true)
		down := rounds(false)
		if up[0] != 6 || slices.Max(up) != 8 || down[len(down)-1] != 6 {
			t.Errorf("depths %v while all was accepted, then %v while nothing was", up, down)
		}
	}
}

func TestHistoryOffChangesNothing(t *testing.T) {
	for _, spec := range []string{"dynatree:a=1.2,history=off", "dynatree:rows,etaD=0,etah=0", "dynatree:etaD=0,etah=0"} {
		d, _, err := draft.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start([]int32{1}); err != nil {
			t.Fatal(err)
		}
		var want []int32
		for i := range 20 {
			p := grown(t, d, i, -0.2)
			got := slices.Clone(p.Tree.Tokens())
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s: round %d drafts %v, the first one %v", spec, i, got, want)
			}
			if err := d.Observe(p, infer.Verdict{Path: []int{0}, Next: 9}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A set of parameters is its list of values, and what is given beside it counts.
func TestTheSetOfDynaTree(t *testing.T) {
	config := func(spec string) string {
		d, _, err := draft.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start([]int32{1}); err != nil {
			t.Fatal(err)
		}
		p := grown(t, d, 0, -0.3)
		return fmt.Sprint(p.Tree.Tokens(), p.LogV, draft.StateOf(d))
	}
	list := "N=256,root=0,tau=0.1,deep=0.12,W=8,a=0.6,etaD=0.5,prune=on,history=rounds"
	for a, b := range map[string]string{
		"dynatree:rows":               "dynatree:" + list,
		"dynatree:rows,N=4,root=1":    "dynatree:" + strings.Replace(strings.Replace(list, "root=0", "root=1", 1), "N=256", "N=4", 1),
		"dynatree:rows,history=off":   "dynatree:" + strings.Replace(list, "rounds", "off", 1),
		"dynatree:paper":              "dynatree",
		"dynatree:set=rows,prune=off": "dynatree:" + strings.Replace(list, "prune=on", "prune=off", 1),
	} {
		if x, y := config(a), config(b); x != y {
			t.Errorf("%s drafts %s, %s %s", a, x, b, y)
		}
	}
	for spec, learns := range map[string]bool{"dynatree": true, "dynatree:rows": false, "dynatree:history=off": false} {
		if got := open(t, spec, draft.Env{}).Learns; got != learns {
			t.Errorf("%s: learns from one request to the next: %v, want %v", spec, got, learns)
		}
	}
	if x, y := config("dynatree"), config("dynatree:rows"); x == y {
		t.Errorf("both sets draft %s", x)
	}
}
