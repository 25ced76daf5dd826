package arch

import (
	"cmp"
	"math"
	"slices"

	"talf/internal/detmath"
	"talf/model/arch/rotary"
)

// Rope says how positions become angles.
type Rope = rotary.Rope

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
		if err := r.Validate(); err != nil {
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
		if o.has("long_factor") {
			o.value("long_factor", &r.Long, "a list of numbers")
		}
		r.Scale = o.float("attention_factor", 0)
		r.Original = o.int("original_max_position_embeddings", 4096)
	case "yarn":
		r.Factor = o.float("factor", nan)
		r.Original = o.int("original_max_position_embeddings", -1)
		r.BetaFast, r.BetaSlow = o.float("beta_fast", 32), o.float("beta_slow", 1)
		r.Truncate = o.bool("truncate", true)
		// Programs disagree about the meaning of attn_factor.
		if o.has("attn_factor") {
			o.fail("attn_factor is set, want attention_factor or neither")
		}
		r.Scale = o.float("attention_factor", r.YarnScale(o.float("mscale", 0), o.float("mscale_all_dim", 0)))
	}
}

// longRope completes a rotation by longrope (Ding et al. 2024): original_max_position_embeddings is
// a key of its own in published files. A model without further positions never needs the long divisors.
func (c *config) longRope(s *Spec) {
	r := &s.Rope
	r.Original = c.int("original_max_position_embeddings", r.Original)
	if ratio := float64(s.MaxPos) / float64(r.Original); r.Scale == 0 && r.Original > 1 && ratio > 1 {
		r.Scale = math.Sqrt(1 + detmath.Log(ratio)/detmath.Log(float64(r.Original)))
	}
	r.Scale = cmp.Or(r.Scale, 1)
	n := s.Rotated() / 2
	switch {
	case c.err != nil:
	case len(r.Short) != n:
		c.fail("rope scaling short_factor has %d entries, want %d, half of the rotated elements of a head", len(r.Short), n)
	case s.MaxPos <= r.Original:
		r.Long = nil
	case len(r.Long) != n:
		c.fail("rope scaling long_factor has %d entries, want %d, half of the rotated elements of a head", len(r.Long), n)
	}
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
