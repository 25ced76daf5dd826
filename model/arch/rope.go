package arch

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"talf/internal/detmath"
)

// Rope says how positions become angles.
type Rope struct {
	Theta  float64 `config:"rope_theta"`
	Type   string  `config:"rope_scaling.rope_type"`       // "default", "linear", "llama3" or "yarn"
	Factor float64 `config:"rope_scaling.factor,omitzero"` // linear, llama3, yarn: factor by which long waves are stretched
	// llama3: wavelengths longer than Original/LowFreq are stretched by Factor, those
	// shorter than Original/HighFreq are unchanged.
	LowFreq  float64 `config:"rope_scaling.low_freq_factor,omitzero"`
	HighFreq float64 `config:"rope_scaling.high_freq_factor,omitzero"`
	Original int     `config:"rope_scaling.original_max_position_embeddings,omitzero"` // llama3, yarn: number of positions before stretching
	// yarn: waves that turn less than BetaSlow times in Original positions are
	// stretched, those that turn more than BetaFast times are unchanged. Truncate
	// widens the range between them to whole elements; Scale multiplies cosines and
	// sines.
	BetaFast float64 `config:"rope_scaling.beta_fast,omitzero"`
	BetaSlow float64 `config:"rope_scaling.beta_slow,omitzero"`
	Scale    float64 `config:"rope_scaling.attention_factor,omitzero"`
	Truncate bool    `config:"rope_scaling.truncate,omitzero"`
	// longrope: divisors of the angles, one for each pair of elements, of texts of at most Original
	// positions; Scale multiplies cosines and sines.
	Short []float32 `config:"rope_scaling.short_factor,omitzero"`
}

// Equal reports whether r and o rotate alike.
func (r *Rope) Equal(o *Rope) bool { return reflect.DeepEqual(r, o) }

func (r *Rope) validate() error {
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
	if r.Original < 1 || r.Original > maxDim {
		return fmt.Errorf("rope scaling original_max_position_embeddings is %d, want 1 to %d", r.Original, maxDim)
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
	for i, f := range r.Short {
		if !(f > 0 && f < 1e9) {
			return fmt.Errorf("rope scaling short_factor[%d] is %v, want more than 0", i, f)
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

// rope reads either spelling: rope_theta and rope_scaling, as in published checkpoints,
// or rope_parameters, as written by transformers 5. If both are given, they must agree.
// Theta and part list the published names of the base and of the rotated part of a
// head.
func (c *config) rope(theta, part []string, def ropeDefaults) (Rope, float64) {
	r := Rope{Theta: c.oneOf(theta, def.theta), Type: "default"}
	p := c.oneOf(part, def.part)
	given := func(names []string) bool { return slices.ContainsFunc(names, c.has) }
	seen := false // a nested object has stated everything
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		o := c.object(key)
		if o == nil {
			continue
		}
		q := Rope{Theta: o.float("rope_theta", r.Theta)}
		o.ropeScaling(&q)
		f := o.float("partial_rotary_factor", p)
		c.take(o)
		if c.err == nil && (seen && (!q.Equal(&r) || f != p) || given(theta) && q.Theta != r.Theta || given(part) && f != p) {
			c.fail("%s %+v, partial_rotary_factor %v, contradicts %+v, partial_rotary_factor %v, elsewhere: want only one of them, or equal values", key, q, f, r, p)
		}
		r, p, seen = q, f, true
	}
	if c.err == nil {
		if err := r.validate(); err != nil {
			c.fail("%w", err)
		}
	}
	if r.Type == "longrope" && !def.long {
		c.fail("rope_type is \"longrope\", which is not supported for %s", c.string("model_type", "this architecture"))
	}
	return r, p
}

// ropeDefaults are the values of missing keys, and whether a family has longrope.
type ropeDefaults struct {
	theta, part float64
	long        bool
}

func (o *config) ropeScaling(r *Rope) {
	r.Type = o.string("rope_type", o.string("type", "default"))
	nan := math.NaN()
	switch r.Type {
	case "linear":
		r.Factor = o.float("factor", nan)
	case "llama3":
		r.Factor = o.float("factor", nan)
		r.LowFreq = o.float("low_freq_factor", nan)
		r.HighFreq = o.float("high_freq_factor", nan)
		r.Original = o.int("original_max_position_embeddings", -1)
	case "longrope":
		if o.has("short_factor") {
			o.value("short_factor", &r.Short, "a list of numbers")
		}
		r.Scale = o.float("attention_factor", 0)
		r.Original = o.int("original_max_position_embeddings", 1)
	case "yarn":
		r.Factor = o.float("factor", nan)
		r.Original = o.int("original_max_position_embeddings", -1)
		r.BetaFast, r.BetaSlow = o.float("beta_fast", 32), o.float("beta_slow", 1)
		r.Truncate = o.bool("truncate", true)
		// Programs disagree about the meaning of attn_factor.
		if o.has("attn_factor") {
			o.fail("attn_factor is set, want attention_factor or neither")
		}
		r.Scale = o.float("attention_factor", r.yarnScale(o.float("mscale", 0), o.float("mscale_all_dim", 0)))
	}
}

// longRope completes a rotation by longrope (Ding et al. 2024): original_max_position_embeddings is
// a key of its own in published files. Beyond so many positions the divisors change for all
// positions of a text, which would make keys and values that exist void, so the context ends there.
func (c *config) longRope(s *Spec) {
	r := &s.Rope
	r.Original = c.int("original_max_position_embeddings", r.Original)
	if ratio := float64(s.MaxPos) / float64(r.Original); r.Scale == 0 && r.Original > 1 && ratio > 1 {
		r.Scale = math.Sqrt(1 + detmath.Log(ratio)/detmath.Log(float64(r.Original)))
	}
	r.Scale = cmp.Or(r.Scale, 1)
	s.MaxPos = min(s.MaxPos, r.Original)
	if n := s.Rotated() / 2; c.err == nil && len(r.Short) != n {
		c.fail("rope scaling short_factor has %d entries, want %d, half of the rotated elements of a head", len(r.Short), n)
	}
}

// yarnScale is the default of attention_factor.
func (r *Rope) yarnScale(mscale, allDim float64) float64 {
	if !(r.Factor > 1) {
		return 1
	}
	log := detmath.Log(min(r.Factor, 1e9))
	if mscale != 0 && allDim != 0 {
		return (0.1*float64(mscale*log) + 1) / (0.1*float64(allDim*log) + 1)
	}
	return 0.1*log + 1
}

// Halves returns the order of rows of heads in which the pairs of a rotation lie half of the
// rotated elements apart.
func (s *Spec) Halves(rows int) []int32 {
	rot := s.Rotated()
	order := make([]int32, rows)
	for i := range order {
		head, d := i/s.HeadDim*s.HeadDim, i%s.HeadDim
		switch {
		case d < rot/2:
			d = 2 * d
		case d < rot:
			d = 2*(d-rot/2) + 1
		}
		order[i] = int32(head + d)
	}
	return order
}
