package draft_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/draft/search"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/internal/golden"
	"talf/model"
	"talf/text/tokenizer"
	"talf/tree"
)

// A dynaRun is a recording of the authors' code: methods/dynatree.
type dynaRun struct {
	Name, Mode, Class string
	Args              struct {
		K      int
		D      int     `json:"tree_depth"`
		B      int     `json:"branch_factor"`
		N      int     `json:"max_tree_nodes"`
		Tau    float64 `json:"probability_threshold"`
		High   float64 `json:"high_conf_threshold"`
		Low    float64 `json:"low_conf_threshold"`
		BMin   int     `json:"min_branch"`
		BMax   int     `json:"max_branch"`
		Stop   float64 `json:"early_stop_threshold"`
		Deep   float64 `json:"deep_expand_threshold"`
		DMax   int     `json:"max_depth"`
		Window int     `json:"history_window"`
		Want   float64 `json:"target_acceptance_rate"`
		Step   float64 `json:"adjustment_rate"`
	}
	Generations []dynaGeneration
}

type dynaGeneration struct {
	Prompt []int32
	New    int
	Rounds []dynaRound
	Stats  struct {
		Tokens  int     `json:"total_tokens"`
		Rounds  int     `json:"total_rounds"`
		Rate    float64 `json:"acceptance_rate"`
		Current struct {
			D0   float64 `json:"current_base_depth"`
			High float64 `json:"current_high_conf_threshold"`
			Deep float64 `json:"current_deep_expand_threshold"`
		} `json:"current_params"`
	}
}

type dynaRound struct {
	Context   int
	Rows      [][]json.RawMessage
	Nodes     [][5]float64 // token, parent, depth, log-probability, cumulative
	First     int32
	Target    []int32
	Path      []int
	Committed []int32
	State     *struct {
		D0   float64 `json:"base_depth"`
		High float64 `json:"high_conf_threshold"`
		Deep float64 `json:"deep_expand_threshold"`
	}
	Draft []int32 // of chains
}

// dynaRuns returns the recordings.
func dynaRuns(t *testing.T) []dynaRun {
	t.Helper()
	var all struct{ Runs []dynaRun }
	if err := json.Unmarshal(golden.Read(t, "methods/dynatree/rounds.json"), &all); err != nil {
		t.Fatal(err)
	}
	return all.Runs
}

// spec is the method that r recorded.
func (r *dynaRun) spec() string {
	a := r.Args
	dynamic := fmt.Sprintf("dynatree:N=%d,D0=%d,Bmin=%d,Bmid=%d,Bmax=%d,high=%v,low=%v,tau=%v", a.N+1, a.D, a.BMin, a.B, a.BMax, a.High, a.Low, a.Tau)
	gates := fmt.Sprintf(",stop=%v,deep=%v,Dmax=%d", a.Stop, a.Deep, a.DMax)
	switch r.Class {
	case "linear":
		return fmt.Sprintf("linear:K=%d", a.K)
	case "tree", "fixed":
		return fmt.Sprintf("fixed:D=%d,B=%d,N=%d,tau=%v", a.D, a.B, a.N+1, a.Tau)
	case "breadth":
		return dynamic + ",depth=off,history=off"
	case "depth":
		return dynamic + gates + ",history=off"
	case "history":
		return dynamic + gates + fmt.Sprintf(",W=%d,a=%v,etah=%v", a.Window, a.Want, a.Step)
	}
	return r.Class
}

// rows are the draft's rows by node of the engine's tree, in which the recording's node n is n+1 and
// the end of the context the root.
func (r *dynaRound) rows() (map[int]infer.Row, error) {
	out := map[int]infer.Row{}
	for _, raw := range r.Rows {
		var node int
		var row infer.Row
		if err := errors.Join(json.Unmarshal(raw[0], &node), json.Unmarshal(raw[2], &row.Tokens), json.Unmarshal(raw[3], &row.LogProb)); err != nil {
			return nil, err
		}
		out[node+1] = row
	}
	return out, nil
}

// tokens are the drafted tokens, and parents where they hang in the engine's tree.
func (r *dynaRound) tree() (tokens []int32, parents []int) {
	for i, x := range r.Draft {
		tokens, parents = append(tokens, x), append(parents, i)
	}
	for _, n := range r.Nodes {
		tokens, parents = append(tokens, int32(n[0])), append(parents, int(n[1])+1)
	}
	return tokens, parents
}

// place returns the node of the engine's tree at the end of a path of tokens that begins with the
// root's.
func (r *dynaRound) place(path []int32) (at int, ok bool) {
	tokens, parents := r.tree()
	for _, x := range path[1:] {
		n := 0
		for n < len(tokens) && (tokens[n] != x || parents[n] != at) {
			n++
		}
		if n == len(tokens) {
			return 0, false
		}
		at = n + 1
	}
	return at, true
}

// says are greedy scores of a recorded round: what the target chose.
type says struct {
	infer.Scores
	r *dynaRound
}

func (s says) Argmax(n int) int32 {
	if n == 0 {
		return s.r.First
	}
	return s.r.Target[n-1]
}

// same compares a tree with a recorded one, as far as depth most.
func (r *dynaRound) same(t *tree.Tree, most int) error {
	tokens, parents := r.tree()
	n := 1
	for i, x := range tokens {
		if len(r.Nodes) > 0 && int(r.Nodes[i][2])+1 > most || i+1 > most && len(r.Draft) > 0 {
			continue
		}
		if n == t.Len() || t.Token(n) != x || t.Parent(n) != parents[i] {
			return fmt.Errorf("node %d is missing or not token %d below %d: %v, want %v below %v", n, x, parents[i], t.Tokens()[1:], tokens, parents)
		}
		n++
	}
	if n != t.Len() {
		return fmt.Errorf("%d nodes, want %d", t.Len()-1, n-1)
	}
	return nil
}

// follow replays r with a drafter of spec, fed with the recorded rows, and compares every tree, path,
// emitted token and state of the history. It returns the number of rounds that agree.
func (r *dynaRun) follow(text string) (rounds int, err error) {
	mk, _, err := draft.Open(text, draft.Env{Source: true})
	if err != nil {
		return 0, err
	}
	rule, err := verify.New("greedy", 0)
	if err != nil {
		return 0, err
	}
	for g, gen := range r.Generations {
		d := mk.New()
		if err := d.Start(gen.Prompt); err != nil {
			return rounds, err
		}
		emitted := slices.Clone(gen.Prompt)
		for i := range gen.Rounds {
			x := &gen.Rounds[i]
			if err := r.round(d, rule, x, &emitted, len(gen.Prompt)+gen.New); err != nil {
				return rounds, fmt.Errorf("generation %d, round %d: %w", g, i, err)
			}
			rounds++
		}
		if end := d.Traits().End; end != nil {
			end()
		}
		if n := len(emitted) - len(gen.Prompt); n != gen.Stats.Tokens || len(gen.Rounds) != gen.Stats.Rounds {
			return rounds, fmt.Errorf("generation %d: %d tokens in %d rounds, want %d in %d", g, n, len(gen.Rounds), gen.Stats.Tokens, gen.Stats.Rounds)
		}
		if r.Class == "history" {
			next := mk.New()
			want := search.DynaTreeState{D0: gen.Stats.Current.D0, High: gen.Stats.Current.High, Deep: gen.Stats.Current.Deep}
			if got := draft.StateOf(next); got != want {
				return rounds, fmt.Errorf("after generation %d: %+v, want %+v", g, got, want)
			}
		}
	}
	return rounds, nil
}

func (r *dynaRun) round(d infer.Drafter, rule infer.Verifier, x *dynaRound, emitted *[]int32, most int) error {
	if len(*emitted) != x.Context {
		return fmt.Errorf("%d tokens before it, want %d", len(*emitted), x.Context)
	}
	if s := x.State; s != nil {
		if got, want := draft.StateOf(d), (search.DynaTreeState{D0: s.D0, High: s.High, Deep: s.Deep}); got != want {
			return fmt.Errorf("the state is %+v, want %+v", got, want)
		}
	}
	known, err := x.rows()
	if err != nil {
		return err
	}
	p := infer.Proposal{Tree: tree.New((*emitted)[x.Context-1], tree.MaxNodes), Pos: x.Context - 1, MaxNodes: tree.MaxNodes, MaxDepth: 100}
	// Work has the asked nodes in the order of asking; the recording names them by their places in the tree.
	var rows []infer.Row
	for {
		ask, err := d.Grow(&p, rows, nil)
		if err != nil {
			return err
		}
		if len(ask) == 0 {
			break
		}
		w := p.Tree
		if p.Work != nil {
			w = p.Work
		}
		rows = rows[:0]
		for _, n := range ask {
			var path []int32
			for _, m := range w.AppendPath(nil, n) {
				path = append(path, w.Token(m))
			}
			at, ok := x.place(path)
			row, recorded := known[at]
			if r.Class == "tree" && ok && !recorded {
				row, recorded = infer.Row{Tokens: []int32{-1}, LogProb: []float32{0}}, true // that class stops a level as soon as the tree is full
			}
			if !ok || !recorded {
				return fmt.Errorf("asks for the path %v, which was not run", path)
			}
			rows = append(rows, row)
		}
	}
	if err := x.same(p.Tree, 100); err != nil {
		return err
	}
	if len(x.Nodes) > 0 {
		for n, v := range p.LogV[1:] {
			if want := x.Nodes[n][4]; math.Abs(v-want) > 1e-5 {
				return fmt.Errorf("log V of node %d is %v, want %v", n, v, want)
			}
		}
	}
	v, err := rule.Verify(p, says{r: x}, nil)
	if err != nil {
		return err
	}
	var path []int
	var out []int32
	for _, n := range v.Path[1:] {
		path, out = append(path, n-1), append(out, p.Tree.Token(n))
	}
	if r.Class != "linear" && !slices.Equal(path, x.Path) {
		return fmt.Errorf("the path is %v, want %v", path, x.Path)
	}
	out = append(out, v.Next)
	out = out[:min(len(out), most-len(*emitted))]
	if !slices.Equal(out, x.Committed) {
		return fmt.Errorf("emits %v, want %v", out, x.Committed)
	}
	v.Path, v.Next = v.Path[:len(out)], out[len(out)-1]
	*emitted = append(*emitted, out...)
	return d.Observe(p, v, nil)
}

// Every recorded round agrees: the tree, the accepted path, the emitted tokens and, with history, the
// state. As run, the authors' code feeds all branches from one cache and gives nodes the positions of
// their places in the tree; the rules that build a tree from rows and move the history are the same.
func TestDynaTreesAreTheAuthors(t *testing.T) {
	rounds := map[string]int{}
	for _, r := range dynaRuns(t) {
		n, err := r.follow(r.spec())
		if err != nil {
			t.Errorf("%s, %s, %s: %v", r.Name, r.Mode, r.spec(), err)
		}
		rounds[r.Mode] += n
	}
	if rounds["path"] != 474 || rounds["asrun"] != 217 {
		t.Errorf("%v rounds agree, want 474 and 217", rounds)
	}
}

// A path stops at the larger of two probabilities: in every recording that has both, at ρstop. With their
// values exchanged the trees are the same, and then it is τ that counts.
func TestThresholdsOfDynaTreesMayBeExchanged(t *testing.T) {
	rounds := 0
	for _, r := range dynaRuns(t) {
		if r.Class != "depth" && r.Class != "history" {
			continue
		}
		if r.Args.Tau >= r.Args.Stop {
			t.Errorf("%s: τ is %v and ρstop %v: exchanging them shows nothing new", r.Name, r.Args.Tau, r.Args.Stop)
		}
		r.Args.Tau, r.Args.Stop = r.Args.Stop, r.Args.Tau
		n, err := r.follow(r.spec())
		if err != nil {
			t.Errorf("%s, %s, %s: %v", r.Name, r.Mode, r.spec(), err)
		}
		rounds += n
	}
	if rounds != 482 {
		t.Errorf("%d rounds agree, want 482", rounds)
	}
}

// What the recordings can tell apart: each of these differences makes some run disagree.
func TestRecordingsCatchOtherDynaTrees(t *testing.T) {
	runs := dynaRuns(t)
	re := regexp.MustCompile
	for name, m := range map[string]struct {
		class string
		old   *regexp.Regexp
		text  string
	}{
		"leaves below the threshold are dropped":   {"history", re(`$`), ",prune=on"},
		"the same without history":                 {"depth", re(`$`), ",prune=on"},
		"fixed trees are a level shorter":          {"fixed", re(`D=8`), "D=7"},
		"breadth alone is a level shorter":         {"breadth", re(`D0=5`), "D0=4"},
		"dynamic trees are a level shorter":        {"depth", re(`D0=5,`), "D0=4,"},
		"history after every round":                {"history", re(`$`), ",history=rounds"},
		"history never":                            {"history", re(`$`), ",history=off"},
		"the root has several children":            {"breadth", re(`$`), ",root=0"},
		"N counts the last emitted token":          {"tree", re(`N=11`), "N=10"},
		"a target without its dead band's effects": {"history", re(`a=0\.7`), "a=0.5"},
		"another step":                             {"history", re(`etah=0\.05`), "etah=0.1"},
		"the constant of another set":              {"depth", re(`deep=0\.5`), "deep=0.12"},
	} {
		failed := false
		for _, r := range runs {
			if text := m.old.ReplaceAllString(r.spec(), m.text); r.Class == m.class && text != r.spec() {
				_, err := r.follow(text)
				failed = failed || err != nil
			}
		}
		if !failed {
			t.Errorf("%s: every recorded round agrees", name)
		}
	}
}

// End to end: with the models of the recordings, the engine drafts the trees that the authors' code
// drafts with a cache of its own for every branch, in all rounds of all generations.
func TestDynaTreesAreTheAuthorsEndToEnd(t *testing.T) {
	dir := golden.File(t, "methods/dynatree/models")
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	load := func(name string) *model.Model {
		m, err := model.Load(filepath.Join(dir, name), dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	target, small := load("target"), load("draft")
	e := &infer.Engine{Target: infer.NewTarget(target, 0), Config: infer.Default()}
	tok := symbols(t, target.Spec().Vocab)
	same, err := source.NewVocab(tok, tok, target.Spec().Vocab, small.Spec().Vocab)
	if err != nil {
		t.Fatal(err)
	}
	src := source.NewLM(small, same, 0)
	rounds := 0
	for _, r := range dynaRuns(t) {
		if r.Mode != "path" {
			continue
		}
		mk, _, err := draft.Open(r.spec(), draft.Env{Source: true})
		if err != nil {
			t.Fatal(err)
		}
		for g, gen := range r.Generations {
			d := mk.New()
			i := 0
			s, err := e.Generate(t.Context(), infer.Request{
				Prompt: gen.Prompt, MaxTokens: gen.New, NoEOS: true, Drafter: d, Source: src, Verifier: greedy(t), Processor: drafttest.Plain{},
				Trace: func(x infer.Round) error {
					if i == len(gen.Rounds) {
						return errors.New("a round more than recorded")
					}
					want := &gen.Rounds[i]
					i++
					if st := want.State; st != nil {
						if got := draft.StateOf(d); got != (search.DynaTreeState{D0: st.D0, High: st.High, Deep: st.Deep}) {
							return fmt.Errorf("the state is %+v, want %+v", got, *st)
						}
					}
					if x.Kept != len(want.Committed) {
						return fmt.Errorf("%d tokens are kept, want %d", x.Kept, len(want.Committed))
					}
					return want.same(x.Proposal.Tree, x.Proposal.MaxDepth)
				},
			})
			if err != nil {
				t.Fatalf("%s, generation %d, round %d: %v", r.Name, g, i-1, err)
			}
			var want []int32
			for _, x := range gen.Rounds {
				want = append(want, x.Committed...)
			}
			if !slices.Equal(s.Tokens(), want) || i != len(gen.Rounds) {
				t.Errorf("%s, generation %d: %v in %d rounds, want %v in %d", r.Name, g, s.Tokens(), i, want, len(gen.Rounds))
			}
			rounds += i
		}
	}
	if rounds != 474 {
		t.Errorf("%d rounds, want 474", rounds)
	}
}

// symbols is a tokenizer of n tokens. The models of the recordings have none.
func symbols(t *testing.T, n int) *tokenizer.Tokenizer {
	t.Helper()
	vocab := map[string]int{}
	for i := range n {
		vocab[string(rune('!'+i))] = i
	}
	b, err := json.Marshal(map[string]interface{}{"version": "1.0", "model": map[string]interface{}{"type": "BPE", "vocab": vocab, "merges": []string{}}})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func greedy(t *testing.T) infer.Verifier {
	t.Helper()
	v, err := verify.New("greedy", 0)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
