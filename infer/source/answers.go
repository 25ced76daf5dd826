package source

import (
	"slices"

	"talf/infer"
	"talf/model"
)

// answers turns the logits of a pass into rows. The next pass reuses their memory.
type answers struct {
	rows  []infer.Row
	vocab *Vocab // nil: the draft's ids are the target's
	ids   []int32
	logps []float32
	logit []float32
	wide  int // tokens of each logits row in ids and logps
	size  int // of a logits row

	tokens []int32 // translated, or of those that may follow
	mapped []float32
	full   []float32

	out    *model.Output
	filter filter
	row    []float32 // by the target's ids
	narrow []float32 // by the draft's
}

// spare returns how many tokens to read for width if some may have no counterpart: twice as
// many, and a few more.
func spare(width int) int { return 2*width + 8 }

// read takes what asks need from a pass: one top-k over all logits rows, of which outputs of
// size tokens may be likely.
func (x *answers) read(asks []infer.Ask, out *model.Output, size, outputs int, vocab *Vocab) {
	width, full, open, held := 1, false, false, false
	for _, a := range asks {
		if a.Tree == nil {
			continue
		}
		width, full = max(width, a.Width), full || a.Full
		open, held = open || a.Allow == nil, held || a.Allow != nil
	}
	if vocab != nil && vocab.same {
		vocab = nil
	}
	x.vocab, x.size, x.out = vocab, size, out
	if vocab != nil {
		width = spare(width)
	}
	x.wide = min(width, outputs)
	total := 0
	if out != nil {
		_, total = out.Rows()
	}
	x.ids = slices.Grow(x.ids[:0], total*x.wide)[:total*x.wide]
	x.logps = slices.Grow(x.logps[:0], total*x.wide)[:total*x.wide]
	if total > 0 && open {
		out.TopK(x.ids, x.logps, 0, total, x.wide)
	}
	x.logit = x.logit[:0]
	if full && total > 0 {
		x.logit = slices.Grow(x.logit, total*size)[:total*size]
		out.ReadLogits(x.logit, 0)
	}
	x.rows = x.rows[:0]
	if vocab == nil && !held {
		return
	}
	// Rows are slices of these, which must not move while rows are added.
	n := 0
	for _, a := range asks {
		n += a.Nodes() - a.From
	}
	x.tokens = slices.Grow(x.tokens[:0], n*x.wide)
	x.mapped = slices.Grow(x.mapped[:0], n*x.wide)
	if full && vocab != nil {
		x.full = slices.Grow(x.full[:0], n*vocab.target)
	}
}

// add adds row r of the logits for node n of ask a; an empty row if r < 0.
func (x *answers) add(a *infer.Ask, n, r int) {
	if r < 0 {
		x.rows = append(x.rows, infer.Row{})
		return
	}
	if a.Allow != nil {
		x.addAllowed(a, n, r)
		return
	}
	ids, logps := x.ids[r*x.wide:][:x.wide], x.logps[r*x.wide:][:x.wide]
	if x.vocab == nil {
		k := min(a.Width, x.wide)
		row := infer.Row{Tokens: ids[:k], LogProb: logps[:k]}
		if a.Full {
			row.Logits = x.logit[r*x.size:][:x.size]
		}
		x.rows = append(x.rows, row)
		return
	}
	at := len(x.tokens)
	// Read no further than this ask alone would have: a row must not depend on what else is in
	// the pass.
	k := min(spare(a.Width), x.wide)
	x.tokens, x.mapped = x.vocab.translate(x.tokens, x.mapped, ids[:k], logps[:k], at+a.Width)
	row := infer.Row{Tokens: x.tokens[at:], LogProb: x.mapped[at:]}
	if a.Full {
		n := len(x.full)
		x.full = x.full[:n+x.vocab.target]
		row.Logits = x.full[n:]
		x.vocab.logits(row.Logits, x.logit[r*x.size:][:x.size])
	}
	x.rows = append(x.rows, row)
}

// addAllowed is add for an ask that says what may follow.
func (x *answers) addAllowed(a *infer.Ask, n, r int) {
	row, allow := x.logits(a, r), a.Allow(n)
	at := len(x.tokens)
	tokens, mapped, ok := x.filter.best(x.tokens, x.mapped, row, allow, a.Width)
	x.tokens, x.mapped = tokens, mapped
	out := infer.Row{Tokens: x.tokens[at:], LogProb: x.mapped[at:]}
	if a.Full && ok {
		restrict(row, allow)
		out.Logits = row
	}
	x.rows = append(x.rows, out)
}

// logits returns row r by the target's ids. It may be written to, and if the ask is for whole rows it is
// valid until the next pass, otherwise until the next call.
func (x *answers) logits(a *infer.Ask, r int) []float32 {
	var narrow, row []float32
	if a.Full {
		narrow = x.logit[r*x.size:][:x.size]
	} else {
		x.narrow = slices.Grow(x.narrow[:0], x.size)[:x.size]
		narrow = x.narrow
		x.out.ReadLogits(narrow, r)
	}
	if x.vocab == nil {
		return narrow
	}
	if a.Full {
		n := len(x.full)
		x.full = x.full[:n+x.vocab.target]
		row = x.full[n:]
	} else {
		x.row = slices.Grow(x.row[:0], x.vocab.target)[:x.vocab.target]
		row = x.row
	}
	x.vocab.logits(row, narrow)
	return row
}
