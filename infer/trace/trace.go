// Package trace records rounds of decoding, one line of JSON each, and draws their
// trees: in a terminal and as SVG.
package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"talf/infer"
	"talf/internal/limits"
	"talf/model/identity"
	"talf/tree"
)

// Version is the version of the format that Writer writes. It is raised by every change that
// old readers would misread.
const Version = 1

// A Header is the first line of a file.
type Header struct {
	Version     int     `json:"talf_trace"`
	Method      string  `json:"method,omitempty"`
	Verify      string  `json:"verify,omitempty"`
	Temperature float64 `json:"temperature"`
	Seed        uint64  `json:"seed"`
	Prompt      int     `json:"prompt_tokens"`
	// Target is what computed P and the tokens, Draft what computed Q and the trees; nil if nothing but the prompt
	// was asked.
	Target *identity.Function `json:"target,omitempty"`
	Draft  *Draft             `json:"draft,omitempty"`
}

// A Draft identifies what a method drafts from.
type Draft struct {
	Function  *identity.Function `json:"function,omitempty"`  // of the draft model
	Tokenizer string             `json:"tokenizer,omitempty"` // its hash, unless it is the target's
	Files     string             `json:"files,omitempty"`     // hash of the contents of the method's files
}

// A Step is one round: a line of the file.
type Step struct {
	Pos   int    `json:"pos"`   // sequence position of the root
	Nodes []Node `json:"nodes"` // root first, parents before their children, siblings in order
	Path  []int  `json:"path"`  // accepted nodes, root first
	// The first Live nodes could be accepted; the others were only scored, like lookahead's
	// window. 0: all.
	Live int   `json:"live,omitempty"`
	Next Token `json:"next"` // the target's own token after Path
	Kept int   `json:"kept"` // tokens emitted: len(Path), or fewer if the output ended
	// Draw says how children were chosen.
	Draw string `json:"draw"`
}

// A Token is a token and its text.
type Token struct {
	ID   int32  `json:"token"`
	Text string `json:"text"`
}

// A Node is a node of the draft tree. Q is the draft's probability of its token after its
// parent, P the target's; nil if unknown. At temperature 0, P is the target's probability at
// temperature 1, before penalties.
type Node struct {
	Parent int `json:"parent"` // -1 for the root
	Token
	Q *float64 `json:"q,omitempty"`
	P *float64 `json:"p,omitempty"`
}

// A Recorder makes steps of rounds.
type Recorder struct {
	// Text returns the text of a token.
	Text func(id int32) string
	// Temperature is that of the request.
	Temperature float64
	// Path leaves P out of nodes whose parents are not on the path. The verifier has needed the
	// target's probabilities on the path; those of all other nodes cost as much as so many more
	// rows of the vocabulary, in time and in memory.
	Path bool
}

// A Writer writes the file of one sequence.
type Writer struct {
	out *json.Encoder
	rec Recorder
}

// NewWriter writes the header; text returns the text of a token.
func NewWriter(w io.Writer, h Header, text func(id int32) string) (*Writer, error) {
	h.Version = Version
	x := &Writer{out: json.NewEncoder(w), rec: Recorder{Text: text, Temperature: h.Temperature}}
	x.out.SetEscapeHTML(false)
	if err := x.out.Encode(h); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return x, nil
}

// Round writes one round; it can serve as infer.Request.Trace.
func (w *Writer) Round(r infer.Round) error { return w.out.Encode(w.rec.Step(r)) }

func (x *Recorder) token(id int32) Token { return Token{id, x.Text(id)} }

// Step returns a round as a step that stays as it is once the round is over.
func (x *Recorder) Step(r infer.Round) *Step {
	p, t := r.Proposal, r.Proposal.Tree
	s := &Step{
		Pos: p.Pos, Nodes: make([]Node, t.Len()), Path: slices.Clone(r.Verdict.Path), Next: x.token(r.Verdict.Next), Kept: r.Kept, Draw: p.Choice().String(),
	}
	if live := p.LiveNodes(); live < t.Len() {
		s.Live = live
	}
	for n := range s.Nodes {
		s.Nodes[n].Parent, s.Nodes[n].Token = t.Parent(n), x.token(t.Token(n))
		if n > 0 {
			s.Nodes[n].Q = draftOf(p, n)
		}
		if c := t.FirstChild(n); c >= 0 && (!x.Path || slices.Contains(s.Path, n)) {
			target := x.targetOf(r.Scores, n)
			for ; c >= 0; c = t.NextSibling(c) {
				s.Nodes[c].P = target(t.Token(c))
			}
		}
	}
	return s
}

func draftOf(p *infer.Proposal, n int) *float64 {
	var q float64
	switch parent := p.Tree.Parent(n); {
	case p.Q != nil:
		q = p.Q(parent)[p.Tree.Token(n)]
	case p.LogV != nil:
		q = math.Exp(p.LogV[n] - p.LogV[parent])
	default:
		return nil
	}
	return finite(q)
}

// widest is how many of the target's most likely tokens are searched for P at temperature 0.
const widest = 64

// targetOf returns the target's probabilities of the tokens after node n. It is valid until the
// next call.
func (x *Recorder) targetOf(s infer.Scores, n int) func(token int32) *float64 {
	if x.Temperature > 0 {
		d := s.Dist(n)
		return func(token int32) *float64 { return finite(d[token]) }
	}
	likely := s.TopK(n, widest)
	return func(token int32) *float64 {
		for _, c := range likely {
			if c.Token == token {
				return finite(math.Exp(float64(c.LogProb)))
			}
		}
		return nil
	}
}

// finite returns nil for numbers that JSON cannot represent.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// Read reads a file and calls f with each step until f returns an error.
func Read(r io.Reader, f func(s *Step) error) (Header, error) {
	in := bufio.NewReader(r)
	var h Header
	line := 1
	b, err := limits.ReadLine(in, limits.LineBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return h, err
	}
	if err := json.Unmarshal(b, &h); err != nil || h.Version < 1 {
		return h, errors.New("line 1 is no trace header, want a trace of rounds")
	}
	if h.Version > Version {
		return h, fmt.Errorf("talf_trace is %d, want at most %d: a newer version wrote the file", h.Version, Version)
	}
	for err == nil {
		b, err = limits.ReadLine(in, limits.LineBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			return h, fmt.Errorf("line %d: %w", line+1, err)
		}
		if line++; len(b) == 0 {
			break
		}
		var s Step
		if bad := json.Unmarshal(b, &s); bad != nil {
			if err != nil {
				return h, fmt.Errorf("line %d is cut short: the run that wrote it was interrupted", line)
			}
			return h, fmt.Errorf("line %d: %w", line, bad)
		}
		if bad := s.check(); bad != nil {
			return h, fmt.Errorf("line %d: %w", line, bad)
		}
		if bad := f(&s); bad != nil {
			return h, bad
		}
	}
	return h, nil
}

// check makes sure that the nodes form a tree and the path is a path in it.
func (s *Step) check() error {
	if n := len(s.Nodes); n < 1 || n > tree.MaxNodes {
		return fmt.Errorf("nodes has %d entries, want 1..%d, the root first", n, tree.MaxNodes)
	}
	for i, n := range s.Nodes {
		if n.Parent >= i || n.Parent < 0 && i > 0 || i == 0 && n.Parent != -1 {
			return fmt.Errorf("node %d has parent %d, want -1 for node 0 and an earlier node for the others", i, n.Parent)
		}
	}
	if s.Live < 0 || s.Live > len(s.Nodes) {
		return fmt.Errorf("live is %d of %d nodes", s.Live, len(s.Nodes))
	}
	if len(s.Path) == 0 || s.Path[0] != 0 {
		return fmt.Errorf("path is %v, want node 0 first", s.Path)
	}
	for i := 1; i < len(s.Path); i++ {
		if n := s.Path[i]; n <= 0 || n >= s.live() || s.Nodes[n].Parent != s.Path[i-1] {
			return fmt.Errorf("path is %v, want each node to be a live child of the one before", s.Path)
		}
	}
	if s.Kept < 1 || s.Kept > len(s.Path) {
		return fmt.Errorf("kept is %d, want 1..%d", s.Kept, len(s.Path))
	}
	return nil
}
