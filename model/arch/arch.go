// Package arch maps the configurations and tensor names of published
// architectures to one Spec.
package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"talf/model/internal/detmath"
)

// A Spec is what a forward pass needs to know of a model.
type Spec struct {
	Arch     string // as in the table: "llama"
	Vocab    int
	Hidden   int
	Layers   int
	Heads    int
	KVHeads  int
	HeadDim  int
	FFN      int
	MaxPos   int // positions that the model was made for
	NormEps  float32
	Rope     Rope
	Tied     bool // LM head is the embedding
	AttnBias bool
	MLPBias  bool
	BOS      int32   // -1: none
	EOS      []int32 // config.json and generation_config.json
	Draft    bool    // a draft head: fc over [embedding; feature], no input norm in layer 0, no final norm
	FCBias   bool
	Names    Names
}

// Rope says how positions become angles.
type Rope struct {
	Theta  float64
	Type   string  // "default", "linear" or "llama3"
	Factor float64 // linear, llama3
	// llama3: wavelengths longer than Original/LowFreq are stretched by Factor,
	// those shorter than Original/HighFreq are kept.
	LowFreq, HighFreq float64
	Original          int
}

// Names are the names of a model's tensors, without ".weight" and ".bias".
type Names struct {
	Embed     string
	FinalNorm string
	LMHead    string
	FC        string // draft heads
	// Layer has one %d, the layer's index. The names below follow it.
	Layer                      string
	InputNorm, PostNorm        string
	Q, K, V, O, Gate, Up, Down string
}

// In returns the full name of a tensor of one layer.
func (n *Names) In(layer int, name string) string { return fmt.Sprintf(n.Layer, layer) + name }

var llamaNames = Names{
	Embed: "model.embed_tokens", FinalNorm: "model.norm", LMHead: "lm_head",
	Layer: "model.layers.%d.", InputNorm: "input_layernorm", PostNorm: "post_attention_layernorm",
	Q: "self_attn.q_proj", K: "self_attn.k_proj", V: "self_attn.v_proj", O: "self_attn.o_proj",
	Gate: "mlp.gate_proj", Up: "mlp.up_proj", Down: "mlp.down_proj",
}

// eagleNames are the tensors of an EAGLE-1/2 draft head.
var eagleNames = func() Names {
	n := llamaNames
	n.Embed, n.FC, n.Layer = "embed_tokens", "fc", "layers.%d."
	return n
}()

// An architecture is a line of the table: a model_type and what is special in
// its configuration.
type architecture struct {
	Name  string // model_type
	Class string // architectures[0], where model_type is missing
	Doc   string
	Parse func(c *config, s *Spec)
}

// table lists what is supported, in the order of errors and help.
var table = []architecture{
	{"llama", "LlamaForCausalLM", "Llama 1 to 3 and models of their shape", parseLlama},
}

// Supported returns the supported architectures' names.
func Supported() []string {
	var out []string
	for _, a := range table {
		out = append(out, a.Name)
	}
	return out
}

// Load reads dir/config.json and, if it exists, dir/generation_config.json.
func Load(dir string) (*Spec, error) { return load(dir, Parse) }

// LoadDraft reads the configuration of an EAGLE-1/2 draft head.
func LoadDraft(dir string) (*Spec, error) { return load(dir, ParseDraft) }

func load(dir string, parse func(string, []byte, []byte) (*Spec, error)) (*Spec, error) {
	path := filepath.Join(dir, "config.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read model configuration: %w", err)
	}
	gen, err := os.ReadFile(filepath.Join(dir, "generation_config.json"))
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read generation configuration: %w", err)
	}
	return parse(path, raw, gen)
}

// Parse reads a config.json, and a generation_config.json if gen is not nil.
// Name is the configuration's path, for errors.
func Parse(name string, raw, gen []byte) (*Spec, error) {
	c, err := newConfig(name, raw)
	if err != nil {
		return nil, err
	}
	a, err := find(c)
	if err != nil {
		return nil, err
	}
	s := &Spec{Arch: a.Name, BOS: -1}
	a.Parse(c, s)
	s.tokens(c)
	if gen != nil && c.err == nil {
		g, err := newConfig(filepath.Join(filepath.Dir(name), "generation_config.json"), gen)
		if err != nil {
			return nil, err
		}
		s.tokens(g)
		if g.err != nil {
			return nil, g.err
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// ParseDraft reads the config.json of an EAGLE-1/2 draft head: Llama's keys and
// an optional "bias", which is true if missing. What the weight file holds
// decides about fc.bias in the end.
func ParseDraft(name string, raw, gen []byte) (*Spec, error) {
	s, err := Parse(name, raw, gen)
	if err != nil {
		return nil, err
	}
	if s.Arch != "llama" {
		return nil, fmt.Errorf("%s: model_type is %q, want \"llama\" for a draft head", name, s.Arch)
	}
	c, err := newConfig(name, raw)
	if err != nil {
		return nil, err
	}
	s.FCBias = c.bool("bias", true)
	s.Draft, s.Tied, s.Names = true, false, eagleNames
	return s, c.err
}

// DraftFor returns the spec of a one-layer EAGLE head for a target: its sizes
// and rope_theta, but no rope scaling, which other systems' loaders of heads
// refuse, and no biases but fc's if asked.
func (s *Spec) DraftFor(fcBias bool) *Spec {
	d := *s
	d.Arch, d.Layers, d.Draft, d.FCBias = "llama", 1, true, fcBias
	d.AttnBias, d.MLPBias, d.Tied, d.Names = false, false, false, eagleNames
	d.Rope = Rope{Theta: s.Rope.Theta, Type: "default"}
	d.EOS = append([]int32(nil), s.EOS...)
	return &d
}

// Llama returns a spec with Llama's tensor names and default rotary positions;
// the caller sets the sizes.
func Llama() *Spec {
	return &Spec{Arch: "llama", NormEps: 1e-5, BOS: -1, Rope: Rope{Theta: 10000, Type: "default"}, Names: llamaNames}
}

func find(c *config) (*architecture, error) {
	typ := c.string("model_type", "")
	class := c.strings("architectures")
	if c.err != nil {
		return nil, c.err
	}
	for i := range table {
		if a := &table[i]; typ == a.Name || typ == "" && len(class) > 0 && class[0] == a.Class {
			return a, nil
		}
	}
	if typ == "" && len(class) > 0 {
		typ = class[0]
	}
	return nil, fmt.Errorf("%s: model_type %q is not supported; supported: %s", c.name, typ, strings.Join(Supported(), ", "))
}

// maxDim bounds every size, so that products of two stay far from overflow.
const maxDim = 1 << 26

// Validate reports sizes that no model can have.
func (s *Spec) Validate() error {
	for _, f := range []struct {
		name string
		v    int
	}{
		{"vocab_size", s.Vocab},
		{"hidden_size", s.Hidden},
		{"num_hidden_layers", s.Layers},
		{"num_attention_heads", s.Heads},
		{"num_key_value_heads", s.KVHeads},
		{"head_dim", s.HeadDim},
		{"intermediate_size", s.FFN},
		{"max_position_embeddings", s.MaxPos},
	} {
		if f.v < 1 || f.v > maxDim {
			return fmt.Errorf("%s is %d, want 1 to %d", f.name, f.v, maxDim)
		}
	}
	if s.Heads%s.KVHeads != 0 {
		return fmt.Errorf("num_attention_heads is %d, want a multiple of num_key_value_heads, %d", s.Heads, s.KVHeads)
	}
	if s.HeadDim%2 != 0 {
		return fmt.Errorf("head_dim is %d, want an even number", s.HeadDim)
	}
	if s.Heads > maxDim/s.HeadDim {
		return fmt.Errorf("num_attention_heads is %d with head_dim %d, want a product of at most %d", s.Heads, s.HeadDim, maxDim)
	}
	if !(s.NormEps >= 0 && s.NormEps < 1) {
		return fmt.Errorf("rms_norm_eps is %v, want 0 ≤ eps < 1", s.NormEps)
	}
	if s.BOS < -1 || int(s.BOS) >= s.Vocab {
		return fmt.Errorf("bos_token_id is %d, want a token below vocab_size, %d", s.BOS, s.Vocab)
	}
	for _, e := range s.EOS {
		if e < 0 || int(e) >= s.Vocab {
			return fmt.Errorf("eos_token_id is %d, want a token below vocab_size, %d", e, s.Vocab)
		}
	}
	return s.Rope.validate()
}

func (r *Rope) validate() error {
	if !(r.Theta > 1 && r.Theta < 1e30) {
		return fmt.Errorf("rope_theta is %v, want more than 1", r.Theta)
	}
	switch r.Type {
	case "default":
	case "linear":
		if !(r.Factor >= 1 && r.Factor < 1e9) {
			return fmt.Errorf("rope scaling factor is %v, want at least 1", r.Factor)
		}
	case "llama3":
		if !(r.Factor >= 1 && r.Factor < 1e9) {
			return fmt.Errorf("rope scaling factor is %v, want at least 1", r.Factor)
		}
		if !(r.LowFreq > 0 && r.HighFreq > r.LowFreq && r.HighFreq < 1e9) {
			return fmt.Errorf("rope scaling low_freq_factor is %v and high_freq_factor %v, want 0 < low < high", r.LowFreq, r.HighFreq)
		}
		if r.Original < 1 || r.Original > maxDim {
			return fmt.Errorf("rope scaling original_max_position_embeddings is %d, want 1 to %d", r.Original, maxDim)
		}
	default:
		return fmt.Errorf("rope_type %q is not supported; supported: default, linear, llama3", r.Type)
	}
	return nil
}

// Frequencies returns the headDim/2 angles of one position step. As the
// published models were trained, they are rounded to float32.
func (r *Rope) Frequencies(headDim int) []float32 {
	out := make([]float32, headDim/2)
	for i := range out {
		f := float64(float32(detmath.Pow(r.Theta, -float64(2*i)/float64(headDim))))
		switch r.Type {
		case "linear":
			f /= r.Factor
		case "llama3":
			// Llama 3.1's by-parts interpolation: long waves are stretched by
			// Factor, short ones kept, those between mixed linearly in 1/wavelength.
			wave := 2 * pi / f
			switch orig := float64(r.Original); {
			case wave > orig/r.LowFreq:
				f /= r.Factor
			case wave >= orig/r.HighFreq:
				mix := (orig/wave - r.LowFreq) / (r.HighFreq - r.LowFreq)
				f = float64((1-mix)*(f/r.Factor)) + float64(mix*f)
			}
		}
		out[i] = float32(f)
	}
	return out
}

const pi = 3.14159265358979323846264338327950288

// Table returns rows [from, to) of a rotary table, [to−from][headDim]: row p is
// headDim/2 cosines, then headDim/2 sines. The angle is position·frequency in
// float32, as the published models were trained; its cosine and sine are
// correctly rounded but for rare ties. All platforms give the same bits.
func (r *Rope) Table(headDim, from, to int) []float32 {
	freq := r.Frequencies(headDim)
	h := headDim / 2
	out := make([]float32, (to-from)*headDim)
	for p := from; p < to; p++ {
		row := out[(p-from)*headDim:][:headDim]
		for i, f := range freq {
			s, c := detmath.SinCos(float64(float32(p) * f))
			row[i], row[h+i] = float32(c), float32(s)
		}
	}
	return out
}

// SetSpecial writes the ids of s's begin and end tokens to the fields of a
// config.json: one end token as a number, several as a list, none not at all.
func (s *Spec) SetSpecial(config map[string]any) {
	if s.BOS >= 0 {
		config["bos_token_id"] = s.BOS
	}
	switch len(s.EOS) {
	case 0:
	case 1:
		config["eos_token_id"] = s.EOS[0]
	default:
		config["eos_token_id"] = s.EOS
	}
}
