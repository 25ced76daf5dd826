package papers_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/papers"
	"talf/infer/draft/shape"
	"talf/infer/verify"
	"talf/internal/golden"
	"talf/tree"
)

// A trace is a recording of the authors' code: methods/recycling.
type trace struct {
	K    int
	Runs []struct {
		Name, Template string
		Vocab          int
		Matrix         [][]int32
		Prompts        []struct {
			Prompt, Text  []int32
			AcceptLengths []int `json:"accept_lengths"`
			Steps         []step
		}
	}
}

type step struct {
	Prefix    int
	Tree      []int32
	Top       [][]int32
	Committed []int32
	Changed   map[string][]int32
}

// published is the tree of the recordings.
type published struct{ Parents, Ranks []int }

func load(t *testing.T) (tr trace, p published) {
	t.Helper()
	for name, v := range map[string]interface{}{"trace": &tr, "tree": &p} {
		if err := json.Unmarshal(golden.Read(t, "methods/recycling/"+name+".json"), v); err != nil {
			t.Fatal(err)
		}
	}
	return tr, p
}

// The tree that talf has under the name is the published one.
func TestThePublishedTree(t *testing.T) {
	_, want := load(t)
	s, err := shape.Find("token-recycling")
	if err != nil {
		t.Fatal(err)
	}
	if len(s) != 81 || len(want.Parents) != 80 {
		t.Fatalf("%d nodes, root counted, want 81", len(s))
	}
	for i, x := range s {
		for k := range x.Kids {
			if n := x.First + k; want.Parents[n-1] != i || want.Ranks[n-1] != s[n].Rank {
				t.Errorf("slot %d is child %d of %d, want child %d of %d", n, s[n].Rank, i, want.Ranks[n-1], want.Parents[n-1])
			}
		}
	}
}

// rows are the recorded rows of a tree.
type rows struct {
	infer.Scores
	top [][]int32 // by node
}

func (r rows) Argmax(n int) int32                     { return r.top[n][0] }
func (r rows) Rank(dst []int32, n, k int) []int32     { return append(dst, r.top[n][:k]...) }
func (r rows) TopK(int, int) (none []infer.Candidate) { panic("probabilities are not needed") }

// paths are the paths of tokens from the root to each node of a recorded step.
func (s *step) paths(parents []int) [][]int32 {
	out := [][]int32{nil}
	for i, p := range parents {
		out = append(out, append(slices.Clone(out[p]), s.Tree[i+1]))
	}
	return out
}

// follow replays the recording with drafters of spec and compares every tree, what is accepted, and
// the table after every step. It returns the number of steps that agree.
func follow(tr trace, parents []int, spec string) (steps int, err error) {
	mk, _, err := draft.Open(spec, draft.Env{})
	if err != nil {
		return 0, err
	}
	var greedy verify.Greedy
	for _, run := range tr.Runs {
		matrix := make([][]int32, run.Vocab)
		for i := range matrix {
			matrix[i] = make([]int32, tr.K)
		}
		for n, x := range run.Prompts {
			d := mk.New().(*papers.Recycler)
			if err := d.Start(x.Prompt); err != nil {
				return steps, err
			}
			var text []int32
			for i := range x.Steps {
				s := &x.Steps[i]
				fail := func(format string, args ...interface{}) (int, error) {
					return steps, fmt.Errorf("%s, prompt %d, step %d: %s", run.Name, n, i, fmt.Sprintf(format, args...))
				}
				p := infer.Proposal{Tree: tree.New(s.Tree[0], 128), Pos: s.Prefix, MaxNodes: 128, MaxDepth: 50}
				if _, err := d.Grow(&p, nil, nil); err != nil {
					return steps, err
				}
				// The table of the step before.
				for token, want := range matrix {
					got := make([]int32, tr.K)
					for k, x := range d.Table.Next(-1, int32(token)) {
						got[k] = x.Token
					}
					if !slices.Equal(got, want) {
						return fail("the row of token %d is %v, want %v", token, got, want)
					}
				}
				for token, row := range s.Changed {
					var at int
					if _, err := fmt.Sscan(token, &at); err != nil {
						return steps, err
					}
					matrix[at] = row
				}
				top := make([][]int32, p.Tree.Len())
				for k, path := range s.paths(parents) {
					at := 0
					for _, token := range path {
						if at = p.Tree.Child(at, token); at < 0 {
							return fail("the path %v of node %d is missing", path, k)
						}
					}
					top[at] = s.Top[k]
				}
				if n := slices.IndexFunc(top, func(r []int32) bool { return r == nil }); n >= 0 {
					return fail("node %d was not drafted", n)
				}
				r := rows{top: top}
				v, err := greedy.Verify(p, r, nil)
				if err != nil {
					return steps, err
				}
				out := []int32{s.Tree[0]}
				for _, n := range v.Path[1:] {
					out = append(out, p.Tree.Token(n))
				}
				out = out[:min(len(out), len(s.Committed))]
				if !slices.Equal(out, s.Committed) || i+1 < len(x.Steps) && (len(v.Path) != x.AcceptLengths[i] || v.Next != x.Steps[i+1].Tree[0]) {
					return fail("accepts %v and then %d, want %v", out, v.Next, s.Committed)
				}
				text = append(text, out...)
				if err := d.Observe(p, v, r); err != nil {
					return steps, err
				}
				steps++
			}
			if want := x.Text[len(x.Prompt)-1:]; !slices.Equal(text[:min(len(text), len(want))], want) {
				return steps, fmt.Errorf("%s, prompt %d: %v, want %v", run.Name, n, text, want)
			}
		}
		for token, want := range run.Matrix {
			if !slices.Equal(matrix[token], want) {
				return steps, fmt.Errorf("%s: at the end the row of token %d is %v, want %v", run.Name, token, matrix[token], want)
			}
		}
	}
	return steps, nil
}

// Every recorded step agrees: the drafted paths, what is accepted, and the table, which lives on from
// prompt to prompt.
func TestStepsAreTheAuthors(t *testing.T) {
	tr, p := load(t)
	if n, err := follow(tr, p.Parents, "recycle:table=keep"); err != nil || n != 34 {
		t.Errorf("%d steps agree, want 34: %v", n, err)
	}
	for name, spec := range map[string]string{
		"a fresh table":                 "recycle",
		"rows of the prompt":            "recycle:table=keep,harvest=all",
		"accepted rows alone":           "recycle:table=keep,harvest=verified",
		"no children of unknown tokens": "recycle:table=keep,zeros=off",
		"another tree":                  "recycle:table=keep,tree=sequoia",
		"N counts the root":             "recycle:table=keep,N=80",
		"seven successors":              "recycle:table=keep,K=7",
	} {
		if n, err := follow(tr, p.Parents, spec); err == nil {
			t.Errorf("%s: all %d steps agree", name, n)
		}
	}
}
