package draft

import (
	"slices"

	"talf/infer/draft/method"
	"talf/infer/lookup"
	"talf/infer/lookup/datastore"
)

// open asks the training-free sources for the tokens that follow c.
func (d *fuse) open(c int32) {
	if d.cands[c].opened {
		return
	}
	d.cands[c].opened = true
	if d.may != nil {
		d.place(c)
	}
	if d.cfg.context {
		d.openContext(c)
	}
	if d.Table != nil {
		before := d.tokenBefore(c)
		pair, token := d.Table.Tiers(before, d.cands[c].token)
		d.openTable(c, fromPair, pair)
		d.openTable(c, fromToken, token)
	}
	if d.shared.store != nil {
		d.openStore(c)
	}
	d.settle(c)
}

// place puts c into the tree of opened candidates, where its parent is.
func (d *fuse) place(c int32) {
	x := &d.cands[c]
	if x.place = 0; x.parent < 0 {
		return
	}
	if x.place = d.cands[x.parent].place; x.place >= 0 && d.opened.Room() > 0 {
		x.place = int32(d.opened.Add(int(x.place), x.token))
	} else {
		x.place = -1
	}
}

// follows reports whether a token may follow c, which is open. What cannot come would take the places of
// tokens that can, and teach the calibration that its source was wrong.
func (d *fuse) follows(c, token int32) bool {
	return d.may == nil || d.cands[c].place < 0 || d.may(&d.opened, int(d.cands[c].place), token)
}

// tokenBefore returns the token before candidate c, -1 if there is none.
func (d *fuse) tokenBefore(c int32) int32 {
	if up := d.cands[c].parent; up >= 0 {
		return d.cands[up].token
	}
	if d.pos > 0 {
		return d.Context.Tokens()[d.pos-1]
	}
	return -1
}

func (d *fuse) openTable(c int32, o origin, next []lookup.Successor) {
	rank := 0
	for _, s := range next {
		if !d.follows(c, s.Token) {
			continue
		}
		d.cands[c].know |= 1 << o
		d.propose(c, s.Token, o, rank, float64(s.Score))
		rank++
	}
}

// contextPrior is the probability, by the number of matching tokens, that what followed the
// latest occurrence of a match follows again.
var contextPrior = [...]float64{0.02, 0.15, 0.3, 0.45, 0.55, 0.65, 0.7, 0.75, 0.8, 0.82, 0.84, 0.86, 0.88, 0.9, 0.91, 0.92, 0.93}

// openContext proposes tokens that followed c's path earlier in the sequence.
func (d *fuse) openContext(c int32) {
	x := &d.cands[c]
	if c > 0 {
		// The places that its parent follows and that continue with its token.
		up := &d.cands[x.parent]
		for i := range up.places {
			if d.token(x.parent, up.at[i]) == x.token && d.follows(c, d.token(c, up.at[i]+1)) {
				x.at[x.places], x.long[x.places] = up.at[i]+1, min(up.long[i]+1, fuseLong)
				x.places++
			}
		}
	}
	if x.places == 0 {
		d.findPlaces(c)
	}
	if x.places == 0 {
		return
	}
	x.know |= 1 << fromContext
	// Places are sorted: longest match first, then newest first.
	at, long, places := x.at, x.long, int(x.places)
	rank := 0
	for i := range places {
		t := d.token(c, at[i])
		agree := 0
		seen := false
		for j := range places {
			if d.token(c, at[j]) == t {
				agree++
				seen = seen || j < i
			}
		}
		if seen {
			continue
		}
		q := contextPrior[min(int(long[i]), len(contextPrior)-1)]
		// The other places confirm or contradict it.
		q = q * (float64(agree) + 0.5) / (float64(places) + 0.5)
		d.propose(c, t, fromContext, rank, q)
		rank++
	}
}

// token returns the token at a position, which may lie beyond the end of the sequence on the
// path to c.
func (d *fuse) token(c, at int32) int32 {
	n := int32(d.Context.Len())
	if at < n {
		return d.Context.Tokens()[at]
	}
	for want := at - n + 1; d.cands[c].depth > want; {
		c = d.cands[c].parent
	}
	return d.cands[c].token
}

// findPlaces looks up the end of c's path in the index.
func (d *fuse) findPlaces(c int32) {
	d.tail(c, fuseGrams)
	seq := d.Context.Tokens()
	x := &d.cands[c]
	for n := len(d.key); n >= 1 && x.places < fusePlaces; n-- {
		at := -1
		if c == 0 {
			at = d.Context.Earlier(n, len(seq))
		} else {
			at = d.Context.Find(d.key[len(d.key)-n:])
		}
		for ; at > 0 && x.places < fusePlaces; at = d.Context.Earlier(n, at) {
			if slices.Contains(x.at[:x.places], int32(at)) || !d.follows(c, d.token(c, int32(at))) {
				continue
			}
			long := n
			if c == 0 && n == fuseGrams {
				long = d.Context.Length(at, fuseLong)
			}
			x.at[x.places], x.long[x.places] = int32(at), int8(long)
			x.places++
		}
	}
}

// openStore proposes tokens that follow c's path in the datastore: at the places that its parent
// follows and, if these are few, at those of shorter suffixes of the path.
func (d *fuse) openStore(c int32) {
	m := d.cands[c].store
	rank := d.proposeStore(c, m, 0)
	for most := fuseStore; d.finds < fuseFinds && m.Count() < fuseFew && rank < fuseWidth; d.finds++ {
		if m.Count() > 0 {
			most = m.Len() - 1
		}
		d.tail(c, fuseStore)
		if m = d.shared.store.Longest(d.key, 1, most); m.Count() == 0 {
			break
		}
		rank = d.proposeStore(c, m, rank)
	}
}

func (d *fuse) proposeStore(c int32, m datastore.Match, rank int) int {
	if m.Count() == 0 {
		return rank
	}
	var may func(token int32) bool
	if d.may != nil {
		may = func(token int32) bool { return d.follows(c, token) }
	}
	if d.succ = method.Following(d.succ[:0], d.shared.store, m, fuseWidth-rank, may); may == nil || len(d.succ) > 0 {
		d.cands[c].know |= 1 << fromStore
	}
	for _, y := range d.succ {
		// A match of few tokens, or with few occurrences, says less.
		q := float64(y.Count()) / (float64(m.Count()) + 0.5) * (1 - 1/(1+float64(m.Len())))
		k := d.propose(c, y.Token, fromStore, rank, q)
		if d.cands[k].store.Count() == 0 {
			d.cands[k].store = y.Match
			rank++
		}
	}
	return rank
}

// tail sets key to the last tokens, most at most, of the sequence and the path to c.
func (d *fuse) tail(c int32, most int) {
	d.key = d.key[:0]
	for k := c; k > 0 && len(d.key) < most; k = d.cands[k].parent {
		d.key = append(d.key, d.cands[k].token)
	}
	seq := d.Context.Tokens()
	for i := len(seq) - 1; i >= 0 && len(d.key) < most; i-- {
		d.key = append(d.key, seq[i])
	}
	slices.Reverse(d.key)
}
