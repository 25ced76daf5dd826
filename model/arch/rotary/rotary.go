// Package rotary turns positions into angles of rotary embeddings, as the published scalings do.
package rotary

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"talf/internal/detmath"
)

// maxPositions bounds lengths.
const maxPositions = 1 << 26

// Rope says how positions become angles.
type Rope struct {
	Theta  float64 `config:"rope_theta"`
	Type   string  `config:"rope_scaling.rope_type"`       // "default", "linear", "llama3", "yarn" or "longrope"
	Factor float64 `config:"rope_scaling.factor,omitzero"` // linear, llama3, yarn: factor by which long waves are stretched
	// llama3: wavelengths longer than Original/LowFreq are stretched by Factor, those
	// shorter than Original/HighFreq are unchanged.
	LowFreq  float64 `config:"rope_scaling.low_freq_factor,omitzero"`
	HighFreq float64 `config:"rope_scaling.high_freq_factor,omitzero"`
	Original int     `config:"rope_scaling.original_max_position_embeddings,omitzero"` // llama3, yarn, longrope: number of positions before stretching
	// yarn: waves that turn less than BetaSlow times in Original positions are
	// stretched, those that turn more than BetaFast times are unchanged. Truncate
	// widens the range between them to whole elements; Scale multiplies cosines and
	// sines.
	BetaFast float64 `config:"rope_scaling.beta_fast,omitzero"`
	BetaSlow float64 `config:"rope_scaling.beta_slow,omitzero"`
	Scale    float64 `config:"rope_scaling.attention_factor,omitzero"`
	Truncate bool    `config:"rope_scaling.truncate,omitzero"`
	// longrope: divisors of the angles, one for each pair of elements: Short in texts of at most Original
	// positions, Long at all positions of longer ones; Scale multiplies cosines and sines. Without Long
	// no text is longer.
	Short []float32 `config:"rope_scaling.short_factor,omitzero"`
	Long  []float32 `config:"rope_scaling.long_factor,omitzero"`
}

// Switch returns the length of the longest text in which positions turn as Frequencies says. In longer ones all
// turn as those of Beyond do. 0: in all texts alike.
func (r *Rope) Switch() int {
	if r.Type == "longrope" && len(r.Long) > 0 {
		return r.Original
	}
	return 0
}

// Beyond returns the rotation of texts that are longer than Switch.
func (r *Rope) Beyond() *Rope {
	long := *r
	long.Short, long.Long = r.Long, nil
	return &long
}

// Equal reports whether r and o rotate alike.
func (r *Rope) Equal(o *Rope) bool { return reflect.DeepEqual(r, o) }

// Validate reports the first invalid value.
func (r *Rope) Validate() error {
	if !(r.Theta > 1 && r.Theta < 1e30) {
		return fmt.Errorf("rope_theta is %v, want more than 1", r.Theta)
	}
	switch r.Type {
	case "default":
		return nil
	case "linear", "llama3", "yarn":
	case "longrope":
		return r.validateLong()
	default:
		return fmt.Errorf("rope_type %q is not supported; supported: default, linear, llama3, yarn, longrope", r.Type)
	}
	if !(r.Factor >= 1 && r.Factor < 1e9) {
		return fmt.Errorf("rope scaling factor is %v, want at least 1", r.Factor)
	}
	if r.Type == "linear" {
		return nil
	}
	if r.Original < 1 || r.Original > maxPositions {
		return fmt.Errorf("rope scaling original_max_position_embeddings is %d, want 1 to %d", r.Original, maxPositions)
	}
	if r.Type == "llama3" && !(r.LowFreq > 0 && r.HighFreq > r.LowFreq && r.HighFreq < 1e9) {
		return fmt.Errorf("rope scaling low_freq_factor is %v and high_freq_factor %v, want 0 < low < high", r.LowFreq, r.HighFreq)
	}
	if r.Type == "yarn" && !(r.BetaSlow > 0 && r.BetaFast >= r.BetaSlow && r.BetaFast < 1e9) {
		return fmt.Errorf("rope scaling beta_fast is %v and beta_slow %v, want 0 < slow ≤ fast", r.BetaFast, r.BetaSlow)
	}
	if r.Type == "yarn" && !(r.Scale > 0 && r.Scale < 1e3) {
		return fmt.Errorf("rope scaling attention_factor is %v, want more than 0", r.Scale)
	}
	return nil
}

func (r *Rope) validateLong() error {
	if len(r.Short) == 0 {
		return errors.New("rope scaling short_factor is missing, want a number for each pair of elements")
	}
	if len(r.Long) > 0 && (r.Original < 1 || r.Original > maxPositions) {
		return fmt.Errorf("rope scaling original_max_position_embeddings is %d, want 1 to %d", r.Original, maxPositions)
	}
	for _, divisors := range []struct {
		name string
		of   []float32
	}{{"short_factor", r.Short}, {"long_factor", r.Long}} {
		for i, f := range divisors.of {
			if !(f > 0 && f < 1e9) {
				return fmt.Errorf("rope scaling %s[%d] is %v, want more than 0", divisors.name, i, f)
			}
		}
	}
	return nil
}

// Frequencies returns the dim/2 angles of one position step, dim being the rotated
// elements of a head. The exponent, the power and its inverse are rounded to float32,
// as they were when the published models were trained. An error in the last place is
// multiplied by the position and would show in the logits thousands of tokens into a
// text.
func (r *Rope) Frequencies(dim int) []float32 {
	out := make([]float32, dim/2)
	low, high := r.yarnRange(dim)
	for i := range out {
		f := float64(1 / float32(detmath.Pow(r.Theta, float64(float32(2*i)/float32(dim)))))
		switch r.Type {
		case "linear":
			f /= r.Factor
		case "llama3":
			// Llama 3.1's by-parts interpolation: long waves are stretched by Factor,
			// short ones are unchanged, and those in between are mixed linearly in
			// 1/wavelength.
			wave := 2 * pi / f
			switch orig := float64(r.Original); {
			case wave > orig/r.LowFreq:
				f /= r.Factor
			case wave >= orig/r.HighFreq:
				mix := (orig/wave - r.LowFreq) / (r.HighFreq - r.LowFreq)
				f = float64((1-mix)*(f/r.Factor)) + float64(mix*f)
			}
		case "yarn":
			f = r.yarn(i, dim, low, high)
		case "longrope":
			f = float64(1 / float32(r.Short[i]*float32(detmath.Pow(r.Theta, float64(float32(2*i)/float32(dim))))))
		}
		out[i] = float32(f)
	}
	return out
}

// yarn returns angle i by YaRN (Peng et al. 2023), §3.2: stretched and unchanged waves
// are mixed linearly in the element's index, with each step rounded to float32 as well.
func (r *Rope) yarn(i, dim int, low, high float64) float64 {
	wave := float32(detmath.Pow(r.Theta, float64(float32(2*i)/float32(dim))))
	stretch := min(1, max(0, (float32(i)-float32(low))/float32(high-low)))
	keep := 1 - stretch
	return float64(float32(1/float32(float32(r.Factor)*wave)*(1-keep)) + float32(1/wave*keep))
}

// yarnRange returns the elements between which yarn mixes: those whose waves
// turn BetaFast and BetaSlow times.
func (r *Rope) yarnRange(dim int) (low, high float64) {
	if r.Type != "yarn" {
		return 0, 1
	}
	at := func(turns float64) float64 {
		return float64(dim) * detmath.Log(float64(r.Original)/(turns*2*pi)) / (2 * detmath.Log(r.Theta))
	}
	low, high = at(r.BetaFast), at(r.BetaSlow)
	if r.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dim-1))
	if low == high {
		high += 0.001 // as in the reference
	}
	return low, high
}

const pi = 3.14159265358979323846264338327950288

// Table returns rows [from, to) of a rotary table, [to−from][dim]: row p is
// dim/2 cosines, then dim/2 sines. The angle is position·frequency in
// float32, as the published models were trained; its cosine and sine are
// correctly rounded except for rare ties. All platforms give the same bits.
func (r *Rope) Table(dim, from, to int) []float32 {
	freq := r.Frequencies(dim)
	h := dim / 2
	out := make([]float32, (to-from)*dim)
	for p := from; p < to; p++ {
		row := out[(p-from)*dim:][:dim]
		for i, f := range freq {
			s, c := detmath.SinCos(float64(float32(p) * f))
			row[i], row[h+i] = float32(c), float32(s)
		}
		if r.Type == "yarn" || r.Type == "longrope" {
			for i := range row {
				row[i] *= float32(r.Scale)
			}
		}
	}
	return out
}

// YarnScale returns yarn's default of attention_factor.
func (r *Rope) YarnScale(mscale, allDim float64) float64 {
	if !(r.Factor > 1) {
		return 1
	}
	log := detmath.Log(min(r.Factor, 1e9))
	if mscale != 0 && allDim != 0 {
		return (0.1*float64(mscale*log) + 1) / (0.1*float64(allDim*log) + 1)
	}
	return 0.1*log + 1
}
