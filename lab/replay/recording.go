package replay

import (
	"bufio"
	"compress/gzip"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"talf/infer"
	"talf/infer/bench"
	"talf/internal/durable"
	"talf/internal/limits"
	"talf/internal/table"
	"talf/lab/micro"
)

// A Recording is what a target wrote and the rows that it and draft models gave on the way, so
// that trees of any shape can be tried without a model. It has only the rows that were asked
// for while it was recorded. A replay counts the rows that are missing.
type Recording struct {
	Model     string // hash of what the target computes; of its weights alone if Settings is nil
	Settings  []byte // bench.Settings as JSON: what all models compute; nil in earlier releases' recordings
	Device    string
	Layers    int    // layers that the target was deepened to, 0 if it was not
	Tokenizer string // its hash
	Vocab     int
	MaxLen    int
	EOS       []int32
	NoEOS     bool
	MaxTokens int // of an answer
	Warmup    int // of every set, the first prompts
	Texts     []Text
	Channels  []Channel // the target's, then the draft models'
}

// A Text is one answer of the target.
type Text struct {
	Set, Prompt string
	Temperature float64
	Seed        uint64
	Start       int     // tokens of the prompt
	Tokens      []int32 // the prompt and the answer
}

// A Channel is one model's rows and the costs of its passes.
type Channel struct {
	Name string
	// LM says that a row depends only on the tokens before it. A head's row also depends on
	// which of them were committed when it was asked.
	LM    bool
	Costs []Cost
	Rows  []Nodes // by text

	index []map[place]int32
}

// A Cost is the time of passes of some number of rows.
type Cost struct {
	Rows    int     `json:"rows"`
	Seconds float64 `json:"seconds"` // first decile, as on a quiet machine
	Passes  int     `json:"passes"`
}

// Nodes are the nodes of one text's trees whose rows were recorded, parents first.
type Nodes struct {
	Parent []int32 // −1−p: the text's own token at position p
	Token  []int32
	Next   []Candidates
}

// Candidates are a row's most likely next tokens, best first.
type Candidates struct {
	Token   []int32
	LogProb []float32
}

// A place identifies a node among a text's trees: a child by its parent and token, a root by
// −1−p for its position p and no token.
type place struct{ parent, token int32 }

// Identify notes what the models compute.
func (r *Recording) Identify(s *bench.Settings) (err error) {
	r.Model = s.Function.Hash()
	r.Settings, err = json.Marshal(s)
	return err
}

// magic begins a recording's file.
const magic = "talf recording 1\n"

// Write writes r.
func (r *Recording) Write(w io.Writer) error {
	if _, err := io.WriteString(w, magic); err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(z).Encode(r); err != nil {
		return err
	}
	return z.Close()
}

// Open reads the recording in a file.
func Open(path string) (*Recording, error) {
	f, err := limits.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	rec, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rec, nil
}

// Read reads what Write wrote. It refuses files that are truncated, damaged or something else.
func Read(in io.Reader) (*Recording, error) {
	packed := &limits.Counter{R: in}
	b := bufio.NewReader(packed)
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(b, head); err != nil || string(head) != magic {
		return nil, errors.New("this is not a recording, or one of another version")
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("the recording is damaged: %w", err)
	}
	r := new(Recording)
	all := limits.Unpacked(z, packed, limits.RecordingBytes, "rows")
	if err := gob.NewDecoder(all).Decode(r); err != nil {
		return nil, fmt.Errorf("the recording is damaged: %w", err)
	}
	if _, err := io.Copy(io.Discard, all); err != nil { // its checksum
		return nil, fmt.Errorf("the recording is damaged: %w", err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("the recording is damaged: %w", err)
	}
	return r, nil
}

// check refuses whatever would make a replay read out of range, and builds the index.
func (r *Recording) check() error {
	if len(r.Channels) == 0 || r.Vocab < 1 || r.MaxLen < 1 || r.MaxTokens < 1 || r.Warmup < 0 {
		return errors.New("it has no target")
	}
	inside := func(ids []int32) bool {
		return !slices.ContainsFunc(ids, func(t int32) bool { return t < 0 || int(t) >= r.Vocab })
	}
	for i, t := range r.Texts {
		if t.Start < 1 || t.Start >= len(t.Tokens) || len(t.Tokens) > r.MaxLen || !inside(t.Tokens) {
			return fmt.Errorf("text %d: %d tokens after a prompt of %d", i, len(t.Tokens), t.Start)
		}
	}
	for i := range r.Channels {
		c := &r.Channels[i]
		if len(c.Rows) != len(r.Texts) {
			return fmt.Errorf("channel %q has rows of %d texts, want %d", c.Name, len(c.Rows), len(r.Texts))
		}
		for k, x := range c.Costs {
			if x.Rows < 1 || !(x.Seconds >= 0) || k > 0 && x.Rows <= c.Costs[k-1].Rows {
				return fmt.Errorf("channel %q: cost %d is %v", c.Name, k, x)
			}
		}
		c.index = nil
		for t := range c.Rows {
			n := &c.Rows[t]
			if len(n.Token) != len(n.Parent) || len(n.Next) != len(n.Parent) || !inside(n.Token) {
				return fmt.Errorf("channel %q, text %d: nodes do not fit together", c.Name, t)
			}
			index := make(map[place]int32, len(n.Parent))
			for k, p := range n.Parent {
				at := place{p, n.Token[k]}
				if p < 0 {
					at.token = 0
				}
				_, twice := index[at]
				if p >= int32(k) || p < 0 && int(-1-p) >= len(r.Texts[t].Tokens) || twice ||
					len(n.Next[k].Token) != len(n.Next[k].LogProb) || !inside(n.Next[k].Token) {
					return fmt.Errorf("channel %q, text %d: node %d is out of range", c.Name, t, k)
				}
				index[at] = int32(k)
			}
			c.index = append(c.index, index)
		}
	}
	return nil
}

// put records the row of a node below the text's token at position root.
func (c *Channel) put(text, root int, path []int32, next Candidates) {
	n, index := &c.Rows[text], c.index[text]
	at := place{parent: int32(-1 - root)}
	for i := 0; ; i++ {
		k, ok := index[at]
		if !ok {
			if i < len(path) {
				return // the path to it was not recorded
			}
			k = int32(len(n.Parent))
			index[at] = k
			n.Parent, n.Token, n.Next = append(n.Parent, at.parent), append(n.Token, at.token), append(n.Next, next)
			return
		}
		if i == len(path) {
			if len(next.Token) > len(n.Next[k].Token) {
				n.Next[k] = next
			}
			return
		}
		at = place{k, path[i]}
	}
}

// get returns the row of a node below the text's token at position root. A row that depends on
// the tokens alone is also found if the path follows the text and leaves it later.
func (c *Channel) get(text int, tokens []int32, root int, path []int32) (*Candidates, bool) {
	along := 0
	if c.LM {
		for along < len(path) && root+along+1 < len(tokens) && tokens[root+along+1] == path[along] {
			along++
		}
	}
	for ; along >= 0; along-- {
		at := place{parent: int32(-1 - root - along)}
		k, ok := c.index[text][at]
		for i := along; ok && i < len(path); i++ {
			k, ok = c.index[text][place{k, path[i]}]
		}
		if ok {
			return &c.Rows[text].Next[k], true
		}
	}
	return nil, false
}

// Seconds returns the cost of a pass of n rows, interpolated linearly between measured sizes
// and extrapolated from the last two. It is never less than that of a smaller pass.
func (c *Channel) Seconds(n int) float64 {
	if n < 1 || len(c.Costs) == 0 {
		return 0
	}
	if n <= c.Costs[0].Rows {
		return c.Costs[0].Seconds
	}
	i := 1
	for i < len(c.Costs)-1 && c.Costs[i].Rows < n {
		i++
	}
	if len(c.Costs) == 1 {
		return c.Costs[0].Seconds
	}
	a, b := c.Costs[i-1], c.Costs[i]
	slope := max(0, b.Seconds-a.Seconds) / float64(b.Rows-a.Rows)
	return a.Seconds + slope*float64(n-a.Rows)
}

// SetCosts replaces the costs of passes. It lowers each to that of the next larger size if
// that is less: fewer rows never make a pass slower, while disturbances make a measurement
// longer.
func (c *Channel) SetCosts(costs []Cost) {
	costs = slices.Clone(costs)
	slices.SortFunc(costs, func(a, b Cost) int { return a.Rows - b.Rows })
	c.Costs = slices.CompactFunc(costs, func(a, b Cost) bool { return a.Rows == b.Rows })
	for i := len(c.Costs) - 2; i >= 0; i-- {
		c.Costs[i].Seconds = min(c.Costs[i].Seconds, c.Costs[i+1].Seconds)
	}
}

// ReadCosts replaces what passes of the target cost by what lab decode measured and wrote
// to a file.
func (r *Recording) ReadCosts(path string) error {
	var m micro.Report
	found, err := durable.ReadJSON(path, &m)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%s: there is no such file", path)
	}
	costs, err := Costs(m.Passes)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	r.Channels[0].SetCosts(costs)
	return nil
}

// Config returns a run of what was recorded at some of its temperatures, without methods.
// maxTokens of 0 is the recording's.
func (r *Recording) Config(temperatures []float64, maxTokens int) bench.Config {
	c := bench.Default()
	c.Sets, c.Seeds, c.Warmup, c.Tokenizer = r.Sets(), r.Seeds(), r.Warmup, r.Tokenizer
	c.Temperatures = temperatures
	if c.MaxTokens = maxTokens; c.MaxTokens == 0 {
		c.MaxTokens = r.MaxTokens
	}
	return c
}

// Costs returns what passes cost in the results of micro.Passes: those of the first model with
// the longest context.
func Costs(rows []micro.PassRow) ([]Cost, error) {
	context := 0
	counts := func(p *micro.PassRow) bool { return p.Model == rows[0].Model && !p.Prompt }
	for i := range rows {
		if counts(&rows[i]) {
			context = max(context, rows[i].Context)
		}
	}
	var costs []Cost
	for i := range rows {
		if p := &rows[i]; counts(p) && p.Context == context && p.Rows > 0 && p.Median >= 0 {
			costs = append(costs, Cost{Rows: p.Rows, Seconds: p.Median / 1e3, Passes: 1})
		}
	}
	if len(costs) == 0 {
		return nil, errors.New("it has no passes: want a file of lab decode --out")
	}
	return costs, nil
}

// CostTable lays out what passes cost, model by model.
func (r *Recording) CostTable() table.Table {
	t := table.Table{Header: []string{"model", "rows recorded", "ms of a pass by its rows"}}
	for i := range r.Channels {
		c := &r.Channels[i]
		rows, costs := 0, ""
		for _, n := range c.Rows {
			rows += len(n.Parent)
		}
		for k, x := range c.Costs {
			if k > 0 && x.Rows < 2*c.Costs[k-1].Rows && k < len(c.Costs)-1 && x.Rows&(x.Rows-1) != 0 {
				continue
			}
			costs += fmt.Sprintf(" %d: %.2f", x.Rows, 1e3*x.Seconds)
		}
		t.Cells = append(t.Cells, []string{c.Name, fmt.Sprint(rows), costs})
	}
	return t
}

// Sets returns the recorded prompts by set, for a bench.Config.
func (r *Recording) Sets() (sets []bench.Set) {
	for _, t := range r.Texts {
		i := slices.IndexFunc(sets, func(s bench.Set) bool { return s.Name == t.Set })
		if i < 0 {
			i = len(sets)
			sets = append(sets, bench.Set{Name: t.Set})
		}
		if !slices.ContainsFunc(sets[i].Prompts, func(p bench.Prompt) bool { return p.Name == t.Prompt }) {
			sets[i].Prompts = append(sets[i].Prompts, bench.Prompt{Name: t.Prompt, Tokens: t.Tokens[:t.Start]})
		}
	}
	return sets
}

// Temperatures returns the temperatures of the texts.
func (r *Recording) Temperatures() (out []float64) {
	for _, t := range r.Texts {
		if !slices.Contains(out, t.Temperature) {
			out = append(out, t.Temperature)
		}
	}
	return out
}

// Seeds returns the seeds of the texts.
func (r *Recording) Seeds() (out []uint64) {
	for _, t := range r.Texts {
		if !slices.Contains(out, t.Seed) {
			out = append(out, t.Seed)
		}
	}
	return out
}

// find returns the text of a prompt, -1 if it was not recorded.
func (r *Recording) find(set, prompt string, temperature float64, seed uint64) int {
	return slices.IndexFunc(r.Texts, func(t Text) bool {
		return t.Set == set && t.Prompt == prompt && t.Temperature == temperature && t.Seed == seed
	})
}

func candidates(cs []infer.Candidate) (out Candidates) {
	for _, c := range cs {
		out.Token, out.LogProb = append(out.Token, c.Token), append(out.LogProb, c.LogProb)
	}
	return out
}
