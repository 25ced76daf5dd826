package schema

import (
	"fmt"
	"strconv"
	"strings"

	"talf/internal/limits"
	"talf/text/grammar"
)

// A decimal is a number as digits: (-1)^neg · 0.digits · 10^len(whole), without a rounding.
type decimal struct {
	neg         bool
	whole, frac string // whole without leading zeros, but for "0" itself; frac without zeros at its end
}

// maxExponent bounds the digits that an exponent may stand for.
const maxExponent = 400

func parseDecimal(s string) (d decimal, err error) {
	text := s
	d.neg = strings.HasPrefix(text, "-")
	text = strings.TrimPrefix(text, "-")
	exp := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if exp, err = strconv.Atoi(text[i+1:]); err != nil || exp > maxExponent || exp < -maxExponent {
			return d, fmt.Errorf("number %.40s, want an exponent of at most %d: %w", s, maxExponent, limits.ErrTooLarge)
		}
		text = text[:i]
	}
	d.whole, d.frac, _ = strings.Cut(text, ".")
	if len(text) > 2*maxExponent {
		return d, fmt.Errorf("number %.40s…, want at most %d digits: %w", s, 2*maxExponent, limits.ErrTooLarge)
	}
	if exp > 0 {
		d.frac += strings.Repeat("0", max(0, exp-len(d.frac)))
		d.whole, d.frac = d.whole+d.frac[:exp], d.frac[exp:]
	} else if exp < 0 {
		d.whole = strings.Repeat("0", max(0, -exp-len(d.whole))) + d.whole
		cut := len(d.whole) + exp
		d.whole, d.frac = d.whole[:cut], d.whole[cut:]+d.frac
	}
	if d.whole = strings.TrimLeft(d.whole, "0"); d.whole == "" {
		d.whole = "0"
	}
	d.frac = strings.TrimRight(d.frac, "0")
	if d.zero() {
		d.neg = false
	}
	return d, nil
}

func (d decimal) zero() bool { return d.whole == "0" && d.frac == "" }

// compare returns -1, 0 or 1.
func (d decimal) compare(o decimal) int {
	switch {
	case d.neg && !o.neg:
		return -1
	case !d.neg && o.neg:
		return 1
	case d.neg:
		d, o = decimal{whole: o.whole, frac: o.frac}, decimal{whole: d.whole, frac: d.frac}
	}
	if len(d.whole) != len(o.whole) {
		if len(d.whole) < len(o.whole) {
			return -1
		}
		return 1
	}
	if c := strings.Compare(d.whole, o.whole); c != 0 {
		return c
	}
	return strings.Compare(d.frac, o.frac) // zeros at the end are gone
}

// A bound is an end of a range of numbers.
type bound struct {
	decimal
	open bool // the number itself is out
}

// comparison reads a number without a sign and compares it with a bound of at least 0.
type comparison struct {
	whole int8 // 0: in the whole part, 1: just after it, 2: in the fraction
	n     int  // digits of this part that were read
	c     int8 // of what was read with as many digits of the bound
}

// than returns the automaton of the numbers without a sign whose comparison with d is accepted.
func (d decimal) than(b *grammar.Builder, accept func(c int) bool) (*grammar.DFA, error) {
	cmp := func(s comparison, digit, by byte) comparison {
		if s.c == 0 && digit != by {
			if s.c = 1; digit < by {
				s.c = -1
			}
		}
		return s
	}
	settle := func(s comparison) comparison { // at the end of the whole part
		if s.n < len(d.whole) {
			s.c = -1
		} else if s.n > len(d.whole) {
			s.c = 1
		}
		return comparison{1, 0, s.c}
	}
	return grammar.Explore(b, comparison{}, func(s comparison, b byte) (comparison, bool) {
		switch {
		case b == '.' && s.whole == 0 && s.n > 0:
			return settle(s), true
		case b < '0' || b > '9':
			return s, false
		case s.whole == 0:
			if s.n < len(d.whole) {
				s = cmp(s, b, d.whole[s.n])
			}
			s.n = min(s.n+1, len(d.whole)+1)
			return s, true
		}
		by := byte('0')
		if s.n < len(d.frac) {
			by = d.frac[s.n]
		}
		s = cmp(s, b, by)
		s.whole, s.n = 2, min(s.n+1, len(d.frac))
		if s.c != 0 {
			s.n = 0
		}
		return s, true
	}, func(s comparison) bool {
		switch s.whole {
		case 0:
			if s.n == 0 {
				return false
			}
			n := settle(s)
			s = n
		case 1:
			return false // a point without digits
		}
		if s.c == 0 && s.n < len(d.frac) {
			s.c = -1
		}
		return accept(int(s.c))
	})
}

// remainder reads a number without a sign and keeps it modulo a step.
type remainder struct {
	digits bool
	places int // digits after the point; -1: no point yet
	r      int
}

// multiples is that of a number, made once.
func (w *writer) multiples(d decimal) (*grammar.DFA, error) {
	if m, ok := w.multiple[d]; ok {
		return m, nil
	}
	m, err := d.multiples(w.b)
	if err == nil {
		w.multiple[d] = m
	}
	return m, err
}

// multiples returns the automaton of the multiples of d, without a sign.
func (d decimal) multiples(b *grammar.Builder) (*grammar.DFA, error) {
	step, err := strconv.Atoi(d.whole + d.frac)
	if k := len(d.frac); err != nil || step == 0 || step*(k+2) > 1<<12 {
		return nil, fmt.Errorf("multipleOf %s.%s is not supported, want a number with fewer digits", d.whole, d.frac)
	}
	return grammar.Explore(b, remainder{places: -1}, func(s remainder, b byte) (remainder, bool) {
		switch {
		case b == '.' && s.places < 0 && s.digits:
			return remainder{false, 0, s.r}, true
		case b < '0' || b > '9':
			return s, false
		case s.places >= len(d.frac): // nothing but zeros
			return remainder{true, s.places, s.r}, b == '0'
		}
		s.digits, s.r = true, (10*s.r+int(b-'0'))%step
		if s.places >= 0 {
			s.places++
		}
		return s, true
	}, func(s remainder) bool {
		r := s.r
		for range len(d.frac) - max(s.places, 0) {
			r = 10 * r % step
		}
		return s.digits && r == 0
	})
}

// numberIn writes the numbers of some types from lo to hi, either of which may be nil, that are
// multiples of all of steps: without an exponent, since a bound on one would be a bound on digits.
func (w *writer) numberIn(lo, hi *bound, steps []decimal, of types) (grammar.Expr, error) {
	b := w.b
	of &= integers | fractions
	if lo == nil && hi == nil && len(steps) == 0 && of != fractions {
		if of == integers {
			return w.integer, nil
		}
		return w.number, nil
	}
	digit := b.Bytes(set('0', '9'))
	form := b.Alt(b.Text("0"), b.Seq(b.Bytes(set('1', '9')), b.Repeat(digit, 0, grammar.Unbounded)))
	switch of {
	case fractions: // a digit after the point that is not 0
		some := b.Repeat(digit, 0, grammar.Unbounded)
		form = b.Seq(form, b.Text("."), some, b.Bytes(set('1', '9')), some)
	case integers | fractions:
		form = b.Seq(form, b.Optional(b.Seq(b.Text("."), w.digits)))
	}
	all, err := b.DFA(form)
	if err != nil {
		return 0, err
	}
	for _, s := range steps {
		m, err := w.multiples(s)
		if err != nil {
			return 0, err
		}
		if all, err = b.And(all, m); err != nil {
			return 0, err
		}
	}
	// side returns the numbers m ≥ 0 from lo to hi.
	side := func(lo, hi *bound) (*grammar.DFA, error) {
		d := all
		for _, x := range []struct {
			b    *bound
			sign int
		}{{lo, 1}, {hi, -1}} {
			if x.b == nil || x.sign == 1 && x.b.neg {
				continue
			}
			if x.b.neg {
				return new(grammar.DFA), nil
			}
			m, err := x.b.than(b, func(c int) bool { return c*x.sign > 0 || c == 0 && !x.b.open })
			if err != nil {
				return nil, err
			}
			if d, err = b.And(d, m); err != nil {
				return nil, err
			}
		}
		return d, nil
	}
	negated := func(x *bound) *bound {
		if x == nil {
			return nil
		}
		n := *x
		n.neg = !x.neg && !x.zero()
		return &n
	}
	plus, err := side(lo, hi)
	if err != nil {
		return 0, err
	}
	minus, err := side(negated(hi), negated(lo))
	if err != nil {
		return 0, err
	}
	return b.Alt(b.Automaton(plus), b.Seq(b.Text("-"), b.Automaton(minus))), nil
}

// contains reports whether a number is within bounds and a multiple of all of steps.
func (w *writer) contains(lo, hi *bound, steps []decimal, d decimal) (bool, error) {
	if lo != nil {
		if c := d.compare(lo.decimal); c < 0 || c == 0 && lo.open {
			return false, nil
		}
	}
	if hi != nil {
		if c := d.compare(hi.decimal); c > 0 || c == 0 && hi.open {
			return false, nil
		}
	}
	s := d.whole
	if d.frac != "" {
		s += "." + d.frac
	}
	for _, step := range steps {
		m, err := w.multiples(step)
		if err != nil || !m.Match(s) {
			return false, err
		}
	}
	return true, nil
}
