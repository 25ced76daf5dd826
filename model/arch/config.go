package arch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"talf/internal/ijson"
)

// A config is a JSON object whose fields are read by name. It keeps the first
// error, which names the file, the field and what was expected.
type config struct {
	name string
	path string // of a nested object: "rope_scaling."
	m    map[string]json.RawMessage
	err  error
}

func newConfig(name string, raw []byte) (*config, error) {
	c := &config{name: name}
	if err := ijson.Unmarshal(raw, &c.m); err != nil {
		return nil, fmt.Errorf("%s: want a JSON object: %w", name, err)
	}
	return c, nil
}

// has reports whether key is present and not null.
func (c *config) has(key string) bool {
	raw, ok := c.m[key]
	return ok && !bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}

func (c *config) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%s: %s%w", c.name, c.path, fmt.Errorf(format, args...))
	}
}

// value decodes key into dst, or records an error that says what was expected.
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

// ints reads a list of small numbers of at least 0; nil if it is missing.
func (c *config) ints(key string) (v []int) {
	if c.has(key) && c.value(key, &v, "a list of numbers") {
		for _, x := range v {
			if x < 0 || x > maxLayers {
				c.fail("%s is %s, want numbers from 0 to %d", key, clip(c.m[key]), maxLayers)
				return nil
			}
		}
	}
	return v
}

// factor reads a number that multiplies: 0, which stands for no multiplication, if it is 1.
func (c *config) factor(key string, def float64) float32 {
	v := float32(c.float(key, def))
	if v == 1 {
		return 0
	}
	if v == 0 {
		c.fail("%s is 0, want more than 0", key)
	}
	return v
}

// flags reads a list of 0 and 1, one for each layer; nil if it is missing.
func (c *config) flags(key string, s *Spec) (v []int) {
	if !c.has(key) || !c.value(key, &v, "a list of 0 and 1") {
		return nil
	}
	if len(v) < s.Layers {
		c.fail("%s has %d entries, want num_hidden_layers = %d", key, len(v), s.Layers)
		return nil
	}
	return v[:max(0, s.Layers)]
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

// object reads a nested object. It returns nil if the object is missing.
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

// tokens adds the special tokens of c: the configuration's own and those of
// generation_config.json, which often lists more end tokens than config.json.
func (s *Spec) tokens(c *config) {
	if b := c.tokens("bos_token_id"); len(b) > 0 {
		s.BOS = b[0]
	}
	eos := c.tokens("eos_token_id")
	if len(eos) > maxEOS {
		c.fail("eos_token_id lists %d tokens, want at most %d", len(eos), maxEOS)
		return
	}
	for _, e := range eos {
		// Some configurations use −1 for none.
		if e != -1 && !slices.Contains(s.EOS, e) {
			s.EOS = append(s.EOS, e)
		}
	}
}

// maxEOS bounds how many tokens end a text: each token that a model writes is compared with them.
// Published configurations list up to ten.
const maxEOS = 256

// take adopts the error of a nested object.
func (c *config) take(o *config) {
	if c.err == nil {
		c.err = o.err
	}
}

// count reads an integer of at least 0.
func (c *config) count(key string, def int) int {
	v := c.float(key, float64(def))
	if v != math.Trunc(v) || v < 0 || v > maxDim {
		c.fail("%s is %s, want an integer from 0 to %d", key, clip(c.m[key]), maxDim)
		return def
	}
	return int(v)
}

// oneOf reads a number that goes by several names. If more than one is given, they must
// agree.
func (c *config) oneOf(keys []string, def float64) float64 {
	first := ""
	for _, key := range keys {
		if !c.has(key) {
			continue
		}
		v := c.float(key, def)
		if first != "" && v != def {
			c.fail("%s is %v and %s is %v, want only one of them, or equal values", first, def, key, v)
		}
		first, def = key, v
	}
	return def
}

// mustBe refuses a flag whose value is not that of the architecture.
func (c *config) mustBe(key string, want bool) {
	if got := c.bool(key, want); got != want {
		c.fail("%s is %v, want %v for %s", key, got, want, c.string("model_type", "this architecture"))
	}
}
