package micro

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"talf/internal/plot"
	"talf/internal/table"
	"talf/model"
	"talf/tree"
)

// A PassModel is a model whose passes are measured.
type PassModel struct {
	Name   string // such as the type of its weights
	Model  *model.Model
	Device *Timed // the one that Model was loaded on
	// Read reads as many bytes as a pass reads of the weights and returns the speed in
	// bytes/s; nil leaves that column out.
	Read func() float64
}

// A PassConfig says how passes are measured.
type PassConfig struct {
	Rows    []int // sizes of the trees; costs are relative to the first
	Prompt  int   // also measure a prompt of this many tokens, from an empty cache; 0: none
	Context int   // positions before the tree
	Reps    int   // how often every model and size is measured
	Seed    uint64
}

// DefaultPasses returns the configuration of the roofline tables.
func DefaultPasses() PassConfig {
	return PassConfig{Rows: []int{1, 2, 4, 8, 16, 32, 64}, Context: 256, Reps: 20, Seed: 1}
}

// Validate reports the first value that cannot be used.
func (c PassConfig) Validate() error {
	if len(c.Rows) == 0 {
		return errors.New("no sizes of trees to measure")
	}
	for _, n := range c.Rows {
		if n < 1 || n > tree.MaxNodes {
			return fmt.Errorf("a tree of %d nodes, want 1 to %d", n, tree.MaxNodes)
		}
	}
	if c.Prompt < 0 {
		return fmt.Errorf("a prompt of %d tokens", c.Prompt)
	}
	if c.Context < 1 || c.Reps < 1 {
		return fmt.Errorf("%d positions before the tree and %d repetitions, want at least 1 of each", c.Context, c.Reps)
	}
	return nil
}

// A PassRow is the cost of one size of tree for one model.
type PassRow struct {
	Model   string  `json:"model"`
	Prompt  bool    `json:"prompt,omitempty"` // a prompt, with the logits of its last token, instead of a tree
	Rows    int     `json:"rows"`
	Context int     `json:"context"`
	Best    float64 `json:"best_ms"`
	Median  float64 `json:"median_ms"`
	Ratio   float64 `json:"ratio"`        // of Best to the first size's
	Middle  float64 `json:"median_ratio"` // of Median to the first size's
	Bytes   int     `json:"weight_bytes"`
	// Bandwidth is Bytes over Best in bytes/s. ReadBest and ReadMid are the best and the
	// median speed of reading as much memory between the passes, 0 if not measured.
	Bandwidth float64 `json:"bandwidth"`
	ReadBest  float64 `json:"read_best"`
	ReadMid   float64 `json:"read_median"`
	Linear    float64 `json:"linear_share"` // of the median pass
	Attention float64 `json:"attention_share"`
	// Of a model with experts: those that a pass reads of a layer, the mean over the layers that have
	// some, and of each layer.
	Experts float64   `json:"experts,omitempty"`
	ByLayer []float64 `json:"experts_by_layer,omitempty"`
}

// OfRead returns the share of the read bandwidth that the median pass reaches. It compares
// medians because on a machine whose speed drifts the best read and the best pass may be
// minutes apart.
func (r *PassRow) OfRead() float64 {
	if r.ReadMid == 0 {
		return 0
	}
	return float64(r.Bytes) / (r.Median / 1e3) / r.ReadMid
}

type pass struct {
	total          time.Duration
	linear, attend time.Duration
}

// A series is what was measured of a model.
type series struct {
	PassModel
	seq     *model.Seq
	rows    [][]pass // by size; a prompt's last
	reads   []float64
	experts [][]int // by size and layer: experts that all passes read
}

// Passes measures passes of every model over trees of every size. They take turns, so that a
// change of the machine's speed affects them all alike. The trees are random, and the logits
// of every node are computed.
func Passes(ctx context.Context, models []PassModel, c PassConfig) ([]PassRow, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	sizes := c.Rows
	if c.Prompt > 0 {
		sizes = append(slices.Clip(sizes), c.Prompt)
	}
	all := make([]series, len(models))
	r := rand.New(rand.NewPCG(c.Seed, 0))
	for i, m := range models {
		s := &all[i]
		*s = series{m, m.Model.NewSeqOf(c.Context + slices.Max(c.Rows)), make([][]pass, len(sizes)), nil, make([][]int, len(sizes))}
		defer s.seq.Close()
		if _, err := s.seq.Append(ctx, randomTokens(r, m.Model, c.Context), nil, model.WantNone); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	trees := make([]*tree.Tree, len(c.Rows))
	for i, n := range c.Rows {
		trees[i] = randomTree(r, models[0].Model.Spec().Vocab, n)
	}
	for rep := range c.Reps + 1 { // the first round warms up
		for i := range all {
			s := &all[i]
			if s.Read != nil && rep > 0 {
				s.reads = append(s.reads, s.Read())
			}
			for k, t := range trees {
				if s.Model.Spec().Mixture.Experts > 0 {
					t = randomTree(r, s.Model.Spec().Vocab, t.Len()) // reads experts that those of the last round did not
				}
				b := s.seq.Branch(s.seq.Len())
				batch := []model.Segment{{Rows: b, Tree: t, Want: model.WantAll}}
				if err := s.time(k, rep > 0, func() error {
					defer b.Drop()
					_, err := s.Model.Forward(ctx, batch)
					return err
				}); err != nil {
					return nil, err
				}
			}
			if c.Prompt == 0 {
				continue
			}
			ids := randomTokens(r, s.Model, c.Prompt)
			fresh := s.Model.NewSeqOf(c.Prompt)
			err := s.time(len(trees), rep > 0, func() error {
				_, err := fresh.Append(ctx, ids, nil, model.WantLast)
				return err
			})
			fresh.Close()
			if err != nil {
				return nil, err
			}
		}
	}
	var out []PassRow
	for i := range all {
		first := len(out)
		for k, n := range sizes {
			row := all[i].row(k)
			if row.Rows, row.Prompt = n, k == len(c.Rows); !row.Prompt {
				row.Context = c.Context
			}
			out = append(out, row)
			out[len(out)-1].Ratio, out[len(out)-1].Middle = row.Best/out[first].Best, row.Median/out[first].Median
		}
	}
	return out, nil
}

// time runs a pass of size k, and keeps what it took if that counts.
func (s *series) time(k int, counts bool, run func() error) error {
	read := slices.Clone(s.Model.Experts().Layers)
	s.Device.take()
	since := time.Now()
	err := run()
	p := pass{total: time.Since(since)}
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	if p.linear, p.attend = s.Device.take(); counts {
		s.rows[k] = append(s.rows[k], p)
		s.experts[k] = sumRead(s.experts[k], read, s.Model.Experts().Layers)
	}
	return nil
}

// row sums up the passes of size k.
func (s *series) row(k int) PassRow {
	ps := s.rows[k]
	slices.SortFunc(ps, func(a, b pass) int { return int(a.total - b.total) })
	mid := ps[len(ps)/2]
	row := PassRow{
		Model: s.Name, Bytes: s.Model.WeightBytes(), Best: ms(ps[0].total), Median: ms(mid.total),
		Linear: ratio(mid.linear, mid.total), Attention: ratio(mid.attend, mid.total),
	}
	row.Bandwidth = float64(row.Bytes) / (row.Best / 1e3)
	if n := len(s.reads); n > 0 {
		slices.Sort(s.reads)
		row.ReadBest, row.ReadMid = s.reads[n-1], s.reads[n/2]
	}
	row.count(s.experts[k], s.Model.Experts().Sparse, len(ps))
	return row
}

// sumRead adds what was read of the experts of each layer from before to after to sum, which it
// makes when it is nil.
func sumRead(sum, before, after []int) []int {
	if sum == nil {
		sum = make([]int, len(after))
	}
	for i := range after {
		sum[i] += after[i] - before[i]
	}
	return sum
}

// count takes the experts that all passes of a row read, by layer.
func (r *PassRow) count(read []int, layers, passes int) {
	if layers == 0 {
		return
	}
	for _, n := range read {
		mean := float64(n) / float64(passes)
		r.ByLayer = append(r.ByLayer, mean)
		r.Experts += mean / float64(layers)
	}
}

func randomTokens(r *rand.Rand, m *model.Model, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(m.Spec().Vocab))
	}
	return ids
}

// randomTree returns a tree of n nodes with random parents and, for a mixture's sake, other tokens than those of
// the tree before.
func randomTree(r *rand.Rand, vocab, n int) *tree.Tree {
	t := new(tree.Tree)
	first := r.IntN(vocab)
	t.Reset(int32(first), n)
	for k := 1; k < n; k++ {
		// A vocabulary has at least as many tokens as a node has children here.
		t.Add(r.IntN(k), int32((first+k)%vocab))
	}
	return t
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

// PassTable lays out the rows; models with experts have a column of those that a pass reads of each layer.
func PassTable(rows []PassRow) table.Table {
	t := table.Table{Header: []string{"weights", "context", "rows", "ms, best", "ms, median", "cost over one", "by medians", "tokens/s", "GB/s", "of read", "attention"}}
	mixtures := slices.ContainsFunc(rows, func(r PassRow) bool { return r.Experts > 0 })
	if mixtures {
		t.Header = append(t.Header, "experts")
	}
	for i := range rows {
		r := &rows[i]
		of := "–"
		if r.ReadMid > 0 {
			of = fmt.Sprintf("%.0f%%", 100*r.OfRead())
		}
		context := fmt.Sprint(r.Context)
		if r.Prompt {
			context = "prompt"
		}
		t.Cells = append(t.Cells, []string{
			r.Model, context, fmt.Sprint(r.Rows), fmt.Sprintf("%.2f", r.Best), fmt.Sprintf("%.2f", r.Median),
			fmt.Sprintf("%.2f", r.Ratio), fmt.Sprintf("%.2f", r.Middle), fmt.Sprintf("%.0f", float64(r.Rows)/r.Median*1e3),
			fmt.Sprintf("%.1f", r.Bandwidth/1e9), of, fmt.Sprintf("%.0f%%", 100*r.Attention),
		})
		if mixtures {
			last := &t.Cells[len(t.Cells)-1]
			*last = append(*last, fmt.Sprintf("%.1f", r.Experts))
		}
	}
	return t
}

// PassFigure draws the cost of a pass relative to that of the first size, a line for each model
// and context. Prompts are left out.
func PassFigure(rows []PassRow) plot.Figure {
	f := plot.Figure{Title: "Cost of a pass over one of the fewest rows", X: "rows", Y: "cost", LogX: true, FromZero: true}
	for i := range rows {
		r := &rows[i]
		if r.Prompt {
			continue
		}
		name := fmt.Sprintf("%s, context %d", r.Model, r.Context)
		f.Add(name, float64(r.Rows), r.Ratio)
	}
	return f
}
