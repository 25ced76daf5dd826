//go:build !amd64 || purego

package probs

func machine() []Rows { return nil }

// Only the portable set exists, and it calls none of these.

func (Rows) maxOf(*float32, int) float32 { panic("probs: no assembly") }

func (Rows) softExp(*float64, *float32, int, float64, float64, *float64) {
	panic("probs: no assembly")
}

func (Rows) softBins(_, _ *float32, _ *float64, _ int, _, _ float32) { panic("probs: no assembly") }

func (Rows) sum(*float64, int, *float64) { panic("probs: no assembly") }

func (Rows) residual(_, _, _ *float64, _ int, _, _ float64, _ *float64) {
	panic("probs: no assembly")
}

func (Rows) scale(*float64, int, float64) { panic("probs: no assembly") }

func (Rows) widen(*float64, *float32, int, float64) { panic("probs: no assembly") }
