package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// toStr is Python's str().
func (r *run) toStr(v Value) string {
	switch x := v.(type) {
	case string:
		return x
	case Markup:
		return string(x)
	case *Undefined:
		return ""
	}
	return r.repr(v, 0)
}

// repr is Python's repr().
func (r *run) repr(v Value, depth int) string {
	return string(r.appendRepr(nil, v, depth))
}

func (r *run) appendRepr(b []byte, v Value, depth int) []byte {
	checkDepth(depth)
	if r.ctx != nil {
		r.step()
		r.checkSize(len(b))
	}
	list := func(open string, items []Value, end string) []byte {
		b = append(b, open...)
		for i, x := range items {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = r.appendRepr(b, x, depth+1)
		}
		return append(b, end...)
	}
	switch x := v.(type) {
	case nil:
		return append(b, "None"...)
	case bool:
		if x {
			return append(b, "True"...)
		}
		return append(b, "False"...)
	case int64:
		return strconv.AppendInt(b, x, 10)
	case *big.Int:
		return append(b, intString(x)...)
	case float64:
		return append(b, floatRepr(x)...)
	case string:
		return append(b, quote(x)...)
	case Markup:
		return append(append(append(b, "Markup("...), quote(string(x))...), ')')
	case *List:
		return list("[", x.Items, "]")
	case *Tuple:
		if len(x.Items) == 1 {
			return list("(", x.Items, ",)")
		}
		return list("(", x.Items, ")")
	case *Dict:
		b = append(b, '{')
		for i, e := range x.entries {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = r.appendRepr(b, e.key, depth+1)
			b = append(b, ": "...)
			b = r.appendRepr(b, e.val, depth+1)
		}
		return append(b, '}')
	case *View:
		return list(x.kind+"([", r.drain(x.iter()), "])")
	case *Range:
		b = fmt.Appendf(b, "range(%d, %d", x.start, x.stop)
		if x.step != 1 {
			b = fmt.Appendf(b, ", %d", x.step)
		}
		return append(b, ')')
	case *Namespace:
		b = append(b, "<Namespace "...)
		b = r.appendRepr(b, x.attrs, depth+1)
		return append(b, '>')
	case *Undefined:
		return append(b, "Undefined"...)
	case *Macro:
		return fmt.Appendf(b, "<Macro %s>", quote(x.node.name))
	case *Loop:
		return fmt.Appendf(b, "<LoopContext %d/%d>", x.index0+1, x.len())
	}
	return fmt.Appendf(b, "<%s object>", typeName(v))
}

// intString is Python's str() of an int.
func intString(v Value) string {
	b, _ := toBig(v)
	s := b.String()
	if len(strings.TrimPrefix(s, "-")) > maxDigits {
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

// quote is Python's repr() of a str.
func quote(s string) string {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	b := make([]byte, 0, len(s)+2)
	b = append(b, q)
	for _, c := range s {
		switch {
		case c == rune(q) || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(c):
			b = append(b, string(c)...)
		case c < 0x100:
			b = fmt.Appendf(b, `\x%02x`, c)
		case c < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = fmt.Appendf(b, `\U%08x`, c)
		}
	}
	return string(append(b, q))
}

var escaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escape is markupsafe's escape.
func escape(s string) string { return escaper.Replace(s) }
