// Package mix chooses what a draft head learns from: labelled sets with their weights, the
// sequences that are drawn from them, and a draft vocabulary counted in them.
package mix

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"talf/data"
)

// A Share is a set of data and how much is learned from it.
type Share struct {
	Set *data.Set
	Dir string // as given to Open
	// Weight is proportional to the positions that are taken from the set. It has no effect if
	// there is only one set. A set that is exhausted starts again on its own.
	Weight float64
}

// Shares are what one run learns from.
type Shares []Share

// Only returns a single set.
func Only(s *data.Set) Shares { return Shares{{Set: s, Weight: 1}} }

// ParseShare parses DIR, with weight 1, or DIR=WEIGHT. An existing directory whose name looks
// like the latter is taken literally.
func ParseShare(text string) (dir string, weight float64, err error) {
	if _, err := os.Stat(text); err == nil {
		return text, 1, nil
	}
	i := strings.LastIndexByte(text, '=')
	if i < 0 {
		return text, 1, nil
	}
	weight, err = strconv.ParseFloat(text[i+1:], 64)
	if err != nil || !(weight > 0 && weight <= 1e6) {
		return "", 0, fmt.Errorf("%s: want DIR=WEIGHT, the weight more than 0 and at most 1e6", text)
	}
	return text[:i], weight, nil
}

// Open opens the sets named by texts in ParseShare's syntax. The caller closes them.
func Open(texts []string) (Shares, error) {
	var all Shares
	for _, text := range texts {
		dir, weight, err := ParseShare(text)
		if err == nil {
			var set *data.Set
			if set, err = data.Open(dir); err == nil {
				all = append(all, Share{Set: set, Dir: dir, Weight: weight})
				continue
			}
		}
		return nil, errors.Join(err, all.Close())
	}
	return all, nil
}

// Close closes the sets.
func (s Shares) Close() error {
	var errs []error
	for _, x := range s {
		errs = append(errs, x.Set.Close())
	}
	return errors.Join(errs...)
}

// Tokens returns the number of tokens in all sets.
func (s Shares) Tokens() (n int64) {
	for _, x := range s {
		for _, shard := range x.Set.Shards() {
			n += shard.Tokens
		}
	}
	return n
}

// ID identifies the sets and their weights.
func (s Shares) ID() string {
	if len(s) == 1 {
		return s[0].Set.ID()
	}
	var ids []string
	for _, x := range s {
		ids = append(ids, fmt.Sprintf("%s=%v", x.Set.ID(), x.Weight))
	}
	return strings.Join(ids, "+")
}

// Learnt reports whether head position i of a record counts. It predicts token i+2 and counts if
// the token early places before that is in the loss mask. Training-time test has published masks
// with early 1 and 2; all else has 0.
func Learnt(r *data.Record, i, early int) bool {
	at := i + 2 - early
	return at < len(r.Tokens) && r.LossMask[at]
}

// Span returns the number of head positions that a record needs, up to the last one that counts as
// Learnt says. Positions from limit on are cut off. The last position that has a label is that of
// the last token but one.
func Span(r *data.Record, limit, early int) int {
	for i := min(limit, len(r.Tokens)-1) - 1; i >= 0; i-- {
		if Learnt(r, i, early) {
			return i + 1
		}
	}
	return 0
}

// Counted returns the number of head positions of a record that count.
func Counted(r *data.Record, limit, early int) int {
	n := 0
	for i := range Span(r, limit, early) {
		if Learnt(r, i, early) {
			n++
		}
	}
	return n
}
