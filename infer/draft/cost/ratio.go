package cost

// A Ratio is Σ have / Σ of, in which older terms count less.
type Ratio struct{ Have, Of float64 }

// Add adds a term.
func (r *Ratio) Add(have, of float64) { r.Fade(have, of, forget) }

// Fade is Add with the factor that older terms keep.
func (r *Ratio) Fade(have, of, keep float64) { r.Have, r.Of = keep*r.Have+have, keep*r.Of+of }

// Value returns the ratio, given a guess that counts as much as w of the denominator.
func (r *Ratio) Value(guess, w float64) float64 { return (r.Have + guess*w) / (r.Of + w) }
