package trace_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/trace"
	"talf/infer/verify"
	"talf/internal/limits"
)

// record decodes a sequence of a random model and returns its trace.
func record(t *testing.T, method, verifier string, temperature float64, w io.Writer) *infer.Sequence {
	t.Helper()
	target := &drafttest.Target{Table: drafttest.Table{Seed: 3, Vocab: 8, Order: 2, Sharp: 2}, MaxLen: 60}
	mk, _, err := draft.Open(method, draft.Env{Vocab: 8, Temperature: temperature})
	if err != nil {
		t.Fatal(err)
	}
	v, err := verify.New(verifier, temperature)
	if err != nil {
		t.Fatal(err)
	}
	out, err := trace.NewWriter(w, trace.Header{Method: method, Verify: verifier, Temperature: temperature, Prompt: 2}, func(id int32) string {
		return fmt.Sprintf("<%d>&\n", id)
	})
	if err != nil {
		t.Fatal(err)
	}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	s, err := e.Generate(t.Context(), infer.Request{
		Prompt: []int32{1, 2}, MaxTokens: 25, Seed: 4, Drafter: mk.New(), Source: &drafttest.Source{Target: target, Agree: 0.6},
		Verifier: v, Processor: drafttest.Plain{Temperature: temperature}, Trace: out.Round,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The steps of a file, read back, give the sequence: the kept part of each path and the
// target's own tokens make up the output. Probabilities are those of the models.
func TestATraceHoldsTheSequence(t *testing.T) {
	for _, c := range []struct {
		method, verifier string
		temperature      float64
		q                bool // the draft gives probabilities
	}{
		{"ar", "", 0, true},
		{"salf:paper,N=12", "", 0, true},
		{"static:binary-3", "", 0.7, true},
		{"static:binary-3,draw=distinct", "traversal", 0.7, true},
		{"static:kary-3-2,draw=repeated", "rrs", 1, true},
	} {
		var file bytes.Buffer
		seq := record(t, c.method, c.verifier, c.temperature, &file)
		var tokens []int32
		drafted, passes := 0, 0
		h, err := trace.Read(&file, func(s *trace.Step) error {
			passes++
			drafted += len(s.Nodes) - 1
			if s.Pos != 2+len(tokens)-1 {
				t.Errorf("%s: a round at %d after %d tokens", c.method, s.Pos, len(tokens))
			}
			for _, n := range s.Path[1:] {
				tokens = append(tokens, s.Nodes[n].ID)
			}
			tokens = append(tokens, s.Next.ID)
			tokens = tokens[:len(tokens)-len(s.Path)+s.Kept]
			for i, n := range s.Nodes[1:] {
				if n.Text != fmt.Sprintf("<%d>&\n", n.ID) {
					t.Errorf("%s: token %d is spelt %q", c.method, n.ID, n.Text)
				}
				if (n.Q != nil) != c.q || n.P == nil || *n.P < 0 || *n.P > 1 || n.Q != nil && !(*n.Q > 0 && *n.Q <= 1+1e-6) {
					t.Errorf("%s: node %d has q %v, p %v", c.method, i+1, n.Q, n.P)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		st := seq.Stats()
		if fmt.Sprint(tokens) != fmt.Sprint(seq.Tokens()) || passes != st.Passes || drafted != st.Drafted {
			t.Errorf("%s: the trace has %v in %d passes with %d drafted, the sequence %v, %d, %d",
				c.method, tokens, passes, drafted, seq.Tokens(), st.Passes, st.Drafted)
		}
		if h.Method != c.method || h.Verify != c.verifier || h.Temperature != c.temperature || h.Prompt != 2 {
			t.Errorf("header %+v", h)
		}
	}
}

// Tracing does not change the output, and a trace that fails ends its sequence.
func TestTracingLooksOnOnly(t *testing.T) {
	traced := record(t, "static:binary-3,draw=distinct", "traversal", 0.7, io.Discard)
	target := &drafttest.Target{Table: drafttest.Table{Seed: 3, Vocab: 8, Order: 2, Sharp: 2}, MaxLen: 60}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	mk, _, err := draft.Open("static:binary-3,draw=distinct", draft.Env{Vocab: 8, Temperature: 0.7})
	if err != nil {
		t.Fatal(err)
	}
	req := infer.Request{
		Prompt: []int32{1, 2}, MaxTokens: 25, Seed: 4, Drafter: mk.New(), Source: &drafttest.Source{Target: target, Agree: 0.6},
		Verifier: new(verify.Traversal), Processor: drafttest.Plain{Temperature: 0.7},
	}
	plain, err := e.Generate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(traced.Tokens()) != fmt.Sprint(plain.Tokens()) {
		t.Errorf("traced %v, otherwise %v", traced.Tokens(), plain.Tokens())
	}
	full := errors.New("disk full")
	req.Trace = func(infer.Round) error { return full }
	if s, err := e.Generate(t.Context(), req); !errors.Is(err, full) || s.Stats().Passes != 1 {
		t.Errorf("error %v after %d passes, want %v after 1", err, s.Stats().Passes, full)
	}
}

func prob(x float64) *float64 { return &x }

func step() *trace.Step {
	tok := func(id int32, text string) trace.Token { return trace.Token{ID: id, Text: text} }
	return &trace.Step{
		Pos: 7, Path: []int{0, 2, 4}, Next: tok(9, " end"), Kept: 3,
		Nodes: []trace.Node{
			{Parent: -1, Token: tok(1, "the")},
			{Parent: 0, Token: tok(2, " <a>"), Q: prob(0.5), P: prob(0.25)},
			{Parent: 0, Token: tok(3, " \"b\""), Q: prob(0.3)},
			{Parent: 1, Token: tok(4, "\n")},
			{Parent: 2, Token: tok(5, "")},
			{Parent: 4, Token: tok(6, strings.Repeat("é", 40))},
		},
	}
}

func TestTreesInATerminal(t *testing.T) {
	var b strings.Builder
	if err := step().Text(&b, 3); err != nil {
		t.Fatal(err)
	}
	want := `round 3 at 7: 2 of 5 drafted nodes accepted, 3 tokens
● "the"
├─○ " <a>"  q 0.500  p 0.250
│ └─○ "\n"  
└─● " \"b\""  q 0.300
  └─● <5>  
    ├─○ "éééééééééééééééééééééé…  
    └─→ " end"
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// The drawing is valid XML, with a circle for each node and for the target's own token, no two
// of them in the same place.
func TestTreesAsSVG(t *testing.T) {
	var b bytes.Buffer
	v := trace.NewSVG(&b)
	v.Add(step(), 1)
	v.Add(step(), 2)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	at, classes := map[string]int{}, map[string]int{}
	d := xml.NewDecoder(&b)
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		attr := map[string]string{}
		for _, a := range e.Attr {
			attr[a.Name.Local] = a.Value
		}
		if e.Name.Local == "circle" {
			at[attr["cx"]+","+attr["cy"]]++
		}
		classes[attr["class"]]++
	}
	if len(at) != 14 {
		t.Errorf("%d places for 14 nodes: %v", len(at), at)
	}
	if classes["node kept"] != 6 || classes["edge kept"] != 4 || classes["node own"] != 2 {
		t.Errorf("accepted nodes are not marked: %v", classes)
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	head := `{"talf_trace":1,"temperature":0}` + "\n"
	for file, want := range map[string]string{
		"":                     "line 1 is no trace header",
		"{}\n":                 "line 1 is no trace header",
		"[1]\n":                "line 1 is no trace header",
		`{"talf_trace":2}`:     "want at most 1",
		`{"talf_trace":-1}`:    "line 1 is no trace header",
		head + "{\"pos\":":     "line 2 is cut short",
		head + "{\"pos\":x}\n": "line 2: ",
		head + "{}\n":          "nodes has 0 entries",
		head + `{"nodes":[{"parent":-1},{"parent":1}]}` + "\n":                       "node 1 has parent 1",
		head + `{"nodes":[{"parent":0}]}` + "\n":                                     "node 0 has parent 0",
		head + `{"nodes":[{"parent":-1}],"path":[]}` + "\n":                          "path is []",
		head + `{"nodes":[{"parent":-1},{"parent":0}],"path":[0,0]}` + "\n":          "path is [0 0]",
		head + `{"nodes":[{"parent":-1},{"parent":0}],"path":[0,1],"kept":3}` + "\n": "kept is 3, want 1..2",
	} {
		_, err := trace.Read(strings.NewReader(file), func(*trace.Step) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that says %q", file, err, want)
		}
	}
}

// Any file is either read or refused; a file that is read can be drawn.
func TestLongLinesAreRefused(t *testing.T) {
	in := fmt.Sprintf("{\"talf_trace\":%d}\n%s", trace.Version, strings.Repeat(" ", limits.LineBytes+1))
	_, err := trace.Read(strings.NewReader(in), func(*trace.Step) error { return nil })
	if !errors.Is(err, limits.ErrTooLarge) || !strings.HasPrefix(err.Error(), "line 2: ") {
		t.Errorf("%v, want the line and ErrTooLarge", err)
	}
}

func FuzzRead(f *testing.F) {
	head := `{"talf_trace":1,"temperature":0}` + "\n"
	f.Add([]byte(head + `{"nodes":[{"parent":-1},{"parent":0,"text":"\u0000<","q":0.5}],"path":[0,1],"kept":1,"next":{"text":"x"}}` + "\n"))
	f.Add([]byte(head))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, i := trace.NewSVG(io.Discard), 0
		if _, err := trace.Read(bytes.NewReader(b), func(s *trace.Step) error {
			if i++; i < 50 {
				v.Add(s, i)
				return s.Text(io.Discard, i)
			}
			return nil
		}); err != nil {
			return
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestProbabilitiesThatJSONCannotSay(t *testing.T) {
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Temperature: 1}, func(int32) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	target := &drafttest.Target{Table: drafttest.Table{Seed: 3, Vocab: 8, Order: 2, Sharp: 2}, MaxLen: 60}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	mk, _, err := draft.Open("static:chain-3", draft.Env{Vocab: 8, Temperature: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Generate(t.Context(), infer.Request{
		Prompt: []int32{1, 2}, MaxTokens: 6, Drafter: mk.New(), Source: &drafttest.Source{Target: target, Agree: 0.6},
		Verifier: new(verify.Target), Processor: drafttest.Plain{Temperature: 1},
		Trace: func(r infer.Round) error {
			for n := range r.Proposal.LogV {
				r.Proposal.LogV[n] = math.NaN()
			}
			return w.Round(r)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), `"q"`) || !strings.Contains(b.String(), `"p"`) {
		t.Errorf("q that is no number: %s", b.String())
	}
}

// The nodes of lookahead's window are scored for later rounds, which is not a rejection.
func TestNodesThatAreScoredOnlyAreNotRejected(t *testing.T) {
	var file bytes.Buffer
	record(t, "lookahead:W=3,N=3,G=2", "", 0, &file)
	aside := 0
	_, err := trace.Read(&file, func(s *trace.Step) error {
		var text bytes.Buffer
		if err := s.Text(&text, 1); err != nil {
			return err
		}
		live := len(s.Nodes)
		if s.Live > 0 {
			live = s.Live
		}
		aside += len(s.Nodes) - live
		if got, want := strings.Count(text.String(), "○ "), live-len(s.Path); got != want {
			t.Errorf("%d nodes look rejected, want %d of %d live ones:\n%s", got, want, live, &text)
		}
		if got, want := strings.Count(text.String(), "· "), len(s.Nodes)-live; got != want {
			t.Errorf("%d nodes look scored only, want %d:\n%s", got, want, &text)
		}
		if want := fmt.Sprintf("%d of %d drafted", len(s.Path)-1, live-1); !strings.Contains(text.String(), want) {
			t.Errorf("the title lacks %q:\n%s", want, &text)
		}
		return nil
	})
	if err != nil || aside == 0 {
		t.Errorf("%d nodes are scored only, %v", aside, err)
	}
	bad := step()
	bad.Live = 3
	b, err := json.Marshal(bad)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trace.Read(strings.NewReader("{\"talf_trace\":1}\n"+string(b)), func(*trace.Step) error { return nil }); err == nil {
		t.Error("a path through a node that was scored only is read")
	}
}
