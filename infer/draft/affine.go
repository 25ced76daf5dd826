package draft

// An affine is a cost y = a + b·x that is learnt as it is paid: least squares in
// which older samples count less.
type affine struct{ w, x, y, xx, xy float64 }

// Samples lose a thirtieth of their weight with each that follows.
const forget = 29.0 / 30

func (f *affine) add(x, y float64) {
	// What else the machine did meanwhile is no cost.
	if a, b, ok := f.fit(); ok && f.w > 4 {
		y = min(y, 4*(a+b*x))
	}
	f.w, f.x, f.y = forget*f.w+1, forget*f.x+x, forget*f.y+y
	f.xx, f.xy = forget*f.xx+x*x, forget*f.xy+x*y
}

// fit returns the line, neither part of which is negative. Without different
// samples of x, all cost is a; ok is false without any.
func (f *affine) fit() (a, b float64, ok bool) {
	if f.w == 0 {
		return 0, 0, false
	}
	x, y := f.x/f.w, f.y/f.w
	if v := f.xx/f.w - x*x; v > 1e-4*(1+x*x) {
		b = max(0, (f.xy/f.w-x*y)/v)
	}
	if a = y - b*x; a < 0 {
		a, b = 0, y/x
	}
	return a, b, true
}

// A ratio is Σ have / Σ of, older terms counting less.
type ratio struct{ have, of float64 }

func (r *ratio) add(have, of float64) { r.fade(have, of, forget) }

// fade is add with another part that older terms keep.
func (r *ratio) fade(have, of, keep float64) { r.have, r.of = keep*r.have+have, keep*r.of+of }

// value returns the ratio, given a guess that counts like w of what it divides by.
func (r *ratio) value(guess, w float64) float64 { return (r.have + guess*w) / (r.of + w) }
