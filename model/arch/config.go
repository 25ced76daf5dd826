package arch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// A config is a JSON object whose fields are read by name. It keeps the first
// error, which names the file, the field and what was wanted.
type config struct {
	name string
	path string // of a nested object: "rope_scaling."
	m    map[string]json.RawMessage
	err  error
}

func newConfig(name string, raw []byte) (*config, error) {
	c := &config{name: name}
	if err := json.Unmarshal(raw, &c.m); err != nil {
		return nil, fmt.Errorf("%s: want a JSON object: %w", name, err)
	}
	return c, nil
}

// has reports whether key is there and not null.
func (c *config) has(key string) bool {
	raw, ok := c.m[key]
	return ok && !bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}

func (c *config) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%s: %s%w", c.name, c.path, fmt.Errorf(format, args...))
	}
}

// value decodes key into dst, or reports that it wants what.
func (c *config) value(key string, dst any, what string) bool {
	if err := json.Unmarshal(c.m[key], dst); err != nil {
		c.fail("%s is %s, want %s", key, clip(c.m[key]), what)
		return false
	}
	return true
}

func clip(raw []byte) string {
	if len(raw) > 40 {
		return string(raw[:40]) + "…"
	}
	return string(raw)
}

// int reads a positive integer; a missing one is an error if def is negative.
func (c *config) int(key string, def int) int {
	if !c.has(key) {
		if def < 0 {
			c.fail("%s is missing, want a positive integer", key)
		}
		return def
	}
	var v float64
	if !c.value(key, &v, "a positive integer") {
		return def
	}
	if v != math.Trunc(v) || v < 1 || v > maxDim {
		c.fail("%s is %s, want an integer from 1 to %d", key, clip(c.m[key]), maxDim)
		return def
	}
	return int(v)
}

// float reads a number; a missing one is an error if def is NaN.
func (c *config) float(key string, def float64) float64 {
	if !c.has(key) {
		if def != def {
			c.fail("%s is missing, want a number", key)
		}
		return def
	}
	v := def
	c.value(key, &v, "a number")
	return v
}

func (c *config) bool(key string, def bool) bool {
	if c.has(key) {
		c.value(key, &def, "true or false")
	}
	return def
}

func (c *config) string(key, def string) string {
	if c.has(key) {
		c.value(key, &def, "a string")
	}
	return def
}

func (c *config) strings(key string) (v []string) {
	if c.has(key) {
		c.value(key, &v, "a list of strings")
	}
	return v
}

// tokens reads a token id or a list of them.
func (c *config) tokens(key string) []int32 {
	if !c.has(key) {
		return nil
	}
	var one int32
	if json.Unmarshal(c.m[key], &one) == nil {
		return []int32{one}
	}
	var many []int32
	c.value(key, &many, "a token id or a list of them")
	return many
}

// object reads a nested object; nil if it is missing.
func (c *config) object(key string) *config {
	if !c.has(key) {
		return nil
	}
	o := &config{name: c.name, path: c.path + key + "."}
	if !c.value(key, &o.m, "an object") {
		return nil
	}
	return o
}

// tokens adds the special tokens of c: a configuration's own and those of
// generation_config.json, which often lists more ends than config.json.
func (s *Spec) tokens(c *config) {
	if b := c.tokens("bos_token_id"); len(b) > 0 {
		s.BOS = b[0]
	}
	for _, e := range c.tokens("eos_token_id") {
		// −1 is what some configurations write for none.
		if e != -1 && !slices.Contains(s.EOS, e) {
			s.EOS = append(s.EOS, e)
		}
	}
}

func parseLlama(c *config, s *Spec) {
	s.Names = llamaNames
	s.Vocab = c.int("vocab_size", -1)
	s.Hidden = c.int("hidden_size", -1)
	s.Layers = c.int("num_hidden_layers", -1)
	s.Heads = c.int("num_attention_heads", -1)
	s.FFN = c.int("intermediate_size", -1)
	if c.err != nil {
		return
	}
	s.KVHeads = c.int("num_key_value_heads", s.Heads)
	if !c.has("head_dim") && s.Hidden%s.Heads != 0 {
		c.fail("hidden_size is %d, want a multiple of num_attention_heads, %d, where head_dim is not given", s.Hidden, s.Heads)
		return
	}
	s.HeadDim = c.int("head_dim", max(1, s.Hidden/s.Heads))
	s.MaxPos = c.int("max_position_embeddings", 2048)
	s.NormEps = float32(c.float("rms_norm_eps", 1e-6))
	s.Tied = c.bool("tie_word_embeddings", false)
	s.AttnBias = c.bool("attention_bias", false)
	s.MLPBias = c.bool("mlp_bias", false)
	if a := c.string("hidden_act", "silu"); a != "silu" && a != "swish" {
		c.fail("hidden_act is %q, want \"silu\"", a)
	}
	if c.has("quantization_config") {
		c.fail("quantization_config is set, want weights in F32, F16 or BF16")
	}
	s.Rope = c.rope()
}

// rope reads either spelling: rope_theta and rope_scaling, as published
// checkpoints have it, or rope_parameters, as transformers 5 writes it. Where
// both occur they must agree.
func (c *config) rope() Rope {
	r := Rope{Theta: c.float("rope_theta", 10000), Type: "default"}
	if o := c.object("rope_scaling"); o != nil {
		o.ropeScaling(&r)
		c.take(o)
	}
	if o := c.object("rope_parameters"); o != nil {
		p := Rope{Theta: o.float("rope_theta", r.Theta), Type: "default"}
		o.ropeScaling(&p)
		c.take(o)
		if c.err == nil && (c.has("rope_theta") && p.Theta != r.Theta || c.has("rope_scaling") && p != r) {
			c.fail("rope_parameters %+v contradicts rope_theta and rope_scaling %+v, want one of them or equal ones", p, r)
		}
		r = p
	}
	if f := c.float("partial_rotary_factor", 1); f != 1 {
		c.fail("partial_rotary_factor is %v, want 1", f)
	}
	if c.err == nil {
		if err := r.validate(); err != nil {
			c.fail("%w", err)
		}
	}
	return r
}

// take keeps a nested object's error.
func (c *config) take(o *config) {
	if c.err == nil {
		c.err = o.err
	}
}

func (o *config) ropeScaling(r *Rope) {
	r.Type = o.string("rope_type", o.string("type", "default"))
	if f := o.float("partial_rotary_factor", 1); f != 1 {
		o.fail("partial_rotary_factor is %v, want 1", f)
	}
	switch r.Type {
	case "linear":
		r.Factor = o.float("factor", math.NaN())
	case "llama3":
		r.Factor = o.float("factor", math.NaN())
		r.LowFreq = o.float("low_freq_factor", math.NaN())
		r.HighFreq = o.float("high_freq_factor", math.NaN())
		r.Original = o.int("original_max_position_embeddings", -1)
	}
}
