package verify_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/verify"
	"talf/infer/verify/verifytest"
	"talf/internal/golden"
	"talf/model"
	"talf/tree"
)

// Every verifier is lossless with every way to choose children that its line of the table lists.
func TestLossless(t *testing.T) {
	for _, m := range verify.Methods() {
		t.Run(m.Name, func(t *testing.T) {
			var fit []verifytest.Scheme
			for _, s := range verifytest.Schemes() {
				if m.Fits(s.Draw, s.Chain) {
					fit = append(fit, s)
				}
			}
			verifytest.Lossless(t, m.New, m.Greedy, fit...)
		})
	}
}

// A bug is a verifier that breaks one rule of the design; each was a real bug
// somewhere. The suite must catch all of them.
type bug struct {
	name   string
	verify func(p infer.Proposal, s infer.Scores, c infer.Chance) infer.Verdict
}

func (bug) Fits(infer.Choice, bool) error { return nil }

func (b bug) Verify(p infer.Proposal, s infer.Scores, c infer.Chance) (infer.Verdict, error) {
	return b.verify(p, s, c), nil
}

func TestPlantedBugsAreCaught(t *testing.T) {
	// walk is verify.Target with the draws left to the caller.
	walk := func(p infer.Proposal, draw func(n int) int32, last func(n int, drawn int32) int32) infer.Verdict {
		path := []int{0}
		for n := 0; ; {
			x := draw(n)
			k := p.Tree.Child(n, x)
			if k < 0 {
				return infer.Verdict{Path: path, Next: last(n, x)}
			}
			path, n = append(path, k), k
		}
	}
	same := func(_ int, x int32) int32 { return x }
	behind := func(p infer.Proposal, n int) int { return p.Pos + p.Tree.Depth(n) + 1 }
	bugs := []bug{
		{"a second draw for the residual token", func(p infer.Proposal, s infer.Scores, c infer.Chance) infer.Verdict {
			return walk(p, func(n int) int32 { return c.Draw(behind(p, n), s.Dist(n)) }, func(n int, _ int32) int32 { return c.Draw(behind(p, n), s.Dist(n)) })
		}},
		{"the parent's row for the bonus token", func(p infer.Proposal, s infer.Scores, c infer.Chance) infer.Verdict {
			return walk(p, func(n int) int32 {
				pos := behind(p, n)
				if p.Tree.FirstChild(n) < 0 && n > 0 {
					n = p.Tree.Parent(n)
				}
				return c.Draw(pos, s.Dist(n))
			}, same)
		}},
		{"the bonus token without the temperature", func(p infer.Proposal, s infer.Scores, c infer.Chance) infer.Verdict {
			return walk(p, func(n int) int32 {
				d := slices.Clone(s.Dist(n))
				if p.Tree.FirstChild(n) < 0 {
					var sum float64
					for i := range d {
						d[i] *= d[i]
						sum += d[i]
					}
					for i := range d {
						d[i] /= sum
					}
				}
				return c.Draw(behind(p, n), d)
			}, same)
		}},
		{"accepting the likelier child", func(p infer.Proposal, s infer.Scores, c infer.Chance) infer.Verdict {
			return walk(p, func(n int) int32 {
				if k := p.Tree.FirstChild(n); k >= 0 && s.Dist(n)[p.Tree.Token(k)] > 0.5 {
					return p.Tree.Token(k)
				}
				return c.Draw(behind(p, n), s.Dist(n))
			}, same)
		}},
		{"a rejected child's mass kept in the residual", func(p infer.Proposal, s infer.Scores, c infer.Chance) infer.Verdict {
			path := []int{0}
			for n := 0; ; {
				next := -1
				for k := p.Tree.FirstChild(n); k >= 0 && next < 0; k = p.Tree.NextSibling(k) {
					if c.Accept(s.Dist(n)[p.Tree.Token(k)]) {
						next = k
					}
				}
				if next < 0 {
					return infer.Verdict{Path: path, Next: c.Draw(behind(p, n), s.Dist(n))}
				}
				path, n = append(path, next), next
			}
		}},
		{"the argmax instead of a draw", func(p infer.Proposal, s infer.Scores, _ infer.Chance) infer.Verdict {
			return walk(p, s.Argmax, same)
		}},
	}
	for _, b := range bugs {
		err := verifytest.Check(func() infer.Verifier { return b }, verifytest.Schemes()[0], false, 300)
		if err == nil {
			t.Errorf("%s: not caught", b.name)
		} else if !strings.Contains(err.Error(), "the target gives") {
			t.Errorf("%s: caught by %v, want a wrong probability", b.name, err)
		}
	}
	here := bug{"a draw for the position of the last token", func(p infer.Proposal, s infer.Scores, c infer.Chance) infer.Verdict {
		return walk(p, func(n int) int32 { return c.Draw(behind(p, n)-1, s.Dist(n)) }, same)
	}}
	if err := verifytest.Check(func() infer.Verifier { return here }, verifytest.Schemes()[0], false, 300); err == nil || !strings.Contains(err.Error(), "draws for positions [10]") {
		t.Errorf("%s: caught by %v, want an error that says so", here.name, err)
	}
	late := bug{"the greedy walk takes the first child", func(p infer.Proposal, s infer.Scores, _ infer.Chance) infer.Verdict {
		path := []int{0}
		if k := p.Tree.FirstChild(0); k >= 0 {
			path = append(path, k)
		}
		return infer.Verdict{Path: path, Next: s.Argmax(path[len(path)-1])}
	}}
	if verifytest.Check(func() infer.Verifier { return late }, verifytest.Schemes()[0], true, 300) == nil {
		t.Errorf("%s: not caught", late.name)
	}
}

func rat(t *testing.T, s string) float64 {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		t.Fatalf("%q is no fraction", s)
	}
	f, _ := r.Float64()
	return f
}

func rats(t *testing.T, row []string) (d infer.Dist) {
	for _, s := range row {
		d = append(d, rat(t, s))
	}
	return d
}

func renumber(path []int, ours map[int]int) (out []int) {
	for _, n := range path {
		out = append(out, ours[n])
	}
	return out
}

// The reference lists every outcome for fixed trees as exact fractions.
func TestOutcomesEqualTheReferenceFractions(t *testing.T) {
	type outcome struct {
		Path  []int
		Extra int32
		Prob  string
	}
	var file struct {
		Cases []struct {
			Name  string
			Vocab int
			Nodes []struct {
				Parent   int
				Token    int32
				Children []int
				P, Q     []string
			}
			Verifiers map[string]struct {
				Outcomes []outcome
				Emitted  string `json:"expected_emitted"`
			}
			Greedy outcome
		}
	}
	if err := json.Unmarshal(golden.Read(t, "reference/verify/trees.json"), &file); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, c := range file.Cases {
		tr := tree.New(-1, tree.MaxNodes)
		ours, theirs := map[int]int{0: 0}, []int{0} // the reference's nodes, and its node for each of ours
		for n := 0; n < len(theirs); n++ {
			for _, k := range c.Nodes[theirs[n]].Children {
				ours[k] = tr.Add(n, c.Nodes[k].Token)
				theirs = append(theirs, k)
			}
		}
		var rows, drafts []infer.Dist
		for _, i := range theirs {
			rows, drafts = append(rows, rats(t, c.Nodes[i].P)), append(drafts, rats(t, c.Nodes[i].Q))
		}
		scores := nodeScores{tr, rows}
		for _, m := range verify.Methods() {
			want, emitted := map[string]float64{}, 0.0
			if m.Greedy {
				want[key(renumber(c.Greedy.Path, ours), c.Greedy.Extra)] = 1
				emitted = float64(len(c.Greedy.Path) + 1)
			} else {
				ref, ok := c.Verifiers[m.Name]
				if !ok {
					continue
				}
				for _, o := range ref.Outcomes {
					want[key(renumber(o.Path, ours), o.Extra)] += rat(t, o.Prob)
				}
				emitted = rat(t, ref.Emitted)
			}
			got, mean := map[string]float64{}, 0.0
			v := m.New()
			verifytest.Enumerate(func(ch infer.Chance) func(float64) {
				p := infer.Proposal{Tree: tr, MaxNodes: tr.Len(), MaxDepth: 9, Q: func(n int) infer.Dist { return drafts[n] }, Replace: m.Name == "rrs"}
				verdict, err := v.Verify(p, scores, ch)
				if err != nil {
					t.Fatal(err)
				}
				if err := verifytest.CheckPath(tr, verdict); err != nil {
					t.Fatal(err)
				}
				k, n := key(verdict.Path[1:], verdict.Next), len(verdict.Path)
				return func(p float64) { got[k] += p; mean += p * float64(n) }
			})
			for k := range want {
				if math.Abs(got[k]-want[k]) > verifytest.Tolerance {
					t.Errorf("%s, %s: outcome %s has probability %v, want %v", c.Name, m.Name, k, got[k], want[k])
				}
			}
			for k, p := range got {
				if _, ok := want[k]; !ok && p > verifytest.Tolerance {
					t.Errorf("%s, %s: outcome %s cannot happen", c.Name, m.Name, k)
				}
			}
			if math.Abs(mean-emitted) > verifytest.Tolerance {
				t.Errorf("%s, %s: %v tokens expected, want %v", c.Name, m.Name, mean, emitted)
			}
			seen[m.Name]++
		}
	}
	for _, m := range verify.Methods() {
		t.Logf("%s: %d trees", m.Name, seen[m.Name])
		if seen[m.Name] == 0 {
			t.Errorf("%s is in no case of the reference", m.Name)
		}
	}
}

func key(path []int, extra int32) string { return fmt.Sprint(slices.Clone(path), extra) }

// nodeScores has a row per node.
type nodeScores struct {
	tree *tree.Tree
	rows []infer.Dist
}

func (s nodeScores) Dist(n int) infer.Dist { return s.rows[n] }

func (s nodeScores) Argmax(n int) int32 {
	best := 0
	for i, p := range s.rows[n] {
		if p > s.rows[n][best] {
			best = i
		}
	}
	return int32(best)
}

func (nodeScores) TopK(int, int) []infer.Candidate { panic("not for verifiers") }
func (nodeScores) Rank([]int32, int, int) []int32  { panic("not for verifiers") }
func (nodeScores) Hidden(int) model.Feature        { panic("not for verifiers") }

func TestVerifiersAreChosenByTemperature(t *testing.T) {
	for _, c := range []struct {
		name string
		temp float64
		want string
	}{{"", 0, "*verify.Greedy"}, {"", 0.7, "*verify.Target"}, {"greedy", 0, "*verify.Greedy"}, {"target", 1, "*verify.Target"}} {
		v, err := verify.New(c.name, c.temp)
		if err != nil || fmt.Sprintf("%T", v) != c.want {
			t.Errorf("%q at %v: %T, %v; want %s", c.name, c.temp, v, err, c.want)
		}
	}
	for _, c := range []struct {
		name string
		temp float64
		want string
	}{{"greedy", 1, "not lossless at temperature 1"}, {"target", 0, "not lossless"}, {"best", 1, "want one of greedy, target, rrs"}} {
		if _, err := verify.New(c.name, c.temp); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q at %v: error %v, want one that says %q", c.name, c.temp, err, c.want)
		}
	}
}
