package ptxtest

import (
	"math"
	"math/bits"
	"strings"
)

// Predicates have a bit for each lane.

func setPredicate(w *warp, in *instruction, mask uint32) {
	d := in.args[0].reg
	w.pred[d] = w.pred[d]&^mask | -uint32(in.n)&mask
	w.set1(d, 0, mask)
}

func mov1(w *warp, in *instruction, mask uint32) {
	d, a := in.args[0].reg, in.args[1].reg
	w.pred[d] = w.pred[d]&^mask | w.pred[a]&mask
	w.set1(d, w.bad1[a], mask)
}

// logic are operations of predicates. A false operand decides an and, a true one an or.
var logic = map[string]execute{
	"and.pred": func(w *warp, in *instruction, mask uint32) {
		d, a, b := in.args[0].reg, in.args[1].reg, in.args[2].reg
		no := ^w.pred[a]&^w.bad1[a] | ^w.pred[b]&^w.bad1[b]
		p := (w.bad1[a] | w.bad1[b]) &^ no
		w.pred[d] = w.pred[d]&^mask | w.pred[a]&w.pred[b]&mask&^no
		w.set1(d, p, mask)
	},
	"or.pred": func(w *warp, in *instruction, mask uint32) {
		d, a, b := in.args[0].reg, in.args[1].reg, in.args[2].reg
		yes := w.pred[a]&^w.bad1[a] | w.pred[b]&^w.bad1[b]
		p := (w.bad1[a] | w.bad1[b]) &^ yes
		w.pred[d] = w.pred[d]&^mask | (w.pred[a]|w.pred[b]|yes)&mask
		w.set1(d, p, mask)
	},
}

func select32(w *warp, in *instruction, mask uint32) {
	d, a, b, p := &w.r32[in.args[0].reg], &w.r32[in.args[1].reg], &w.r32[in.args[2].reg], in.args[3].reg
	t := w.pred[p]
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		if t>>l&1 != 0 {
			d[l] = a[l]
		} else {
			d[l] = b[l]
		}
	}
	bad := w.bad32[in.args[1].reg]&t | w.bad32[in.args[2].reg]&^t | w.bad1[p]
	w.set32(in.args[0].reg, bad, mask)
}

func select64(w *warp, in *instruction, mask uint32) {
	d, a, b, p := &w.r64[in.args[0].reg], &w.r64[in.args[1].reg], &w.r64[in.args[2].reg], in.args[3].reg
	t := w.pred[p]
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		if t>>l&1 != 0 {
			d[l] = a[l]
		} else {
			d[l] = b[l]
		}
	}
	bad := w.bad64[in.args[1].reg]&t | w.bad64[in.args[2].reg]&^t | w.bad1[p]
	w.set64(in.args[0].reg, bad, mask)
}

func compare32(f func(a, b uint32) bool) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a, b := in.args[0].reg, &w.r32[in.args[1].reg], &w.r32[in.args[2].reg]
		r := uint32(0)
		for m := mask; m != 0; m &= m - 1 {
			if l := bits.TrailingZeros32(m) & 31; f(a[l], b[l]) {
				r |= 1 << l
			}
		}
		w.pred[d] = w.pred[d]&^mask | r
		w.set1(d, w.bad32[in.args[1].reg]|w.bad32[in.args[2].reg], mask)
	}
}

func compare64(f func(a, b uint64) bool) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a, b := in.args[0].reg, &w.r64[in.args[1].reg], &w.r64[in.args[2].reg]
		r := uint32(0)
		for m := mask; m != 0; m &= m - 1 {
			if l := bits.TrailingZeros32(m) & 31; f(a[l], b[l]) {
				r |= 1 << l
			}
		}
		w.pred[d] = w.pred[d]&^mask | r
		w.set1(d, w.bad64[in.args[1].reg]|w.bad64[in.args[2].reg], mask)
	}
}

// comparison returns setp.op.typ, nil if it is not known. Of floats, those that end in u hold for NaN.
func comparison(op, typ string) execute {
	switch typ {
	case "f32":
		if f := ordering[float32](op, true); f != nil {
			return compare32(func(a, b uint32) bool { return f(f32(a), f32(b)) })
		}
	case "f64":
		if f := ordering[float64](op, true); f != nil {
			return compare64(func(a, b uint64) bool { return f(math.Float64frombits(a), math.Float64frombits(b)) })
		}
	case "s32":
		if f := ordering[int32](op, false); f != nil {
			return compare32(func(a, b uint32) bool { return f(int32(a), int32(b)) })
		}
	case "u32", "b32":
		if f := ordering[uint32](op, false); f != nil {
			return compare32(f)
		}
	case "s64":
		if f := ordering[int64](op, false); f != nil {
			return compare64(func(a, b uint64) bool { return f(int64(a), int64(b)) })
		}
	case "u64", "b64":
		if f := ordering[uint64](op, false); f != nil {
			return compare64(f)
		}
	}
	return nil
}

type number interface {
	int32 | int64 | uint32 | uint64 | float32 | float64
}

func ordering[T number](op string, float bool) func(a, b T) bool {
	base := op
	unordered := float && len(op) == 3 && strings.HasSuffix(op, "u")
	if unordered {
		base = op[:2]
	}
	ordered := func(a, b T) bool { return a == a && b == b } // not NaN
	var f func(a, b T) bool
	switch base {
	case "eq":
		f = func(a, b T) bool { return a == b }
	case "ne":
		f = func(a, b T) bool { return a != b && ordered(a, b) }
	case "lt":
		f = func(a, b T) bool { return a < b }
	case "le":
		f = func(a, b T) bool { return a <= b }
	case "gt":
		f = func(a, b T) bool { return a > b }
	case "ge":
		f = func(a, b T) bool { return a >= b }
	case "num":
		if float {
			f = ordered
		}
	}
	if f == nil || !unordered {
		return f
	}
	return func(a, b T) bool { return f(a, b) || !ordered(a, b) }
}
