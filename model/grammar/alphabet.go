package grammar

import (
	"unicode/utf8"

	"talf/internal/limits"
)

// Most tokens of a vocabulary are words, and most places where many tokens may come allow any word: in a
// string, in a name, in what a pattern such as [a-z0-9_]{1,64} matches. So tokens are told apart by
// the characters that they are made of and by how long they are. If every text of some characters
// goes on from a state, which takes some steps to find out, the tokens made of these are in its mask at
// once, and the walk through the trie passes over what is below nodes that lead to no others. (The
// slices of llguidance are a fixed list of regular expressions with the same purpose.)

// An alphabet is a set of kinds of characters and of lengths.
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
	long   // more than short bytes
	longer // more than middle bytes
	other  // control characters, what JSON escapes, parts of characters, and more than most bytes

	plain = other - 1
	kinds = 13 // how many there are
)

// Bytes of a token that is neither long nor longer, of one that is not longer, and of those that are not
// other.
const (
	short  = 6
	middle = 12
	most   = 32
)

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

// alphabetOf returns what a token is made of.
func alphabetOf(token []byte) (a alphabet) {
	switch n := len(token); {
	case n > most || !utf8.Valid(token):
		return other
	case n > middle:
		a = long | longer
	case n > short:
		a = long
	}
	for _, c := range token {
		if c < utf8.RuneSelf {
			a |= alphabets[c]
		} else {
			a |= beyond
		}
	}
	return a
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

// maxPlaces bounds those that are looked at to find out what goes on. Strings have below ten, and one more for
// each character that is counted.
const maxPlaces = 512

// free returns an alphabet of which every text goes on from s, as far as its tokens are long; none if
// there is none that is easily found.
func (w *walk) free(s *State) alphabet {
	may := plain
	for may&^(long|longer) != 0 {
		without := w.blocked(s, may)
		if without == 0 {
			return may
		}
		may &^= without
	}
	return 0
}

// blocked returns a part of an alphabet without which its texts might all go on from s; 0 if they do. It
// returns all of it once a mask may not take more work, which the walk that follows reports.
func (w *walk) blocked(s *State, may alphabet) alphabet {
	a := w.a
	reach := short
	if may&long != 0 {
		reach = middle
	}
	if may&longer != 0 {
		reach = most
	}
	seen := map[place]bool{{s, 0}: true}
	layer := []place{{s, 0}}
	var next []place
	var steps []move
	for n := range reach {
		next = next[:0]
		for _, p := range layer {
			var ends alphabet // what ends here
			steps = a.m.moves(steps[:0], p, may)
			for _, m := range steps {
				to := a.m.step(p.s, m.c)
				if w.charge(p.s, m.c); w.work > limits.GrammarWork {
					return may
				}
				if to == nil {
					ends |= m.kinds & may
					continue
				}
				w.note(to)
				if q := (place{to, m.to}); !seen[q] {
					seen[q] = true
					next = append(next, q)
				}
			}
			switch {
			case ends == 0 && len(seen) <= maxPlaces:
			case n >= middle:
				return longer
			case n >= short:
				return long | longer
			case ends != 0:
				return ends
			default:
				return may
			}
		}
		if len(next) == 0 {
			break
		}
		layer, next = next, layer
	}
	return 0
}

// add adds the tokens of t that an alphabet is enough for to out.
func (t *trie) add(out Mask, a alphabet) {
	var with []Mask // of kinds that are not in a
	for i, p := range t.planes {
		if a>>i&1 == 0 {
			with = append(with, p)
		}
	}
	for i, all := range t.all {
		for _, p := range with {
			all &^= p[i]
		}
		out[i] |= all
	}
}

// whole finds the tokens of s from the root of the trie.
func (w *walk) whole(s *State) error {
	if w.a.rich(s) {
		if w.known = w.free(s); w.known != 0 {
			w.t.add(w.out, w.known)
		}
	}
	err := w.below(s, 0, 0, int32(len(w.t.chars)))
	w.known = 0
	return err
}
