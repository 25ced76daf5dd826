package draft_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/internal/spec"
	"talf/tree"
)

// conform runs the suite on the drafters of specifications, each with its own maker: makers may
// learn, and the suite's models have different vocabularies.
func conform(t *testing.T, specs ...string) {
	t.Helper()
	for _, spec := range specs {
		t.Run(spec, func(t *testing.T) {
			drafttest.Run(t, func() infer.Drafter { return open(t, spec, draft.Env{}).New() })
		})
	}
}

// Every method of the table conforms with its defaults; only rest, which needs a file, is tested
// elsewhere.
func TestEveryMethodConforms(t *testing.T) {
	for _, m := range draft.Methods() {
		text := m.Name
		if text == "rest" {
			text += ":" + storeFile(t, 2, coins(300))
		}
		conform(t, text)
	}
	conform(t,
		"linear:K=1", "static:chain-4", "static:binary-2", "static:kary-3-3", "static:medusa", "beam:N=7,k=2,depth=2", "beam:N=1", "beam:depth=0,k=3", "optimal:N=9,B=2",
		"salf:th=0.1,N=30,B=3", "salf:paper,finish=literal", "salf:finish=fill,th=0.9", "salf:paper,N=1", "salf:paper,N=2,B=1",
		"suffix:table=keep,max_cached_requests=2,max_spec_factor=4", "suffix:use_tree_spec=off,min_token_prob=0,max_spec_factor=3,max_tree_depth=3", "suffix:max_spec_offset=-2,max_spec_factor=9,max_spec_tokens=5",
		"salf:th=auto,N=60", "salf:th=auto,N=7,B=2", "salf:th=auto,N=1", "salf:th=0.4", "salf:paper", "optimal:paper", "beam:paper", "beam:N=12", "beam:depth=3",
	)
}

func TestSpecificationsAreCheckedAgainstTheTable(t *testing.T) {
	for spec, want := range map[string]string{
		"":                  "want one of auto, ",
		"slaf":              `unknown method "slaf" (did you mean salf?)`,
		"salf:threshold=1":  `unknown parameter "threshold": known are set, N, B, th, finish`,
		"ar:N=3":            "it has no parameters",
		"salf:th":           "has no value",
		"salf:N=1,N=2":      "given twice",
		"salf:N=many":       "N is \"many\", want auto or a whole number",
		"salf:th=1":         "want 0 <= th < 1",
		"salf:th=auto,N=0":  "N is 0, want 1..1024",
		"salf:finish=early": "want topn, fill or literal",
		"optimal:th=0.5":    `unknown parameter "th": known are set, N, B, finish`,
		"beam:set=theirs":   "want auto or paper",
		"beam:k=0":          "k is 0, want 1..256",
	} {
		if _, _, err := draft.New(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", spec, err, want)
		}
	}
	if err := (spec.Table[draft.Method]{Kind: "method", Lines: draft.Methods()}).Check(); err != nil {
		t.Error(err)
	}
	for _, m := range draft.Methods() {
		if _, _, err := draft.New(m.Name); err != nil && !strings.Contains(err.Error(), "needs a datastore") {
			t.Errorf("%s: the defaults are refused: %v", m.Name, err)
		}
	}
}

// A maker lists the files that its drafts depend on, and
// nothing that only looks like a file.
func TestMakersNameTheirFiles(t *testing.T) {
	store := storeFile(t, 2, coins(300))
	shapes := filepath.Join(t.TempDir(), "shapes.json")
	if err := os.WriteFile(shapes, []byte("[[0],[1]]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		"salf": nil, "static:file=" + shapes: {shapes}, "rest:" + store + ",N=9": {store},
		"auto": nil,
	} {
		if got := open(t, text, draft.Env{Source: true}).Files; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// A mutant is a drafter that breaks one rule; the suite must catch each.
type mutant struct {
	infer.Drafter
	grow func(p *infer.Proposal, rows []infer.Row, next func() ([]int, error)) ([]int, error)
}

func (m *mutant) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	return m.grow(p, rows, func() ([]int, error) { return m.Drafter.Grow(p, rows, c) })
}

// leaf copies the finished tree to one with room for max nodes; its last node
// has no children.
func leaf(p *infer.Proposal, max int) (*tree.Tree, int) {
	t := tree.New(p.Tree.Token(0), max)
	for n := 1; n < p.Tree.Len(); n++ {
		t.Add(p.Tree.Parent(n), p.Tree.Token(n))
	}
	return t, t.Len() - 1
}

func TestBrokenDraftersAreCaught(t *testing.T) {
	inner := func() infer.Drafter {
		d, _, err := draft.New("salf:N=12,th=0.2")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	done := func(change func(p *infer.Proposal)) func(*infer.Proposal, []infer.Row, func() ([]int, error)) ([]int, error) {
		return func(p *infer.Proposal, _ []infer.Row, next func() ([]int, error)) ([]int, error) {
			ask, err := next()
			if len(ask) == 0 {
				change(p)
			}
			return ask, err
		}
	}
	started := false
	for _, m := range []struct {
		name, want string
		grow       func(*infer.Proposal, []infer.Row, func() ([]int, error)) ([]int, error)
	}{
		{"over the budget", "nodes, ", done(func(p *infer.Proposal) {
			t, n := leaf(p, tree.MaxNodes)
			for x := int32(0); t.Len() <= p.MaxNodes && t.Depth(n) < p.MaxDepth; x = (x + 1) % 2 {
				n = t.Add(n, x)
			}
			p.Tree = t
		})},
		{"too deep", "edges deep", done(func(p *infer.Proposal) {
			t, n := leaf(p, tree.MaxNodes)
			for t.Depth(n) <= p.MaxDepth && t.Room() > 0 {
				n = t.Add(n, 0)
			}
			p.Tree, p.MaxNodes = t, tree.MaxNodes
		})},
		{"a sibling twice", "same token", done(func(p *infer.Proposal) {
			if p.Tree.Len() > 1 && p.Tree.Len() < p.MaxNodes {
				t, _ := leaf(p, tree.MaxNodes)
				t.Add(0, t.Token(1))
				p.Tree = t
			}
		})},
		{"a token outside the vocabulary", "vocabulary", done(func(p *infer.Proposal) {
			if p.Tree.Len() < p.MaxNodes {
				t, _ := leaf(p, tree.MaxNodes)
				t.Add(0, 1000)
				p.Tree = t
			}
		})},
		{"another root", "the tree's root", done(func(p *infer.Proposal) { p.Tree = tree.New(p.Tree.Token(0)+1, 2) })},
		{"more live nodes than nodes", "live nodes", done(func(p *infer.Proposal) { p.Live = p.Tree.Len() + 1 })},
		{"children drawn from what is no distribution", "with a mass of", done(func(p *infer.Proposal) {
			p.Q = func(int) infer.Dist { return make(infer.Dist, 3) }
		})},
		{"drawn from a vocabulary of another size", "drawn from 1 tokens", done(func(p *infer.Proposal) {
			p.Q = func(int) infer.Dist { return infer.Dist{1} }
		})},
		{"drawn with replacement, nobody knows from what", "from nothing", done(func(p *infer.Proposal) { p.Replace = true })},
		{"probabilities of another tree", "log probabilities", done(func(p *infer.Proposal) { p.LogV = append(p.LogV, -1) })},
		{"a child above its parent", "its parent", done(func(p *infer.Proposal) {
			p.LogV = slices.Clone(p.LogV)
			for n := 1; n < len(p.LogV); n++ {
				p.LogV[n] = float64(n)
			}
		})},
		{"asking a node twice", "asked for", func(p *infer.Proposal, rows []infer.Row, next func() ([]int, error)) ([]int, error) {
			ask, err := next()
			if len(ask) > 0 && rows != nil {
				ask = append(ask, ask[0])
			}
			return ask, err
		}},
		{"going on where a cancelled round stopped", "", func(p *infer.Proposal, rows []infer.Row, next func() ([]int, error)) ([]int, error) {
			if rows == nil && started {
				p.Work = tree.New(p.Tree.Token(0), 8) // forgets the root's row
				p.Work.Add(0, 0)
				return []int{1}, nil
			}
			ask, err := next()
			started = len(ask) > 0
			return ask, err
		}},
	} {
		caught := error(nil)
		for seed := uint64(0); seed < 200 && caught == nil; seed++ {
			started = false
			caught = drafttest.Check(seed, func() infer.Drafter { return &mutant{Drafter: inner(), grow: m.grow} })
		}
		if caught == nil || !strings.Contains(caught.Error(), m.want) {
			t.Errorf("%s: caught by %v, want an error that says %q", m.name, caught, m.want)
		}
	}
}

// Any text is either a method or a clear error, never a panic.
func FuzzFind(f *testing.F) {
	for _, s := range []string{"salf:th=0.4,N=60", "beam", "ar:", "optimal:finish=fill", "salf:=,", ":", "salf:N"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		d, m, err := draft.New(spec)
		if (err == nil) != (d != nil) || err == nil && m.Name == "" {
			t.Errorf("%q: drafter %v, method %q, error %v", spec, d, m.Name, err)
		}
	})
}

// The table in the guide to methods lists every parameter with its default.
func TestTheGuideNamesEveryParameter(t *testing.T) {
	b, err := os.ReadFile("../../docs/methods.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range draft.Methods() {
		want := "–"
		var params []string
		for _, p := range m.Params {
			params = append(params, p.Name+"="+p.Default)
		}
		if len(params) > 0 {
			want = strings.Join(params, ", ")
		}
		if row := "| `" + m.Name + "` | " + want + " |"; !strings.Contains(string(b), row) {
			t.Errorf("docs/methods.md lacks %q", row)
		}
	}
}
