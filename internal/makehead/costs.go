package makehead

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"talf/infer/decode"
	"talf/internal/units"
	"talf/model"
	"talf/model/arch"
	"talf/train"
	"talf/train/net"
)

// Costs are what a run is expected to take, said before it begins. Seconds are those of this machine when it was asked;
// they are for reading and decide nothing.
type Costs struct {
	Row      float64 `json:"seconds_row"`  // of a long pass of the model
	Pass     float64 `json:"seconds_pass"` // of one row
	Answer   float64 `json:"seconds_answer"`
	Label    float64 `json:"seconds_label"`
	Train    float64 `json:"seconds_train"` // at most: stages end early
	Measure  float64 `json:"seconds_measure"`
	Network  string  `json:"network"` // of the head, in full
	Taps     []int   `json:"taps,omitempty"`
	Outputs  int     `json:"outputs,omitempty"` // tokens that it predicts; 0: those that the labels show to be worth it
	Head     int64   `json:"head_weights"`      // number
	Features int64   `json:"feature_bytes"`
	Disk     int64   `json:"disk_bytes"`
	Memory   int64   `json:"memory_bytes"`
}

const (
	// probe is the length in tokens of the prompt that is timed.
	probe = 128
	// promptShare is how many tokens of a prompt are expected beside as many of its answer: it holds for the prompts
	// of asking.txt, with a template around them.
	promptShare = 0.5
	// shared is how many answers share a pass.
	shared = 16
	// featureBytes is how much hidden states on disk may take. If they take more, training computes them again: a
	// pass over the text for every epoch.
	featureBytes = 1 << 30
	// labelBytes is what a node's label takes in a shard: 16 tokens with their probabilities, compressed.
	labelBytes = 60
	// unrolled is how many steps the loss eagle3 unrolls, unless it says otherwise.
	unrolled = 7
	// backward is how many times the work of a row's pass training it is, as measured on SmolLM2: its two products
	// more are in float32, which are faster than the model's.
	backward = 2
	// expected is how many tokens a head is expected to predict.
	expected = 8192
)

// network returns a head of the plan's network for a model s, of an expected vocabulary, and the states of the model that
// it reads: EAGLE-3's, unless the network names others.
func (p *Plan) network(s *arch.Spec) (*arch.Spec, []int, error) {
	n, err := net.ParseNetwork(p.Network)
	if err != nil {
		return nil, nil, err
	}
	taps, err := arch.DefaultTaps(s.Layers)
	if err != nil { // too few layers: the first, the middle and the last state that there is
		last := s.Layers
		if !n.Eagle3() {
			last = max(0, last-1) // which no block head reads
		}
		taps = slices.Compact([]int{0, s.Layers / 2, last})
	}
	d, err := n.Spec(s, train.Default().Layers, 0, false, taps)
	if err != nil {
		return nil, nil, err
	}
	if d.Block.SelectorRank == 0 { // which scores all tokens
		d.DraftVocab = min(expected, s.Vocab)
	}
	taps, err = d.TapsOf(s)
	return d, taps, err
}

// costs measures two passes and says what the run will take.
func (r *run) costs(ctx context.Context) error {
	w, end, err := r.open(ctx, false)
	if err != nil {
		return err
	}
	defer end()
	head, taps, outputs, err := r.head(w.model)
	if err != nil {
		return err
	}
	c := &Costs{Taps: taps, Network: r.Plan.Network, Outputs: outputs}
	if name := net.NetworkOf(head, taps); name != "" {
		c.Network = name
	}
	if err := c.measure(ctx, w.model, w); err != nil {
		return err
	}
	c.estimate(&r.Plan, w.model.Spec(), head, w.model.Held().Memory)
	r.state.Result.Costs = c
	if p := &r.Plan; p.Hours > 0 {
		r.Tools.Tell(fmt.Sprintf("    %.1f hours: %.0f%% of them for answers, the rest to learn them; a head of %.1fM weights", p.Hours, 100*answering, float64(c.Head)/1e6))
	} else {
		r.Tools.Tell(c.String())
	}
	return nil
}

// head returns the head that training makes or starts from, the states of the model that it reads, and how many tokens it
// predicts; 0: the labels decide. It refuses what training could not start, before hours are spent on what it learns
// from.
func (r *run) head(m *model.Model) (d *arch.Spec, taps []int, outputs int, err error) {
	fail := func(err error) (*arch.Spec, []int, int, error) { return nil, nil, 0, err }
	if d, taps, err = r.Plan.network(m.Spec()); err != nil {
		return fail(err)
	}
	if dev := m.Device(); d.Block.On {
		if err := net.Trains(d, dev.Name(), dev.Queue().Abilities()); err != nil {
			return fail(err)
		}
	}
	if !r.Plan.starts() {
		if d.Block.On && r.Plan.Init == Linear && m.Spec().LayerNorm {
			return fail(errors.New("the model has LayerNorm, and a linear block reads its last state under an RMS norm: use --network eagle"))
		}
		if d.Block.SelectorRank > 0 {
			outputs = d.Vocab
		}
		return d, taps, outputs, nil
	}
	c := train.Default()
	c.Network = r.Plan.Network
	own, at, err := train.Shape(c, train.HeadJob{Target: m, Init: r.Plan.Init})
	if err != nil {
		return fail(err)
	}
	if at == nil { // of EAGLE's network, which training reads later
		h, err := decode.LoadHead(r.Plan.Init, m, true, r.Tools.Warn)
		if err != nil {
			return fail(fmt.Errorf("initial %w", err))
		}
		// It was taught more text than follows, which chose its tokens better.
		if n := h.Spec().DraftVocab; n > 0 {
			d.DraftVocab, outputs = n, n
		}
		return d, taps, outputs, h.Close()
	}
	_, h, err := decode.HeadSource(r.Plan.Init, m, true, r.Tools.Warn, 0)
	if err != nil {
		return fail(fmt.Errorf("initial %w", err))
	}
	return own, at, cmp.Or(own.DraftVocab, own.Vocab), h.Close()
}

// estimate says what p takes for a model s and a head d of it, if c has measured the model's passes and its weights take
// held bytes. With hours in place of tokens, it says only what the head is.
func (c *Costs) estimate(p *Plan, s, d *arch.Spec, held int64) {
	c.Head = int64(d.Params())
	n := float64(p.Tokens)
	if n == 0 {
		return
	}
	nodes := 1 + float64(p.K*(p.Depth-1))
	c.Answer = n * (c.Pass + shared*c.Row) / shared
	c.Label = n * c.Row * (1 + promptShare + train.Default().Held*(nodes-1))
	rows, epochs := p.passes(nodes)
	c.Train = n * (1 + promptShare) * c.Row * rows * backward * float64(c.Head) / float64(s.Params())
	answers := float64(p.held() * 2 * 3) // at two temperatures, plainly, without and with the head
	c.Measure = answers * float64(p.Measure) * c.Pass
	states := int64(max(1, len(c.Taps)) * s.Hidden * 2)
	c.Features = int64(n*(1+promptShare)) * states
	c.Disk = int64(n*nodes*labelBytes) + 3*12*c.Head + int64(n)*12
	if c.Features <= featureBytes {
		c.Disk += c.Features
	} else {
		c.Train += n * (1 + promptShare) * c.Row * epochs
	}
	kv := int64(s.Layers) * int64(s.KVElements()) * 4
	c.Memory = held + max(int64(p.Side*(p.MaxTokens+probe))*kv, p.training(s, d, nodes))
}

// training returns the bytes that training takes beside the model's weights: the head with gradients and moments, the
// model's embedding, and what waits for the backward pass, all in float32, or what the linear start takes before. A row keeps
// about ten vectors of the hidden size and three of the feed-forward network's.
func (p *Plan) training(s, head *arch.Spec, nodes float64) int64 {
	rows := float64(p.Rows) * max(nodes, unrolled)
	step := 4 * int64(rows) * int64(10*s.Hidden+3*s.FFN)
	if p.Init == Linear {
		step = max(step, train.LinearMemory(head))
	}
	return 4*(4*int64(head.Params())+int64(s.Vocab*s.Hidden)) + step
}

// passes returns how many rows of the head are trained for a token, all epochs together, and how many epochs there are.
// nodes is the number of nodes of a tree.
func (p *Plan) passes(nodes float64) (all, epochs float64) {
	c := train.Default()
	for _, text := range p.Stages {
		s, err := train.ParseStage(text, c)
		if err != nil {
			continue // training says so
		}
		rows := nodes
		switch name, _, _ := strings.Cut(s.Loss, ":"); name {
		case "eagle3":
			if rows = unrolled; strings.Contains(s.Loss, "steps=") {
				_, steps, _ := strings.Cut(s.Loss, "steps=")
				_, _ = fmt.Sscanf(steps, "%f", &rows) // training has checked it
			}
		case "dflash":
			rows = 1 // of a block, for each token
		}
		all, epochs = all+rows*s.Epochs, epochs+s.Epochs
	}
	return all, epochs
}

// measure times a pass over a prompt and passes of one row.
func (c *Costs) measure(ctx context.Context, m *model.Model, w *writer) error {
	o := decode.Default()
	o.IgnoreEOS = true
	d, err := decode.New(decode.Config{Target: m, Tokenizer: w.tok, Options: o})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only read
	ids := make([]int32, min(probe, m.Spec().MaxPos/2))
	for i := range ids {
		ids[i] = int32(i % m.Spec().Vocab)
	}
	const passes = 8
	took := func(n int) (float64, error) {
		o.MaxTokens = n
		req, err := o.Request(nil, nil, ids, 0)
		if err != nil {
			return 0, err
		}
		begun := time.Now()
		_, err = d.Engine().Generate(ctx, req)
		return time.Since(begun).Seconds(), err
	}
	var a, b float64
	for range 2 { // the first warms up
		if a, err = took(1); err == nil {
			b, err = took(1 + passes)
		}
		if err != nil {
			return err
		}
	}
	c.Row, c.Pass = a/float64(len(ids)), max(b-a, 0)/passes
	return nil
}

// String says what the run will take.
func (c *Costs) String() string {
	about := func(s float64) string {
		d := time.Duration(s * float64(time.Second))
		if d < 10*time.Minute {
			return d.Round(time.Second).String()
		}
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	disk := "with the hidden states that the head reads"
	if c.Features > featureBytes {
		disk = "without hidden states, which training computes again"
	}
	return fmt.Sprintf(`    about %s: %s for answers, %s for labels, at most %s to train, %s to measure
    at most %s of disk, %s, and about %s of memory; a head of %.1fM weights`,
		about(c.Answer+c.Label+c.Train+c.Measure), about(c.Answer), about(c.Label), about(c.Train), about(c.Measure),
		units.Bytes(uint64(c.Disk)), disk, units.Bytes(uint64(c.Memory)), float64(c.Head)/1e6)
}
