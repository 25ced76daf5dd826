// Package cost learns what rounds of decoding cost while they run: seconds of passes by their
// rows, and ratios in which older terms count less.
package cost

// Warm is the number of rounds in which a drafter that follows costs only measures them, with
// trees of different sizes.
const Warm = 8

// An Affine is a cost y = a + b·x, learned by least squares in which older samples count less.
type Affine struct{ w, x, y, xx, xy float64 }

// forget is the factor by which each sample reduces the weight of earlier ones.
const forget = 29.0 / 30

// Add takes a sample.
func (f *Affine) Add(x, y float64) {
	// An outlier is time that the machine spent on something else.
	if a, b, ok := f.Fit(); ok && f.w > 4 {
		y = min(y, 4*(a+b*x))
	}
	f.w, f.x, f.y = forget*f.w+1, forget*f.x+x, forget*f.y+y
	f.xx, f.xy = forget*f.xx+x*x, forget*f.xy+x*y
}

// Fit returns the line; neither part is negative. If all samples have the same x, all
// cost is a; without samples, ok is false.
func (f *Affine) Fit() (a, b float64, ok bool) {
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
