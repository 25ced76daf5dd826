package jinja

import (
	"cmp"
	"errors"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Numbers. An int is an int64; one outside of 64 bits is a Big, with which nothing is computed.

// beyond throws where an int would be outside of 64 bits.
func beyond() {
	throw("LimitError", "the template computes with an integer of more than 64 bits")
}

// small returns an int (or bool) as an int64 if it fits.
func small(v Value) (int64, bool) {
	switch x := v.(type) {
	case bool:
		if x {
			return 1, true
		}
		return 0, true
	case int64:
		return x, true
	}
	return 0, false
}

// wantSmall returns an int (or bool).
func wantSmall(v Value) int64 {
	n, ok := small(v)
	if !ok {
		beyond()
	}
	return n
}

// toFloat returns a number as a float.
func toFloat(v Value) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case bool, int64, Big:
		return float64(wantSmall(x)), true
	}
	return 0, false
}

// floatToInt is Python's int() of a finite float.
func floatToInt(f float64) int64 {
	if !(math.Abs(f) < 1<<63) {
		beyond()
	}
	return int64(f)
}

// infinite throws what Python's int() of an infinite float throws.
func infinite() {
	throw("OverflowError", "cannot convert float infinity to integer")
}

func isInt(v Value) bool {
	switch v.(type) {
	case bool, int64, Big:
		return true
	}
	return false
}

func isNumber(v Value) bool {
	_, ok := v.(float64)
	return ok || isInt(v)
}

// compareNumbers returns -1, 0 or 1, or 2 if a NaN is involved.
func compareNumbers(a, b Value) int {
	x, ok1 := small(a)
	y, ok2 := small(b)
	if ok1 && ok2 {
		return cmp.Compare(x, y)
	}
	exact := func(v Value) *big.Float {
		f, ok := v.(float64)
		switch {
		case !ok:
			return new(big.Float).SetInt64(wantSmall(v))
		case math.IsNaN(f):
			return nil
		}
		return big.NewFloat(f)
	}
	p, q := exact(a), exact(b)
	if p == nil || q == nil {
		return 2
	}
	return p.Cmp(q)
}

// sameNumber is == of two numbers.
func sameNumber(a, b Value) bool {
	_, big1 := a.(Big)
	_, big2 := b.(Big)
	if big1 || big2 {
		return a == b
	}
	return compareNumbers(a, b) == 0
}

func (r *run) unary(op string, x Value) Value {
	switch v := x.(type) {
	case float64:
		if op == "-" {
			return -v
		}
		return v
	case bool, int64, Big:
		if op == "-" {
			return r.arithmetic("-", int64(0), v)
		}
		if n, ok := small(v); ok {
			return n
		}
		return v
	case *Undefined:
		r.use(v)
	}
	throw("TypeError", "bad operand type for unary %s: %s", op, quote(typeName(x)))
	return nil
}

// arithmetic is a binary operator of numbers.
func (r *run) arithmetic(op string, a, b Value) Value {
	r.charge(boxBytes)
	_, f1 := a.(float64)
	_, f2 := b.(float64)
	if f1 || f2 {
		x, _ := toFloat(a)
		y, _ := toFloat(b)
		return floatArithmetic(op, x, y)
	}
	x, y := wantSmall(a), wantSmall(b)
	switch op {
	case "+":
		if s := x + y; (s > x) == (y > 0) {
			return s
		}
	case "-":
		if s := x - y; (s < x) == (y > 0) {
			return s
		}
	case "*":
		if hi, lo := bits.Mul64(abs(x), abs(y)); hi == 0 && lo <= math.MaxInt64 {
			return x * y
		}
	case "/":
		if y == 0 {
			throw("ZeroDivisionError", "division by zero")
		}
		r.charge(256)
		f, _ := new(big.Rat).SetFrac64(x, y).Float64() // rounded once
		return f
	case "//", "%":
		if y == 0 {
			if op == "%" {
				throw("ZeroDivisionError", "integer modulo by zero")
			}
			throw("ZeroDivisionError", "integer division or modulo by zero")
		}
		q, rest := x/y, x%y
		if rest != 0 && (rest < 0) != (y < 0) {
			q, rest = q-1, rest+y
		}
		if op == "%" {
			return rest
		}
		if x != math.MinInt64 || y != -1 {
			return q
		}
	case "**":
		switch {
		case y < 0:
			return floatArithmetic(op, float64(x), float64(y))
		case abs(x) <= 1 && y > 1: // the parity decides
			y = 2 + y&1
		case y > 63:
			beyond()
		}
		z := Value(int64(1))
		for range y {
			z = r.arithmetic("*", z, x)
		}
		return z
	}
	beyond()
	return nil
}

func floatArithmetic(op string, x, y float64) Value {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		if y == 0 {
			throw("ZeroDivisionError", "float division by zero")
		}
		return x / y
	case "//", "%":
		if y == 0 {
			if op == "%" {
				throw("ZeroDivisionError", "float modulo")
			}
			throw("ZeroDivisionError", "float floor division by zero")
		}
		// As in CPython's float_divmod.
		mod := math.Mod(x, y)
		div := (x - mod) / y
		if mod != 0 {
			if (y < 0) != (mod < 0) {
				mod += y
				div--
			}
		} else {
			mod = math.Copysign(0, y)
		}
		if op == "%" {
			return mod
		}
		if div == 0 {
			return math.Copysign(0, x/y)
		}
		floor := math.Floor(div)
		if div-floor > 0.5 {
			floor++
		}
		return floor
	}
	// **
	if x == 0 && y < 0 {
		throw("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	}
	if x < 0 && y != math.Trunc(y) && !math.IsInf(x, 0) {
		throw("TypeError", "complex numbers are not supported")
	}
	z := math.Pow(x, y)
	if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		throw("OverflowError", "(34, 'Numerical result out of range')")
	}
	return z
}

// parseFloat is Python's float().
func (r *run) parseFloat(x Value) (float64, bool) {
	if u, ok := x.(*Undefined); ok {
		r.use(u)
	}
	if s, ok := text(x); ok {
		return r.floatOf(s)
	}
	return toFloat(x)
}

func (r *run) floatOf(s string) (float64, bool) {
	s = r.trim(s, true, true, isSpace)
	if len(s) > maxFloatText {
		throw("LimitError", "the template makes a number of a text of more than %d KiB", maxFloatText>>10)
	}
	r.work(4 * len(s))
	for i := range len(s) {
		switch c := s[i]; {
		case c == 'x' || c == 'X' || c == 'p' || c == 'P':
			return 0, false
		case c == '_' && (i == 0 || i+1 == len(s) || !isDigit(s[i-1]) || !isDigit(s[i+1])):
			return 0, false
		}
	}
	if strings.IndexByte(s, '_') >= 0 {
		r.charge(len(s))
		s = strings.ReplaceAll(s, "_", "")
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// maxFloatText bounds the texts that are read as floats, in bytes.
const maxFloatText = 1 << 20

// maxNumeral is more than the bytes of a text that Python converts to an int: digits of up to four bytes each, and
// underscores.
const maxNumeral = 6 * maxDigits

// parseInt is Python's int() of a str.
func (r *run) parseInt(s string) (Value, bool) {
	s = r.trim(s, true, true, isSpace)
	if len(s) > maxNumeral {
		return nil, false
	}
	r.charge(2*len(s) + 64)
	r.work(8 * len(s))
	if digits := strings.TrimLeft(s, "+-"); strings.HasPrefix(digits, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return nil, false
	}
	s = strings.Map(func(c rune) rune {
		switch {
		case c == '_':
			return -1
		case c >= utf8.RuneSelf && unicode.IsDigit(c):
			return '0' + digitValue(c)
		}
		return c
	}, s)
	if len(s) > maxDigits {
		return nil, false
	}
	return parseDigits(s)
}

// parseDigits reads an int of ASCII digits.
func parseDigits(s string) (Value, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err == nil:
		return n, true
	case !errors.Is(err, strconv.ErrRange):
		return nil, false
	}
	digits, sign := strings.TrimLeft(s, "+-0"), ""
	if s[0] == '-' {
		sign = "-"
	}
	return Big(sign + digits), true
}

// digitValue returns the value of a decimal digit of any script: they come in runs of
// ten that begin with zero.
func digitValue(c rune) rune {
	n := rune(0)
	for n < 9 && unicode.IsDigit(c-n-1) {
		n++
	}
	return n
}

// roundNumber is Python's round(): half to even, on the exact value.
func (r *run) roundNumber(x Value, digits int) Value {
	if digits < 0 {
		throw("LimitError", "rounding to tens is not supported")
	}
	f, ok := x.(float64)
	if !ok {
		return r.unary("+", x)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) || digits > 400 {
		return f
	}
	r.work(1024)
	r.charge(1024)
	g, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	return g
}

// floatRepr is Python's repr() of a float: the shortest digits that parse to the same
// value.
func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		// Go writes at least two digits of the exponent, as Python does.
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// intString is Python's str() of an int.
func (r *run) intString(v Value) string {
	if b, ok := v.(Big); ok {
		return string(b)
	}
	r.charge(20)
	return strconv.FormatInt(wantSmall(v), 10)
}

// hexString writes an int in hexadecimal.
func (r *run) hexString(n int64) string {
	r.charge(20)
	return strconv.FormatInt(n, 16)
}

// floatText writes a float with digits after the point, verb being f or e.
func (r *run) floatText(f float64, verb byte, prec int) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return floatRepr(f)
	}
	r.charge(4*prec + 2048) // up to 309 digits before the point
	r.work(8*prec + 1024)
	return strconv.FormatFloat(f, verb, prec, 64)
}

// int adds an int in decimal.
func (b *buf) int(n int64) {
	var digits [20]byte
	b.room(len(digits))
	b.b.Write(strconv.AppendInt(digits[:0], n, 10))
}
