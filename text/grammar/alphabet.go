package grammar

import (
	"unicode/utf8"

	"talf/internal/limits"
	"talf/text/grammar/internal/index"
)

// Most tokens of a vocabulary are words, and most places where many tokens may come allow any word: in a
// string, in a name, in what a pattern such as [a-z0-9_]{1,64} matches. So tokens are told apart by
// the characters that they are made of and by how many these are. If every text of some characters
// goes on from a state, which takes some steps to find out, the tokens made of these are in its mask at
// once, and the walk through the trie passes over what is below nodes that lead to no others. (The
// slices of llguidance are a fixed list of regular expressions with the same purpose.)

// An alphabet is a set of kinds of characters.
type alphabet uint16

const (
	lower alphabet = 1 << iota
	upper
	digit
	hyphen
	underscore
	period
	blank
	slash
	marks  // the rest of ASCII that JSON writes as it is in strings
	beyond // whole characters beyond ASCII
	other  // control characters, what JSON escapes, parts of characters, and more than most characters

	plain = other - 1
	kinds = 11 // how many there are
)

// most is the length of a token, in characters, that is not other.
const most = 32

// alphabets are those of ASCII characters.
var alphabets = func() (of [utf8.RuneSelf]alphabet) {
	for c := range of {
		switch {
		case 'a' <= c && c <= 'z':
			of[c] = lower
		case 'A' <= c && c <= 'Z':
			of[c] = upper
		case '0' <= c && c <= '9':
			of[c] = digit
		case c < ' ' || c == '"' || c == '\\':
			of[c] = other
		default:
			of[c] = marks
		}
	}
	of['-'], of['_'], of['.'], of[' '], of['/'] = hyphen, underscore, period, blank, slash
	return of
}()

// alphabetOf returns what a token is made of, and of how many characters.
func alphabetOf(token []byte) (a alphabet, length int) {
	if len(token) > utf8.UTFMax*most || !utf8.Valid(token) {
		return other, most
	}
	if length = utf8.RuneCount(token); length > most {
		return other, most
	}
	for _, c := range token {
		if c < utf8.RuneSelf {
			a |= alphabets[c]
		} else {
			a |= beyond
		}
	}
	return a, length
}

// plainStart returns of how many bytes the plain characters are that b begins with.
func plainStart(b []byte) int {
	n := 0
	for n < len(b) {
		if b[n] < utf8.RuneSelf {
			if alphabets[b[n]] == other {
				break
			}
			n++
			continue
		}
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return n
}

// utf8Ranges are the bytes that may come within an encoding of a character beyond ASCII, and where they lead: 0
// is between characters. (The Unicode Standard, table 3-7.)
var utf8Ranges = [8][]struct {
	lo, hi byte
	to     uint8
}{
	0: {{0xC2, 0xDF, 1}, {0xE0, 0xE0, 4}, {0xE1, 0xEC, 2}, {0xED, 0xED, 5}, {0xEE, 0xEF, 2}, {0xF0, 0xF0, 6}, {0xF1, 0xF3, 3}, {0xF4, 0xF4, 7}},
	1: {{0x80, 0xBF, 0}},
	2: {{0x80, 0xBF, 1}},
	3: {{0x80, 0xBF, 2}},
	4: {{0xA0, 0xBF, 1}},
	5: {{0x80, 0x9F, 1}},
	6: {{0x90, 0xBF, 2}},
	7: {{0x80, 0x8F, 2}},
}

// A place is a state, within a character or between two.
type place struct {
	s  *State
	at uint8
}

// A move is a byte that may come next in a text of some kinds of characters, one of those that no stack of a
// state tells apart.
type move struct {
	c     byte
	kinds alphabet // of these bytes
	to    uint8    // of utf8Ranges
}

// moves appends what may follow p in a text of an alphabet.
func (m *machine) moves(out []move, p place, may alphabet) []move {
	t := p.s.table.Load()
	if t == nil {
		m.mu.Lock()
		t = m.table(p.s)
		m.mu.Unlock()
	}
	if p.at == 0 {
		for g, k := range t.kinds {
			if k &= plain; k&may != 0 {
				out = append(out, move{t.bytes[g], k, 0})
			}
		}
	}
	if may&beyond == 0 {
		return out
	}
	for _, r := range utf8Ranges[p.at] {
		var seen [4]uint64 // groups
		for c := int(r.lo); c <= int(r.hi); c++ {
			if g := t.group[c]; seen[g>>6]>>(g&63)&1 == 0 {
				seen[g>>6] |= 1 << (g & 63)
				out = append(out, move{byte(c), beyond, r.to})
			}
		}
	}
	return out
}

// A visit is what is known of a place.
type visit struct {
	known bool
	after int      // how many characters
	via   alphabet // of the last of these
}

// at returns what is known of a place, until the next call.
func (a *Automaton) at(p place) *visit { return a.seen.At(index.Mix(p.s.id, uint64(p.at)), p) }

// maxPlaces bounds those that are looked at to find out what goes on. Strings have below ten, and some more for
// each character that is counted.
const maxPlaces = 512

// enough is how many characters are worth it to allow the tokens of up to so many at once.
const enough = 6

// What is known of the tokens that are made of an alphabet: they are allowed up to a length, and of the longer
// ones nothing is known, unless none is allowed.
type known struct {
	of   alphabet
	upto int  // characters
	none bool // of more characters
	ever bool // texts of any length go on, in few states
	same bool // in one: every such text comes back to it
}

// free returns an alphabet of which every text goes on from s, up to a length; none if there is none that is
// easily found.
func (w *walk) free(s *State) known {
	k := known{of: plain}
	for k.of != 0 && !w.reach(s, &k) {
	}
	return k
}

// reach finds out how long texts of k.of go on from s, and reports whether that is of use; otherwise it
// takes out of k.of what ends first or leads there, or all of it once a mask may not take more work, which the walk that
// follows reports.
func (w *walk) reach(s *State, k *known) bool {
	w.a.seen.Clear(8 * maxPlaces)
	*w.a.at(place{s, 0}) = visit{known: true, via: k.of}
	layer, next := append(w.a.layers[0][:0], place{s, 0}), w.a.layers[1]
	inner, steps := w.a.layers[2], w.a.steps // inner: of a character that has begun
	defer func() { w.a.layers, w.a.steps = [3][]place{layer, next, inner}, steps }()
	looped := false
	for n := range most {
		next = next[:0]
		var ends, goes, led alphabet // led to where something ends
		inner = append(inner[:0], layer...)
		for len(inner) > 0 {
			p := inner[len(inner)-1]
			inner = inner[:len(inner)-1]
			steps = w.a.m.moves(steps[:0], p, k.of)
			came := w.a.at(p).via
			for _, m := range steps {
				to := w.a.m.step(p.s, m.c)
				if w.charge(p.s, m.c); w.work > limits.GrammarWork {
					k.of = 0
					return false
				}
				if to == nil {
					ends |= m.kinds & k.of
					led |= came
					continue
				}
				goes |= m.kinds & k.of
				w.note(to)
				q := place{to, m.to}
				v := w.a.at(q)
				switch {
				case v.known:
					looped = looped || v.after <= n && m.to == 0
					v.via |= m.kinds
				case m.to == 0:
					v.known, v.after, v.via = true, n+1, m.kinds
					next = append(next, q)
				default:
					v.known, v.after, v.via = true, n, came
					inner = append(inner, q)
				}
			}
		}
		switch {
		case ends == 0 && w.a.seen.Len <= maxPlaces:
		case n > 0 && goes == 0 && !looped:
			k.upto, k.none = n, true
			return true
		case n >= enough:
			k.upto = n
			return true
		case ends != 0 && n > 0 && k.of&^led != 0:
			k.of &^= led
			return false
		case ends != 0:
			k.of &^= ends
			return false
		default:
			k.of = 0
			return false
		}
		if len(next) == 0 {
			k.ever, k.same = true, n == 0
			break
		}
		layer, next = next, layer
	}
	k.upto = most
	return true
}

// add adds the tokens of t that k allows to out.
func (t *trie) add(out Mask, k known) {
	var with []Mask // of kinds that are not in k.of
	for i, p := range t.planes {
		if k.of>>i&1 == 0 {
			with = append(with, p)
		}
	}
	for i, all := range t.upto[k.upto] {
		for _, p := range with {
			all &^= p[i]
		}
		out[i] |= all
	}
}

// An ending is what is known of the texts of any length that go on from a state.
type ending struct {
	of    alphabet // of such texts
	same  bool     // all come back to the state
	work  int      // that finding it took
	depth int32    // of the deepest stack
	tails Mask     // if same and of is plain: which tokens of trie.rest go on, by number; nil: not known yet
	cost  int      // of tails
}

// ending returns that of a state, and charges for it as if it had not been known.
func (w *walk) ending(s *State) *ending {
	e := s.ending.Load()
	if e == nil {
		x := walk{a: w.a, t: w.t, work: w.work}
		y := w.a.spread(s)
		to := w.a.settled(s, &y)
		x.work += y.work
		var k known
		if to == nil { // otherwise that is soon come to
			k = x.free(s)
		}
		e = &ending{work: x.work - w.work, depth: x.depth}
		if k.ever {
			e.of, e.same = k.of, k.same
		}
		if x.work <= limits.GrammarWork {
			s.ending.Store(e)
		}
	}
	w.work += e.work
	w.depth = max(w.depth, e.depth)
	return e
}

// tails returns the tokens of t, a trie of others, that go on from a state to which all plain texts come back:
// what they do depends on what follows their plain characters. It returns nil if that takes too much work.
func (w *walk) tails(s *State, e *ending, t *trie) Mask {
	if e.tails == nil {
		x := walk{a: w.a, t: t.tails, out: make(Mask, (len(t.ids)+63)/64)}
		for i, b := range t.tails.text {
			if len(b) == 0 {
				x.out[i>>6] |= 1 << (i & 63)
			}
		}
		if x.each(s) != nil {
			return nil
		}
		full := *e
		full.tails, full.cost = x.out, x.work
		s.ending.Store(&full)
		w.a.m.takes(8 * len(x.out))
		e = &full
	}
	w.work += e.cost
	return e.tails
}

// each finds the tokens of s node by node.
func (w *walk) each(s *State) error {
	w.single = true
	return w.below(s, 0, 0, int32(len(w.t.chars)))
}

// whole finds the tokens of s from the root of the trie.
func (w *walk) whole(s *State) error {
	if w.a.spread(s).rich(w.a.trie(s)) {
		w.use(w.free(s))
	}
	err := w.below(s, 0, 0, int32(len(w.t.chars)))
	w.known = known{}
	return err
}

// use adds the tokens that k allows.
func (w *walk) use(k known) {
	if k.of == 0 {
		return
	}
	w.t.add(w.out, k)
	if w.known = k; k.of == plain && (k.none || k.upto == most) {
		w.t, w.known = w.t.rest, known{}
	}
}
