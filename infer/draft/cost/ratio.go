package cost

// A Ratio is Σ have / Σ of, in which older terms count less.
type Ratio struct{ Have, Of float64 }

// Add adds a term.
func (r *Ratio) Add(have, of float64) { r.Fade(have, of, forget) }

// Fade is Add with the part that older terms keep.
func (r *Ratio) Fade(have, of, keep float64) { r.Have, r.Of = keep*r.Have+have, keep*r.Of+of }

// Value returns the Ratio, given a guess that counts like w of what it divides by.
func (r *Ratio) Value(guess, w float64) float64 { return (r.Have + guess*w) / (r.Of + w) }
