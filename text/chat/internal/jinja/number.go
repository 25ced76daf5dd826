package jinja

import (
	"cmp"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Numbers. What takes more than linear time in the size of an int is charged before it is
// computed.

// wordWork is what one word of a big int costs in linear operations, or one pair of words in
// products and quotients, in units of work.
const wordWork = 1

// words returns the size of an int in machine words.
func words(b *big.Int) int { return b.BitLen()/64 + 1 }

// bigWork charges for an operation whose result has at most n words and which looks at
// pairs pairs of words.
func (r *run) bigWork(n, pairs int) {
	r.work(n + pairs*wordWork)
	r.charge(16*n + 64)
}

// normInt returns an int in its normal form.
func normInt(b *big.Int) Value {
	if b.IsInt64() {
		return b.Int64()
	}
	if b.BitLen() > maxBits {
		throw("LimitError", "the template makes an integer of more than %d bits", maxBits)
	}
	return b
}

// toBig returns an int (or bool) as a big.Int, which must not be changed.
func toBig(v Value) (*big.Int, bool) {
	switch x := v.(type) {
	case bool:
		if x {
			return big.NewInt(1), true
		}
		return new(big.Int), true
	case int64:
		return big.NewInt(x), true
	case *big.Int:
		return x, true
	}
	return nil, false
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

// toFloat returns a number as a float.
func (r *run) toFloat(v Value) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case int64:
		return float64(x), true
	case bool, *big.Int:
		b, _ := toBig(x)
		r.bigWork(words(b), 0)
		f, _ := new(big.Float).SetInt(b).Float64()
		if math.IsInf(f, 0) {
			throw("OverflowError", "int too large to convert to float")
		}
		return f, true
	}
	return 0, false
}

// floatToInt is Python's int() of a finite float.
func floatToInt(f float64) Value {
	if math.Abs(f) < 1<<62 {
		return int64(f)
	}
	b, _ := big.NewFloat(f).Int(nil)
	return normInt(b)
}

// bitLen is int.bit_length.
func bitLen(b *big.Int) int64 { return int64(b.BitLen()) }

// infinite throws what Python's int() of an infinite float throws.
func infinite() {
	throw("OverflowError", "cannot convert float infinity to integer")
}

func isNumber(v Value) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

// compareNumbers returns -1, 0 or 1, or 2 if a NaN is involved.
func (r *run) compareNumbers(a, b Value) int {
	x, ok1 := small(a)
	y, ok2 := small(b)
	if ok1 && ok2 {
		return cmp.Compare(x, y)
	}
	exact := func(v Value) (*big.Float, bool) {
		if f, ok := v.(float64); ok {
			if math.IsNaN(f) {
				return nil, false
			}
			return big.NewFloat(f), true
		}
		i, _ := toBig(v)
		r.bigWork(words(i), 0)
		return new(big.Float).SetPrec(uint(max(64, i.BitLen()))).SetInt(i), true
	}
	p, ok1 := exact(a)
	q, ok2 := exact(b)
	if !ok1 || !ok2 {
		return 2
	}
	return p.Cmp(q)
}

func (r *run) unary(op string, x Value) Value {
	switch v := x.(type) {
	case float64:
		if op == "-" {
			return -v
		}
		return v
	case bool, int64, *big.Int:
		b, _ := toBig(v)
		r.bigWork(words(b), 0)
		if op == "-" {
			b = new(big.Int).Neg(b)
		}
		return normInt(b)
	case *Undefined:
		r.use(v)
	}
	throw("TypeError", "bad operand type for unary %s: %s", op, quote(typeName(x)))
	return nil
}

// arithmetic is a binary operator of numbers.
func (r *run) arithmetic(op string, a, b Value) Value {
	_, f1 := a.(float64)
	_, f2 := b.(float64)
	if f1 || f2 {
		x, _ := r.toFloat(a)
		y, _ := r.toFloat(b)
		r.charge(boxBytes)
		return floatArithmetic(op, x, y)
	}
	if x, ok := small(a); ok {
		if y, ok := small(b); ok {
			r.charge(boxBytes)
			const half = 1 << 31
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
				if x > -half && x < half && y > -half && y < half {
					return x * y
				}
			}
		}
	}
	x, _ := toBig(a)
	y, _ := toBig(b)
	n, m := words(x), words(y)
	switch op {
	case "+", "-":
		r.bigWork(max(n, m)+1, 0)
	case "/": // the greatest common divisor takes several times as long as a product
		r.bigWork(4*(n+m), 16*(n+m)*(n+m)/4)
	case "**": // charged below
	default:
		r.bigWork(n+m, n*m)
	}
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	case "/":
		if y.Sign() == 0 {
			throw("ZeroDivisionError", "division by zero")
		}
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(f, 0) {
			throw("OverflowError", "integer division result too large for a float")
		}
		return f
	case "//", "%":
		if y.Sign() == 0 {
			if op == "%" {
				throw("ZeroDivisionError", "integer modulo by zero")
			}
			throw("ZeroDivisionError", "integer division or modulo by zero")
		}
		rest := new(big.Int)
		z.QuoRem(x, y, rest)
		if rest.Sign() != 0 && rest.Sign() != y.Sign() {
			z.Sub(z, big.NewInt(1))
			rest.Add(rest, y)
		}
		if op == "%" {
			z = rest
		}
	case "**":
		if y.Sign() < 0 {
			p, _ := r.toFloat(a)
			q, _ := r.toFloat(b)
			return floatArithmetic(op, p, q)
		}
		if x.BitLen() <= 1 { // -1, 0 or 1: the parity decides
			if y.Sign() > 0 {
				y = big.NewInt(2 + int64(y.Bit(0)))
			}
		} else if !y.IsInt64() || y.Int64() > maxBits/int64(x.BitLen()-1) {
			throw("LimitError", "the template makes an integer of more than %d bits", maxBits)
		}
		bits := x.BitLen() * int(y.Int64())
		r.bigWork(8*(bits/64+1), 2*(bits/64+1)*(bits/64+1))
		z.Exp(x, y, nil)
	}
	return normInt(z)
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
	return r.toFloat(x)
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

// maxNumeral is more than the bytes of a text that Python converts to an int: a prefix,
// digits of up to four bytes each, and underscores.
const maxNumeral = 6 * maxDigits

// parseInt is Python's int() of a str.
func (r *run) parseInt(s string, base int) (Value, bool) {
	s = r.trim(s, true, true, isSpace)
	if len(s) > maxNumeral {
		return nil, false
	}
	r.charge(8*len(s) + 64)
	r.work(8*len(s) + len(s)*len(s)/1024)
	sign := ""
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		sign, s = s[:1], s[1:]
	}
	if base == 0 || base == 2 || base == 8 || base == 16 {
		if len(s) > 2 && s[0] == '0' {
			if b := map[byte]int{'b': 2, 'o': 8, 'x': 16}[s[1]|0x20]; b != 0 && (base == 0 || base == b) {
				base, s = b, strings.TrimPrefix(s[2:], "_")
			}
		}
		if base == 0 {
			base = 10
			if len(s) > 1 && s[0] == '0' && strings.Trim(s, "0_") != "" {
				return nil, false
			}
		}
	}
	if s == "" || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
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
	if len(s) > maxDigits || s == "" || s[0] == '+' || s[0] == '-' {
		return nil, false
	}
	b, ok := new(big.Int).SetString(sign+s, base)
	if !ok {
		return nil, false
	}
	return normInt(b), true
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
	if b, ok := toBig(x); ok {
		if digits >= 0 {
			return normInt(b)
		}
		if -digits > maxDigits {
			return int64(0)
		}
		n := words(b) + -digits/16 + 1
		r.bigWork(8*n, n*n)
		unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil)
		q, m := new(big.Int).DivMod(b, unit, new(big.Int))
		if c := new(big.Int).Lsh(m, 1).Cmp(unit); c > 0 || c == 0 && q.Bit(0) == 1 {
			q.Add(q, big.NewInt(1))
		}
		return normInt(q.Mul(q, unit))
	}
	f := x.(float64)
	r.bigWork(256, 1024)
	switch {
	case math.IsNaN(f), math.IsInf(f, 0), digits > 400:
		return f
	case digits < -400:
		return math.Copysign(0, f)
	case digits >= 0:
		g, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
		return g
	}
	// Tens and more: an integer decides, and a fraction breaks ties.
	unit := new(big.Float).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil))
	q, _ := new(big.Float).SetPrec(2000).Quo(new(big.Float).SetPrec(2000).SetFloat64(f), unit).Float64()
	g, _ := new(big.Float).SetPrec(2000).Mul(new(big.Float).SetFloat64(math.RoundToEven(q)), unit).Float64()
	return g
}

// intString is Python's str() of an int.
func (r *run) intString(v Value) string {
	const maxBits = maxDigits*3322/1000 + 1 // of maxDigits digits
	b, _ := toBig(v)
	n := words(b)
	s := ""
	if b.BitLen() <= maxBits {
		r.bigWork(4*n, 4*n*n)
		s = b.String()
	}
	if s == "" || len(strings.TrimPrefix(s, "-")) > maxDigits {
		throw("ValueError", "Exceeds the limit (%d digits) for integer string conversion; use sys.set_int_max_str_digits() to increase the limit", maxDigits)
	}
	return s
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

// digitsOf writes an int in the base of a verb.
func (r *run) digitsOf(n *big.Int, verb byte) string {
	r.bigWork(2*n.BitLen()/16+8, 0)
	switch verb {
	case 'x':
		return n.Text(16)
	case 'X':
		return strings.ToUpper(n.Text(16))
	case 'o':
		return n.Text(8)
	case 'b':
		return n.Text(2)
	}
	return r.intString(normInt(n))
}

// floatText writes a float as C's printf does.
func (r *run) floatText(f float64, verb byte, prec int, alt bool) string {
	// FormatFloat makes up to 309 digits before the point.
	r.charge(4*prec + 2048)
	r.work(8*prec + 1024)
	up := verb >= 'A' && verb <= 'Z'
	low := verb | 0x20
	var out string
	switch {
	case math.IsNaN(f):
		out = "nan"
	case math.IsInf(f, 0):
		out = floatRepr(f)
	case low == 'g':
		out = r.generalFloat(f, max(prec, 1), alt)
	default:
		out = strconv.FormatFloat(f, low, prec, 64)
		if alt && prec == 0 {
			if i := strings.IndexByte(out, 'e'); i >= 0 {
				out = out[:i] + "." + out[i:]
			} else {
				out += "."
			}
		}
	}
	if up {
		return strings.ToUpper(out)
	}
	return out
}

// generalFloat is C's %g; Go's 'g' switches to exponents at other values.
func (r *run) generalFloat(f float64, prec int, alt bool) string {
	r.charge(4*prec + 2048)
	r.work(8*prec + 1024)
	e := strconv.FormatFloat(f, 'e', prec-1, 64)
	i := strings.IndexByte(e, 'e')
	exp, _ := strconv.Atoi(e[i+1:])
	cut := func(s string) string {
		if alt || !strings.Contains(s, ".") {
			return s
		}
		return strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if exp < -4 || exp >= prec {
		return cut(e[:i]) + e[i:]
	}
	return cut(strconv.FormatFloat(f, 'f', prec-1-exp, 64))
}

// exponent returns the decimal exponent of f rounded to a number of digits.
func (r *run) exponent(f float64, digits int) int {
	r.charge(2*digits + 64)
	r.work(4*digits + 256)
	e := strconv.FormatFloat(f, 'e', digits-1, 64)
	n, _ := strconv.Atoi(e[strings.IndexByte(e, 'e')+1:])
	return n
}

// int adds an int in decimal.
func (b *buf) int(n int64) {
	var digits [20]byte
	b.room(len(digits))
	b.b.Write(strconv.AppendInt(digits[:0], n, 10))
}
