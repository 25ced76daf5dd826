// Package results is what a pass brings to the host without another wait: likely tokens of its rows of logits, and
// drawn ones.
package results

import (
	"fmt"
	"slices"

	"talf/compute"
)

// Likely are the K most likely tokens of every row of a pass, on the host.
type Likely struct {
	K       int // 0: none
	Used    bool
	IDs     []int32   // [rows][K]
	LogProb []float32 // [rows][K]
}

// Read queues a read of the k most likely tokens of n rows.
func (b *Likely) Read(q compute.Replayer, logits compute.Buffer, k, n int) {
	b.Room(k, n)
	q.ReadTopK(b.IDs, b.LogProb, logits, k, n)
}

// Room makes room for k tokens of n rows.
func (b *Likely) Room(k, n int) {
	b.IDs, b.LogProb = slices.Grow(b.IDs[:0], n*k)[:n*k], slices.Grow(b.LogProb[:0], n*k)[:n*k]
	b.K, b.Used = k, false
}

// Copy copies the first k tokens of rows [row,row+n) to ids, and their log-probabilities to logp unless it is nil.
func (b *Likely) Copy(ids []int32, logp []float32, row, n, k int) {
	b.Used = true
	for i := range n {
		at := (row + i) * b.K
		copy(ids[i*k:][:k], b.IDs[at:])
		if logp != nil {
			copy(logp[i*k:][:k], b.LogProb[at:])
		}
	}
}

// Drawn are the tokens that a pass was asked for, and has drawn.
type Drawn struct {
	asked  []compute.Draw // [rows]
	some   bool           // one of them asks for a token
	tokens []int32        // [rows], empty unless the device draws them
}

// Begin forgets everything.
func (d *Drawn) Begin() { d.asked, d.tokens, d.some = d.asked[:0], d.tokens[:0], false }

// Add notes what is asked of the next n rows; nil asks for nothing. It panics if draws are for another number of rows.
func (d *Drawn) Add(draws []compute.Draw, n int) {
	if draws != nil && len(draws) != n {
		panic(fmt.Sprintf("model: %d draws from %d rows of logits", len(draws), n))
	}
	at := len(d.asked)
	d.asked = slices.Grow(d.asked, n)[:at+n]
	clear(d.asked[at:])
	copy(d.asked[at:], draws)
	d.some = d.some || len(draws) > 0
}

// Queue queues the draws.
func (d *Drawn) Queue(q compute.Drawer, logits compute.Buffer) {
	if n := len(d.asked); d.some {
		d.tokens = slices.Grow(d.tokens[:0], n)[:n]
		if !q.Draw(d.tokens, logits, d.asked, n) {
			d.tokens = d.tokens[:0]
		}
	}
}

// Any reports whether tokens are drawn.
func (d *Drawn) Any() bool { return len(d.tokens) > 0 }

// Drop forgets the tokens, because the pass failed.
func (d *Drawn) Drop() { d.tokens = d.tokens[:0] }

// At returns the token of a row, if it is the one that is asked for.
func (d *Drawn) At(row int, asked compute.Draw) (token int32, ok bool) {
	if !d.Any() || d.asked[row] != asked || d.tokens[row] < 0 {
		return 0, false
	}
	return d.tokens[row], true
}
