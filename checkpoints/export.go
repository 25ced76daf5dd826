package checkpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"talf/checkpoints/internal/torchfile"
	"talf/internal/durable"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/safetensors"
)

// A Format is what a draft head is exported as: one reader's idea of it.
type Format struct {
	Name   string
	Doc    string
	Reader string // what loads it, for what is said about it

	tokenMap bool // it reads a draft vocabulary from TokenMapFile
	problems func(d *Draft, c *ExportConfig) []Problem
	// eagle and eagle3 return config.json and the tensors; nil: the reader has no
	// such heads.
	eagle  func(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor)
	eagle3 func(d *Draft, c *ExportConfig, conf object, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor)
}

// Formats are the formats of export, in the order of help.
var Formats = []Format{
	{
		Name: "eagle", Doc: "EAGLE's own code (EAGLE-1 and EAGLE-2)", Reader: "EAGLE's loader",
		problems: eagleProblems, eagle: asEagle,
	},
	{
		Name: "sglang", Doc: "SGLang, --speculative-algorithm EAGLE or EAGLE3", Reader: "SGLang's loader", tokenMap: true,
		problems: sglangProblems, eagle: asSGLang, eagle3: asSpecForge,
	},
	{
		Name: "vllm", Doc: `vLLM, --speculative-config '{"method": "eagle", …}' or eagle3`, Reader: "vLLM's loader",
		problems: vllmProblems, eagle: asVLLM, eagle3: asSpecForge,
	},
	{
		Name: "speculators", Doc: "the speculators library, up to version 0.4 for EAGLE-1 and EAGLE-2", Reader: "the speculators library",
		problems: speculatorsProblems, eagle: asSpeculators, eagle3: asSpeculators3,
	},
}

// FindFormat returns the format of that name.
func FindFormat(name string) (*Format, error) {
	var names []string
	for i := range Formats {
		if Formats[i].Name == name {
			return &Formats[i], nil
		}
		names = append(names, Formats[i].Name)
	}
	return nil, fmt.Errorf("format %q, want %s", name, strings.Join(names, ", "))
}

// An ExportConfig says how a head is exported.
type ExportConfig struct {
	Format string
	DType  string // of the weights: "F32" or "BF16"; "": as they are
	Torch  bool   // write pytorch_model.bin too
	Force  bool   // write what the reader would refuse or take for something else

	// Of the target, where it is known. Embed, its embedding [Vocab][Hidden], is
	// written where the head has none and the reader wants one.
	Target        *arch.Spec
	Embed         *safetensors.Tensor
	TargetName    string   // as the reader is to find it: a path or a Hugging Face id
	TargetClasses []string // "architectures" of its config.json

	DraftTokens int // speculators: tokens to draft at a time
}

// DefaultExport returns the export for EAGLE's own code. Three drafted tokens are
// what the speculators library writes into the heads that it converts.
func DefaultExport() ExportConfig { return ExportConfig{Format: "eagle", DraftTokens: 3} }

// Validate reports the first option that cannot be used.
func (c *ExportConfig) Validate() error {
	if _, err := FindFormat(c.Format); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	if c.DType != "" && c.DType != "F32" && c.DType != "BF16" {
		return fmt.Errorf("export: type of weights %q, want F32 or BF16", c.DType)
	}
	if c.DraftTokens < 1 {
		return fmt.Errorf("export: %d tokens to draft, want at least 1", c.DraftTokens)
	}
	return nil
}

// A Grade says what comes of a problem.
type Grade string

// The grades. A head with one of the first two is not written unless forced.
const (
	Refuses  Grade = "refuses"  // the reader stops with an error
	Misreads Grade = "misreads" // it loads, and drafts other tokens than talf does
	Note     Grade = "note"     // it works; a user should know
)

// A Problem is what a reader is expected to make of a head.
type Problem struct {
	Grade  Grade  `json:"grade"`
	Reader string `json:"reader"`
	What   string `json:"what"`
}

// String returns a sentence.
func (p Problem) String() string {
	switch p.Grade {
	case Refuses:
		return p.Reader + " would refuse it: " + p.What
	case Misreads:
		return p.Reader + " would load it and draft something else: " + p.What
	}
	return p.What
}

// Exported says what Export wrote.
type Exported struct {
	Format   string    `json:"format"`
	Out      string    `json:"out"`
	Files    []string  `json:"files"`
	Tensors  int       `json:"tensors"`
	Bytes    int64     `json:"bytes"` // of one copy of the weights
	Notes    []string  `json:"notes,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
}

// Problems predicts what the format's reader makes of d.
func (d *Draft) Problems(c ExportConfig) ([]Problem, error) {
	f, err := FindFormat(c.Format)
	if err != nil {
		return nil, err
	}
	var out []Problem
	if d.Eagle3 != nil && f.eagle3 == nil {
		out = append(out, Problem{Grade: Refuses, What: "an EAGLE-3 head has other tensors than EAGLE-1 and EAGLE-2"})
	} else {
		out = f.problems(d, &c)
	}
	for i := range out {
		out[i].Reader = f.Reader
	}
	return out, nil
}

// Export writes d to the new or empty directory out as c says. It refuses to write
// what the format's reader would refuse or misread, unless forced.
func (d *Draft) Export(out string, c ExportConfig) (*Exported, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	f, err := FindFormat(c.Format)
	if err != nil {
		return nil, err
	}
	problems, err := d.Problems(c)
	if err != nil {
		return nil, err
	}
	var bad []error
	for _, p := range problems {
		if p.Grade != Note {
			bad = append(bad, errors.New(p.String()))
		}
	}
	if len(bad) > 0 && (!c.Force || d.Eagle3 != nil && f.eagle3 == nil) {
		return nil, fmt.Errorf("export %s as %s: %w", d.Dir, f.Name, errors.Join(bad...))
	}
	ts, err := asType(d.Tensors, c.DType)
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", d.Dir, err)
	}
	if c.Embed != nil {
		if _, ok := floats[c.Embed.DType]; !ok {
			return nil, fmt.Errorf("export %s: the target's embedding is %s, want F32, F16, BF16 or F64", d.Dir, c.Embed.DType)
		}
		e, err := asType([]safetensors.Tensor{*c.Embed}, c.DType)
		if err != nil {
			return nil, fmt.Errorf("export %s: the target's embedding: %w", d.Dir, err)
		}
		c.Embed = &e[0]
	}
	var conf map[string]any
	if d.Eagle3 != nil {
		conf, ts = f.eagle3(d, &c, d.eagle3Config(), ts)
	} else {
		var raw []byte
		if raw, err = head.Config(d.Spec); err != nil {
			return nil, fmt.Errorf("export %s: %w", d.Dir, err)
		}
		if err := json.Unmarshal(raw, &conf); err != nil {
			return nil, fmt.Errorf("export %s: %w", d.Dir, err)
		}
		conf["torch_dtype"] = dtypeOf(ts)
		delete(conf, "draft_vocab_size") // of EAGLE-3 heads to all readers
		conf, ts = f.eagle(d, &c, conf, ts)
	}
	r := &Exported{Format: f.Name, Out: out, Tensors: len(ts), Notes: d.Notes, Problems: problems}
	for _, t := range ts {
		r.Bytes += int64(len(t.Data))
	}
	files, err := durable.NewDir(out)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	meta := map[string]string{"format": "pt"}
	if d.Target != "" {
		meta[head.MetaTarget] = d.Target
	}
	write := func(name string, fill func(io.Writer) error) error {
		if err := files.Write(name, fill); err != nil {
			return fmt.Errorf("export: %w", err)
		}
		return nil
	}
	if err := write(WeightsFile, func(w io.Writer) error { return safetensors.Write(w, meta, ts...) }); err != nil {
		return nil, err
	}
	if f.tokenMap && d.Vocab != nil {
		if err := write(TokenMapFile, func(w io.Writer) error { return torchfile.WriteInts(w, d.Vocab) }); err != nil {
			return nil, err
		}
	}
	if c.Torch {
		if err := write(TorchFile, func(w io.Writer) error { return torchfile.Write(w, ts...) }); err != nil {
			return nil, err
		}
	}
	// The configuration comes last: without it the directory is no head.
	err = write(ConfigFile, func(w io.Writer) error {
		b, err := json.MarshalIndent(conf, "", "  ")
		if err == nil {
			_, err = w.Write(append(b, '\n'))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := files.Commit(); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	r.Files = files.Names()
	return r, nil
}

// withEmbed adds the target's embedding, which has the file's type by now, where the head has none.
func (d *Draft) withEmbed(c *ExportConfig, ts []safetensors.Tensor) []safetensors.Tensor {
	name := "embed_tokens.weight"
	if _, ok := d.Tensor(name); ok || c.Embed == nil {
		return ts
	}
	e := *c.Embed
	e.Name = name
	return append(ts, e)
}

// asEagle is what EAGLE's own code reads.
func asEagle(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	if d.Spec.QKVBias {
		conf["qkv_bias"] = true // its name for it; it has no o_proj.bias
		ts = slices.DeleteFunc(slices.Clone(ts), func(t safetensors.Tensor) bool { return strings.HasSuffix(t.Name, "o_proj.bias") && zero(&t) })
	}
	if d.Spec.Rope.Type == "linear" {
		// It wants these two fields, and a number with a point.
		conf["rope_scaling"] = map[string]any{"type": "linear", "factor": json.RawMessage(decimal(d.Spec.Rope.Factor))}
	}
	return conf, d.withEmbed(c, ts)
}

// decimal writes a number so that Python reads a float.
func decimal(x float64) string {
	s := fmt.Sprint(x)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// asSGLang is what LlamaForCausalLMEagle reads. It always has fc.bias, and
// leaves it as random as it was made if the file has none; "bias" means the biases
// of attention to it.
func asSGLang(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	conf["architectures"], conf["bias"] = []string{"LlamaForCausalLMEagle"}, false
	ts = d.withEmbed(c, ts)
	if !d.Spec.FCBias {
		none := safetensors.F32("fc.bias", make([]float32, d.Spec.Hidden), d.Spec.Hidden)
		if dtypeOf(ts) == "bfloat16" {
			none = safetensors.BF16(none.Name, make([]float32, d.Spec.Hidden), d.Spec.Hidden)
		}
		ts = append(slices.Clone(ts), none)
	}
	return conf, ts
}

// asVLLM is what EagleLlamaForCausalLM reads. It never has fc.bias; "bias" means
// the biases of attention to it.
func asVLLM(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	conf["bias"] = false
	ts = slices.DeleteFunc(slices.Clone(ts), func(t safetensors.Tensor) bool { return t.Name == "fc.bias" })
	return conf, d.withEmbed(c, ts)
}

// asSpeculators is what EagleSpeculator reads. The embedding is its verifier's.
func asSpeculators(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	layer := maps.Clone(conf)
	delete(layer, "bias")
	out := map[string]any{
		"architectures": []string{"EagleSpeculator", "LlamaDecoderLayer"}, "speculators_model_type": "eagle",
		"transformer_layer_architecture": "LlamaDecoderLayer", "transformer_layer_config": layer,
		"layernorms": false, "fusion_bias": d.Spec.FCBias, "torch_dtype": conf["torch_dtype"],
	}
	c.speculators(out, "eagle")
	var renamed []safetensors.Tensor
	for _, t := range ts {
		if t.Name == "embed_tokens.weight" {
			continue
		}
		t.Name = strings.Replace(strings.Replace(t.Name, "fc.", "fusion_fc.", 1), "layers.0.", "transformer.", 1)
		renamed = append(renamed, t)
	}
	return out, renamed
}

// speculators adds what the library keeps of how a head is used.
func (c *ExportConfig) speculators(out map[string]any, algorithm string) {
	classes := c.TargetClasses
	if classes == nil {
		classes = []string{}
	}
	var name any
	if c.TargetName != "" {
		name = c.TargetName
	}
	out["speculators_version"] = "0.3.0"
	out["speculators_config"] = map[string]any{
		"algorithm": algorithm, "default_proposal_method": "greedy",
		"proposal_methods": []any{map[string]any{
			"proposal_type": "greedy", "speculative_tokens": c.DraftTokens, "verifier_accept_k": 1, "accept_tolerance": json.RawMessage("0.0"),
		}},
		"verifier": map[string]any{"name_or_path": name, "architectures": classes},
	}
}

// eagle3Config is the configuration of an EAGLE-3 head as one object, without the
// speculators library's own fields.
func (d *Draft) eagle3Config() object {
	conf, err := d.flat(d.Dir)
	if err != nil {
		panic("checkpoints: " + err.Error()) // OpenDraft has read it
	}
	conf = maps.Clone(conf)
	for key := range conf {
		if strings.HasPrefix(key, "speculators_") {
			delete(conf, key)
		}
	}
	return conf
}

func anyOf(conf object) map[string]any {
	out := make(map[string]any)
	for key, v := range conf {
		out[key] = v
	}
	return out
}

// asSpecForge is the layout of SpecForge, which SGLang and vLLM both read.
func asSpecForge(d *Draft, _ *ExportConfig, conf object, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	e := d.Eagle3
	out := anyOf(conf)
	out["architectures"], out["draft_vocab_size"] = []string{"LlamaForCausalLMEagle3"}, e.DraftVocab
	out["torch_dtype"] = dtypeOf(ts)
	delete(out, "bias") // it would give SGLang's attention biases
	if e.TargetHidden != e.Spec.Hidden {
		out["target_hidden_size"] = e.TargetHidden
	}
	if e.Taps != nil {
		out["eagle_config"] = map[string]any{"use_aux_hidden_state": true, "eagle_aux_hidden_state_layer_ids": e.Taps}
	}
	return out, ts
}

// asSpeculators3 is what Eagle3Speculator reads.
func asSpeculators3(d *Draft, c *ExportConfig, conf object, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	e := d.Eagle3
	layer := anyOf(conf)
	for _, key := range []string{"draft_vocab_size", "target_hidden_size", "eagle_config", "architectures", "torch_dtype", "bias"} {
		delete(layer, key)
	}
	out := map[string]any{
		"architectures": []string{"Eagle3Speculator"}, "speculators_model_type": "eagle3", "draft_vocab_size": e.DraftVocab,
		"transformer_layer_config": layer, "torch_dtype": dtypeOf(ts),
	}
	// Where norm_before_residual is missing, vLLM takes it for true.
	for _, key := range eagle3Options {
		out[key] = slices.Contains(e.Options, key)
	}
	if e.TargetHidden != e.Spec.Hidden {
		out["target_hidden_size"] = e.TargetHidden
	}
	if e.Taps != nil {
		out["eagle_aux_hidden_state_layer_ids"] = e.Taps
	}
	c.speculators(out, "eagle3")
	var renamed []safetensors.Tensor
	for _, t := range ts {
		t.Name = strings.Replace(t.Name, "midlayer.", "layers.0.", 1)
		renamed = append(renamed, t)
	}
	return out, renamed
}

// dtypeOf is torch's name for the type of what was trained: an embedding may have
// its target's.
func dtypeOf(ts []safetensors.Tensor) string {
	i := slices.IndexFunc(ts, func(t safetensors.Tensor) bool { return strings.HasSuffix(t.Name, "fc.weight") })
	return floats[ts[i].DType]
}
