package model

import (
	"fmt"
	"slices"

	"talf/compute"
)

// likely are the k most likely tokens of every row of a pass, on the host.
type likely struct {
	k    int // 0: none
	used bool
	ids  []int32   // [rows][k]
	logp []float32 // [rows][k]
}

// read queues a read of the k most likely tokens of n rows.
func (b *likely) read(q compute.Replayer, logits compute.Buffer, k, n int) {
	b.room(k, n)
	q.ReadTopK(b.ids, b.logp, logits, k, n)
}

// room makes room for k tokens of n rows.
func (b *likely) room(k, n int) {
	b.ids, b.logp = slices.Grow(b.ids[:0], n*k)[:n*k], slices.Grow(b.logp[:0], n*k)[:n*k]
	b.k, b.used = k, false
}

// copyTo copies the first k tokens of rows [row,row+n) to ids, and their log-probabilities to logp unless it is nil.
func (b *likely) copyTo(ids []int32, logp []float32, row, n, k int) {
	b.used = true
	for i := range n {
		at := (row + i) * b.k
		copy(ids[i*k:][:k], b.ids[at:])
		if logp != nil {
			copy(logp[i*k:][:k], b.logp[at:])
		}
	}
}

// drawn are the tokens that a pass was asked for, and has drawn.
type drawn struct {
	asked  []compute.Draw // [rows]
	some   bool           // one of them asks for a token
	tokens []int32        // [rows], empty unless the device draws them
}

// begin forgets everything.
func (d *drawn) begin() { d.asked, d.tokens, d.some = d.asked[:0], d.tokens[:0], false }

// add notes what is asked of the next n rows; nil asks for nothing. It panics if draws are for another number of rows.
func (d *drawn) add(draws []compute.Draw, n int) {
	if draws != nil && len(draws) != n {
		panic(fmt.Sprintf("model: %d draws from %d rows of logits", len(draws), n))
	}
	at := len(d.asked)
	d.asked = slices.Grow(d.asked, n)[:at+n]
	clear(d.asked[at:])
	copy(d.asked[at:], draws)
	d.some = d.some || len(draws) > 0
}

// queue queues the draws.
func (d *drawn) queue(q compute.Drawer, logits compute.Buffer) {
	if n := len(d.asked); d.some {
		d.tokens = slices.Grow(d.tokens[:0], n)[:n]
		if !q.Draw(d.tokens, logits, d.asked, n) {
			d.tokens = d.tokens[:0]
		}
	}
}

// any reports whether tokens are drawn.
func (d *drawn) any() bool { return len(d.tokens) > 0 }

// drop forgets the tokens, because the pass failed.
func (d *drawn) drop() { d.tokens = d.tokens[:0] }

// at returns the token of a row, if it is the one that is asked for.
func (d *drawn) at(row int, asked compute.Draw) (token int32, ok bool) {
	if !d.any() || d.asked[row] != asked || d.tokens[row] < 0 {
		return 0, false
	}
	return d.tokens[row], true
}
