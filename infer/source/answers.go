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

	tokens []int32 // translated
	mapped []float32
	full   []float32
}

// spare returns how many tokens to read for width if some may have no counterpart: twice as
// many, and a few more.
func spare(width int) int { return 2*width + 8 }

// read takes what asks need from a pass: one top-k over all logits rows, of which outputs of
// size tokens may be likely.
func (x *answers) read(asks []infer.Ask, out *model.Output, size, outputs int, vocab *Vocab) {
	width, full := 1, false
	for _, a := range asks {
		width, full = max(width, a.Width), full || a.Full
	}
	if vocab != nil && vocab.same {
		vocab = nil
	}
	x.vocab, x.size = vocab, size
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
	if total > 0 {
		out.TopK(x.ids, x.logps, 0, total, x.wide)
	}
	x.logit = x.logit[:0]
	if full && total > 0 {
		x.logit = slices.Grow(x.logit, total*size)[:total*size]
		out.ReadLogits(x.logit, 0)
	}
	x.rows = x.rows[:0]
	if vocab == nil {
		return
	}
	// Rows are slices of these, which must not move while rows are added.
	n := 0
	for _, a := range asks {
		n += a.Tree.Len() - a.From
	}
	x.tokens = slices.Grow(x.tokens[:0], n*x.wide)
	x.mapped = slices.Grow(x.mapped[:0], n*x.wide)
	if full {
		x.full = slices.Grow(x.full[:0], n*vocab.target)
	}
}

// append adds row r of the logits for ask a; an empty row if r < 0.
func (x *answers) add(a *infer.Ask, r int) {
	if r < 0 {
		x.rows = append(x.rows, infer.Row{})
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
