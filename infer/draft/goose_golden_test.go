package draft_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	ngrams "talf/infer/lookup"
	"talf/infer/verify"
	"talf/internal/golden"
	"talf/tree"
)

// A gooseTrace is the recording of a transcription of GOOSE's paper, for which no code was published:
// methods/goose.
type gooseTrace struct {
	Matches []struct {
		Context, Chain []int32
		Pick           string
		Consensus      bool
		Matches        map[string]int // by length: the position of what followed
	}
	Trees []struct {
		Before, Anchor  int32
		Chain           []int32
		B, D, K         int
		Rho, Acceptance float64
		One             map[string][][2]float64
		Two             [][3]json.RawMessage
		Trees           map[string][][3]json.RawMessage
	}
	Loops []struct {
		Parameters struct {
			Extend, Pick  string
			EMA           float64 `json:"ema"`
			Most, B, D, K int
			Theta         int `json:"theta"`
			Rho           float64
		}
		Prefill [][][2]float64
		Text    []int32
		Cycles  []struct {
			Length    int
			Kind      string
			Consensus bool
			Nodes     [][3]json.RawMessage
			Path      []int
			Next      int32
			Rows      [][][2]float64
			Before    float64
			After     float64
		}
	}
}

func readGoose(t *testing.T) (all gooseTrace) {
	t.Helper()
	if err := json.Unmarshal(golden.Read(t, "methods/goose/traces.json"), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// nodes lists tokens, parents and kinds of recorded nodes.
func gooseNodes(nodes [][3]json.RawMessage) string {
	var b strings.Builder
	for _, n := range nodes {
		fmt.Fprintf(&b, "%s<%s%s ", n[0], n[1], strings.Trim(string(n[2]), `"`))
	}
	return b.String()
}

// treeNodes lists those of a tree; spine is by node.
func treeNodes(t *tree.Tree, spine func(n int) bool) string {
	var b strings.Builder
	for n := range t.Len() {
		kind := "T"
		switch {
		case n == 0:
			kind = "R"
		case spine(n):
			kind = "P"
		}
		fmt.Fprintf(&b, "%d<%d%s ", t.Token(n), t.Parent(n), kind)
	}
	return b.String()
}

func successors(row [][2]float64) (next []ngrams.Successor) {
	for _, x := range row {
		next = append(next, ngrams.Successor{Token: int32(x[0]), Score: float32(x[1])})
	}
	return next
}

// The copied text and the consensus of n-grams of 3 to 5 tokens, in both readings of which earlier
// occurrence counts.
func TestGoosesMatches(t *testing.T) {
	agree := 0
	for _, x := range readGoose(t).Matches {
		c := ngrams.NewContext(3, 5)
		c.Append(x.Context...)
		find, match := c.Earlier, c.Match
		if x.Pick == "first" {
			find, match = c.First, c.MatchFirst
		}
		for n := 3; n <= 5 && n <= c.Len(); n++ {
			want, ok := x.Matches[fmt.Sprint(n)]
			if got := find(n, c.Len()); got != want && ok || !ok && got >= 0 {
				t.Errorf("%v, %s: %d tokens occurred before %d, want %d", x.Context, x.Pick, n, got, want)
			}
		}
		m, ok := match()
		var chain []int32
		if ok {
			chain = c.Continue(nil, m.Next, min(20, c.Len()-m.Next))
		}
		if !slices.Equal(chain, x.Chain) || m.Agree != x.Consensus {
			t.Errorf("%v, %s: copies %v, consensus %v, want %v, %v", x.Context, x.Pick, chain, m.Agree, x.Chain, x.Consensus)
			continue
		}
		agree++
	}
	if agree != 80 {
		t.Errorf("%d matches agree, want 80", agree)
	}
}

// Algorithm 1 in two readings of how many children a node of the extension gets.
func TestGoosesTrees(t *testing.T) {
	agree := 0
	for i, x := range readGoose(t).Trees {
		for reading, extend := range map[string]string{"one": "one", "share": "breadth"} {
			spec := fmt.Sprintf("goose:extend=%s,N=%d,D=%d,K=%d,rho=%v", extend, x.B, x.D, x.K, x.Rho)
			got, spine, err := draft.GooseTree(spec, x.B, []int32{x.Before, x.Anchor}, x.Chain, x.Acceptance, x.K, func(t *ngrams.Transitions) {
				// Rows of two tokens are learned first, because each also replaces that of its last
				// token, which may have none.
				for _, raw := range x.Two {
					var before, token int32
					var row [][2]float64
					for k, dst := range []interface{}{&before, &token, &row} {
						if err := json.Unmarshal(raw[k], dst); err != nil {
							panic(err)
						}
					}
					t.Learn(before, token, successors(row))
					t.Learn(-1, token, nil)
				}
				for token, row := range x.One {
					var at int32
					if _, err := fmt.Sscan(token, &at); err != nil {
						panic(err)
					}
					t.Learn(-1, at, successors(row))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if a, b := treeNodes(got, func(n int) bool { return spine[n] }), gooseNodes(x.Trees[reading]); a != b {
				t.Errorf("tree %d, %s:\n%s, want\n%s", i, reading, a, b)
				continue
			}
			agree++
		}
	}
	if agree != 48 {
		t.Errorf("%d trees agree, want 48", agree)
	}
}

// table is scores of which the recording has the best tokens.
type gooseRows struct {
	infer.Scores
	rows [][][2]float64
}

func (r gooseRows) Argmax(n int) int32 { return int32(r.rows[n][0][0]) }

func (r gooseRows) TopK(n, k int) (out []infer.Candidate) {
	for _, x := range r.rows[n][:min(k, len(r.rows[n]))] {
		out = append(out, infer.Candidate{Token: int32(x[0]), LogProb: float32(math.Log(x[1]))})
	}
	return out
}

// Algorithm 2 to the end of three texts: what is drafted in every cycle, what is accepted, and the
// running acceptance.
func TestGoosesLoops(t *testing.T) {
	cycles := 0
	for i, x := range readGoose(t).Loops {
		q := x.Parameters
		extend := map[string]string{"one": "one", "share": "breadth"}[q.Extend]
		d := open(t, fmt.Sprintf("goose:wrap=off,trust=copy,extend=%s,pick=%s,N=%d,D=%d,K=%d,rho=%v,ema=%v,bypass=%d,spine=%d", extend, q.Pick, q.B, q.D, q.K, q.Rho, q.EMA, q.Theta, q.Most), draft.Env{}).New()
		// The recording's first cycle begins after the first token of the output.
		text := slices.Clone(x.Text[:x.Cycles[0].Length])
		if err := d.Start(text); err != nil {
			t.Fatal(err)
		}
		chunk := tree.New(text[0], len(text))
		path := []int{0}
		for _, token := range text[1 : len(text)-1] {
			path = append(path, chunk.Add(len(path)-1, token))
		}
		if err := d.Observe(infer.Proposal{Tree: chunk}, infer.Verdict{Path: path, Next: text[len(text)-1]}, gooseRows{rows: x.Prefill}); err != nil {
			t.Fatal(err)
		}
		var greedy verify.Greedy
		for k, c := range x.Cycles {
			if got := draft.RunningOf(d); math.Abs(got-c.Before) > 1e-6 {
				t.Fatalf("loop %d, cycle %d: the running acceptance is %v, want %v", i, k, got, c.Before)
			}
			p := infer.Proposal{Tree: tree.New(text[len(text)-1], 100), Pos: len(text) - 1, MaxNodes: 100, MaxDepth: 99}
			if _, err := d.Grow(&p, nil, nil); err != nil {
				t.Fatal(err)
			}
			origin := d.Traits().Origins.Of
			if a, b := treeNodes(p.Tree, func(n int) bool { return origin(n) == 0 }), gooseNodes(c.Nodes); a != b {
				t.Fatalf("loop %d, cycle %d, %s:\n%s, want\n%s", i, k, c.Kind, a, b)
			}
			rows := gooseRows{rows: c.Rows}
			v, err := greedy.Verify(p, rows, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(v.Path[1:], c.Path) || v.Next != c.Next {
				t.Fatalf("loop %d, cycle %d: accepts %v and then %d, want %v and %d", i, k, v.Path[1:], v.Next, c.Path, c.Next)
			}
			for _, n := range v.Path[1:] {
				text = append(text, p.Tree.Token(n))
			}
			text = append(text, v.Next)
			if err := d.Observe(p, v, rows); err != nil {
				t.Fatal(err)
			}
			if got := draft.RunningOf(d); math.Abs(got-c.After) > 1e-6 {
				t.Fatalf("loop %d, cycle %d: the running acceptance becomes %v, want %v", i, k, got, c.After)
			}
			cycles++
		}
		if !slices.Equal(text[:len(x.Text)], x.Text) {
			t.Errorf("loop %d: the text is %v, want %v", i, text, x.Text)
		}
	}
	if cycles != 142 {
		t.Errorf("%d cycles agree, want 142", cycles)
	}
}
