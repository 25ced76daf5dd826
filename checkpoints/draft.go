package checkpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"talf/checkpoints/internal/torchfile"
	"talf/checkpoints/medusa"
	"talf/internal/limits"
	"talf/model"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/gguf"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/safetensors"
)

// The weights file that EAGLE's own loader looks for first, and the layouts of draft heads.
const (
	torchFile         = "pytorch_model.bin"
	LayoutEAGLE       = "eagle"       // EAGLE's names, also used by talf, SGLang and vLLM
	LayoutSpeculators = "speculators" // the speculators library's
	LayoutGGUF        = "GGUF"        // a file of llama.cpp's
	LayoutBlock       = "dflash"      // that of block heads: DFlash, DSpark, JetSpec
)

// A Draft is a draft head as another system stores it. In any layout, its tensors have
// EAGLE's names.
type Draft struct {
	Dir     string
	Layout  string
	File    string // file that the weights were read from
	Spec    *arch.Spec
	Tensors []safetensors.Tensor // without the draft vocabulary's
	Vocab   []int32              // target ids of its draft vocabulary, ascending; nil: all
	Target  identity.Tie         // its target, if the file says so
	Notes   []string             // what was omitted or added, and why that makes no difference

	config object
	set    *safetensors.Set // nil: the tensors are in memory
}

// An object is a JSON object whose values are kept as written.
type object map[string]json.RawMessage

// OpenDraft reads the draft head in dir: a block head of DFlash, DSpark or JetSpec, an EAGLE-1 or EAGLE-2 head in the layout of
// EAGLE or the speculators library, or an EAGLE-3 head in that of EAGLE, SpecForge, SGLang
// and vLLM or of the speculators library, from safetensors or pytorch_model.bin, or, if dir is such a
// file, of llama.cpp. No part of a pickle is executed. Unknown tensors are refused rather than ignored,
// because a head without one of its tensors is useless.
func OpenDraft(dir string) (_ *Draft, err error) {
	if medusa.Is(dir) {
		return nil, fmt.Errorf("%s: Medusa heads, which only draft: want a head of EAGLE's kind", dir)
	}
	path := gguf.Path(dir, ConfigFile)
	raw, err := gguf.ReadFile(dir, ConfigFile, limits.ConfigBytes)
	if err != nil {
		return nil, fmt.Errorf("read draft head: %w", err)
	}
	d := &Draft{Dir: dir, Layout: LayoutEAGLE}
	if err := json.Unmarshal(raw, &d.config); err != nil {
		return nil, fmt.Errorf("%s: want a JSON object: %w", path, err)
	}
	if d.config == nil {
		return nil, fmt.Errorf("%s: null, want a JSON object", path)
	}
	if err := d.open(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	switch kind := d.config.string("speculators_model_type"); {
	case arch.IsBlock(raw):
		err = d.readBlock(path)
	case kind != "" && kind != "eagle" && kind != "eagle3":
		return nil, fmt.Errorf("%s: speculators_model_type is %q, want \"eagle\" or \"eagle3\"", path, kind)
	default:
		if kind != "" {
			d.Layout = LayoutSpeculators
		}
		if kind == "eagle3" || d.looksLikeEagle3() {
			err = d.readEagle3(path)
		} else {
			err = d.readEagle(path)
		}
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(d.Tensors, func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })
	return d, nil
}

// ErrForeign says that a head must be imported before it can be loaded.
var ErrForeign = errors.New("a draft head in another system's layout: import it first (talf import)")

// A kind says how a head is loaded.
type kind int

const (
	ours     kind = iota // as head.Load reads it
	imported             // only after an import
	checked              // EAGLE-3 and block heads: by OpenDraft, which checks what head.Load would not
)

// kindOf tells the kinds apart. It returns ours for what is not a head: loading gives a
// better error.
func kindOf(dir string) kind {
	raw, err := gguf.ReadFile(dir, ConfigFile, limits.ConfigBytes)
	if err != nil {
		return ours
	}
	if arch.IsBlock(raw) {
		return checked
	}
	var d Draft
	if json.Unmarshal(raw, &d.config) != nil {
		return ours
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	inTensors := gguf.Is(dir) || has(WeightsFile) || has(WeightsFile+".index.json")
	if inTensors {
		set, err := safetensors.OpenDir(dir)
		if err != nil {
			return ours
		}
		for _, name := range set.Names() {
			d.Tensors = append(d.Tensors, safetensors.Tensor{Name: name})
		}
		if set.Close() != nil {
			return ours
		}
	}
	of := d.config.string("speculators_model_type")
	switch {
	case of == "eagle3", d.looksLikeEagle3(), of == "" && !inTensors && has(torchFile) && len(d.config["draft_vocab_size"]) > 0:
		return checked // EAGLE's own torch files do not say so, but have such a key
	case of != "", !inTensors && has(torchFile), has(tokenMapFile):
		return imported
	}
	return ours
}

// IsForeign reports whether dir has a draft head that only OpenDraft can read.
func IsForeign(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, ManifestFile)); err == nil {
		return false
	}
	return kindOf(dir) != ours
}

// Load loads the head for target, in whatever layout its files are. The head closes them.
func (d *Draft) Load(target *model.Model, opt head.Options) (*head.Head, error) {
	ts, err := d.weights(context.Background())
	if err != nil {
		return nil, err
	}
	set := safetensors.Of(d.Dir, ts...)
	if d.set != nil {
		set = d.set.With(ts...)
	}
	d.set = set
	return head.FromSet(d.Spec, set, target, opt)
}

// weights returns all tensors, also the draft vocabulary's, as talf's own heads have them.
func (d *Draft) weights(ctx context.Context) ([]safetensors.Tensor, error) {
	ts, err := asType(ctx, d.Tensors, "")
	return append(ts, draftvocab.Tensors(d.Vocab, d.Spec.Vocab)...), err
}

// Close unmaps the tensors.
func (d *Draft) Close() error {
	if d.set == nil {
		return nil
	}
	return d.set.Close()
}

// Tensor returns the named tensor.
func (d *Draft) Tensor(name string) (safetensors.Tensor, bool) {
	i := slices.IndexFunc(d.Tensors, func(t safetensors.Tensor) bool { return t.Name == name })
	if i < 0 {
		return safetensors.Tensor{}, false
	}
	return d.Tensors[i], true
}

func (d *Draft) note(format string, args ...any) {
	d.Notes = append(d.Notes, fmt.Sprintf(format, args...))
}

// open reads the weights. It prefers safetensors, which need no trust.
func (d *Draft) open() error {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(d.Dir, name))
		return err == nil
	}
	bin := filepath.Join(d.Dir, torchFile)
	switch {
	case has(WeightsFile), has(WeightsFile + ".index.json"), gguf.Is(d.Dir):
		set, err := safetensors.OpenDir(d.Dir)
		if err != nil {
			return err
		}
		if d.set, d.File = set, WeightsFile; gguf.Is(d.Dir) {
			d.Layout, d.File = LayoutGGUF, filepath.Base(d.Dir)
		}
		if d.Target, err = identity.TieOf(set.Metadata()); err != nil {
			return fmt.Errorf("%s: %w", set.Name, err)
		}
		for _, name := range set.Names() {
			t, _ := set.Tensor(name)
			if t, err = t.Plain(); err != nil {
				return fmt.Errorf("%s: %w", set.Name, err)
			}
			d.Tensors = append(d.Tensors, t)
		}
		if has(torchFile) {
			d.note("%s was read, although EAGLE's own loader prefers the %s next to it", WeightsFile, torchFile)
		}
		return nil
	case has(torchFile):
		ts, err := torchfile.Read(bin)
		if err != nil {
			return err
		}
		d.File, d.Tensors = torchFile, ts
		return nil
	case has(torchFile + ".index.json"):
		return fmt.Errorf("%s is split into several files, want a single %s or safetensors", bin, torchFile)
	}
	return fmt.Errorf("%s: neither %s nor %s", d.Dir, WeightsFile, torchFile)
}

// rename gives every tensor a new name; a tensor with the new name "" is dropped.
func (d *Draft) rename(name func(string) string) error {
	seen := make(map[string]string)
	var out []safetensors.Tensor
	for _, t := range d.Tensors {
		to := name(t.Name)
		if to == "" {
			continue
		}
		if first, ok := seen[to]; ok {
			return fmt.Errorf("%s: tensors %q and %q are both %q in the EAGLE format", d.Dir, first, t.Name, to)
		}
		seen[to], t.Name = t.Name, to
		out = append(out, t)
	}
	d.Tensors = out
	return nil
}

// drop removes a tensor.
func (d *Draft) drop(name string) {
	d.Tensors = slices.DeleteFunc(d.Tensors, func(t safetensors.Tensor) bool { return t.Name == name })
}

// readEagle reads an EAGLE-1 or EAGLE-2 head.
func (d *Draft) readEagle(path string) error {
	conf, err := d.flat(path)
	if err != nil {
		return err
	}
	if err := d.parse(path, conf, arch.ParseDraft); err != nil {
		return err
	}
	err = d.rename(func(name string) string {
		switch {
		case d.Layout == LayoutSpeculators && strings.HasPrefix(name, "fusion_fc."):
			return "fc." + strings.TrimPrefix(name, "fusion_fc.")
		case d.Layout == LayoutSpeculators && strings.HasPrefix(name, "transformer."):
			return "layers.0." + strings.TrimPrefix(name, "transformer.")
		}
		return strings.TrimPrefix(name, "model.")
	})
	if err != nil {
		return err
	}
	return d.check()
}

// parse reads the configuration.
func (d *Draft) parse(path string, conf object, as func(path string, raw, gen []byte) (*arch.Spec, error)) error {
	raw, err := json.Marshal(conf)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	gen, err := gguf.ReadFile(d.Dir, "generation_config.json", limits.ConfigBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read draft head: %w", err)
	}
	d.Spec, err = as(path, raw, gen)
	return err
}

// flat returns the configuration as one object with Llama's keys.
func (d *Draft) flat(path string) (object, error) {
	conf := maps.Clone(d.config)
	switch {
	case d.Layout == LayoutSpeculators:
		conf = object{}
		if err := d.config.object("transformer_layer_config", &conf); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if d.config.string("layernorms") == "true" {
			return nil, fmt.Errorf("%s: layernorms is true: a head with norms around fc, which is a different network from EAGLE's", path)
		}
		// The library leaves out values that equal LlamaConfig's defaults.
		for key, v := range map[string]string{
			"model_type": `"llama"`, "vocab_size": "32000", "hidden_size": "4096", "intermediate_size": "11008",
			"num_attention_heads": "32", "max_position_embeddings": "2048",
		} {
			if _, ok := conf[key]; !ok {
				conf[key] = json.RawMessage(v)
			}
		}
		if d.config.string("speculators_model_type") == "eagle" {
			conf["num_hidden_layers"] = json.RawMessage("1") // it builds one, regardless of this value
		}
	case d.config.string("model_type") == "eagle": // vLLM's wrapping
		conf = object{}
		if err := d.config.object("model", &conf); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for key, v := range d.config {
			if key != "model" && key != "model_type" && key != "architectures" {
				conf[key] = v
			}
		}
	}
	if conf.string("model_type") == "" {
		conf["model_type"] = json.RawMessage(`"llama"`)
	}
	return conf, nil
}

// check compares the tensors with the configuration and makes them agree.
func (d *Draft) check() error {
	s := d.Spec
	if err := d.readVocab(); err != nil {
		return err
	}
	d.dropBuffers()
	has := func(name string) bool { _, ok := d.Tensor(name); return ok }
	if fc := s.Weight(arch.FC, 0); !has(fc) {
		return fmt.Errorf("%s: no tensor %q: not a draft head in EAGLE's format", d.weightsPath(), fc)
	}
	if has("lm_head.weight") {
		d.drop("lm_head.weight")
		d.note("lm_head.weight is omitted: a head of this kind uses its target's")
	}
	bias, hasBias := d.Tensor(s.Bias(arch.FC, 0))
	if hasBias && zero(&bias) {
		d.drop(bias.Name)
		hasBias = false
		d.note("fc.bias is omitted: it is zero")
	}
	// Not only Llama's keys say which biases exist, so the weights file decides.
	s.FCBias, s.QKVBias, s.OBias = hasBias, has(s.Bias(arch.Q, 0)), has(s.Bias(arch.O, 0))
	s.MLPBias = has(s.Bias(arch.Gate, 0))
	if s.QKVBias && !s.OBias { // one key of the configuration covers both
		for l := range s.Layers {
			d.Tensors = append(d.Tensors, safetensors.F32(s.Bias(arch.O, l), make([]float32, s.Hidden), s.Hidden))
		}
		s.OBias = true
		d.note("o_proj.bias is added, all zero: attention_bias implies it")
	}
	if err := d.inventory("an EAGLE-1 or EAGLE-2 head"); err != nil {
		return err
	}
	if s.Rope.Type == "default" && s.HeadDim*s.Heads != s.Hidden {
		d.note("head_dim is %d: not hidden_size / num_attention_heads", s.HeadDim)
	}
	return nil
}

// dropBuffers removes buffers of old versions, which are derived from the configuration.
func (d *Draft) dropBuffers() {
	d.Tensors = slices.DeleteFunc(d.Tensors, func(t safetensors.Tensor) bool { return strings.HasSuffix(t.Name, "rotary_emb.inv_freq") })
}

// weightsPath returns the file of the tensors.
func (d *Draft) weightsPath() string { return filepath.Join(strings.TrimSuffix(d.Dir, d.File), d.File) }

// inventory compares the tensors with those that the configuration says: none may be
// missing, and none unknown.
func (d *Draft) inventory(what string) error {
	s := d.Spec
	has := func(name string) bool { _, ok := d.Tensor(name); return ok }
	want := make(map[string][]int)
	for _, t := range s.Tensors() {
		if !t.Optional && !has(t.Name) {
			return fmt.Errorf("%s: no tensor %q, want one of shape %v", d.weightsPath(), t.Name, t.Shape())
		}
		want[t.Name] = t.Shape()
	}
	for _, t := range d.Tensors {
		shape, ok := want[t.Name]
		switch {
		case !ok:
			return fmt.Errorf("%s: tensor %q is not part of %s with num_hidden_layers = %d and this configuration", d.weightsPath(), t.Name, what, s.Layers)
		case !slices.Equal(t.Shape, shape):
			return fmt.Errorf("%s: tensor %q has shape %v, want %v from the configuration", d.weightsPath(), t.Name, t.Shape, shape)
		}
		if err := d.checkFloats(&t); err != nil {
			return err
		}
	}
	return nil
}

// floats maps the types that weights may have to torch's names for them.
var floats = map[string]string{"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}

func (d *Draft) checkFloats(t *safetensors.Tensor) error {
	if _, ok := floats[t.DType]; !ok {
		return fmt.Errorf("%s: tensor %q is %s, want F32, F16, BF16 or F64", d.weightsPath(), t.Name, t.DType)
	}
	return nil
}

// zero reports whether all elements are 0.
func zero(t *safetensors.Tensor) bool {
	x, err := t.Float32s()
	return err == nil && !slices.ContainsFunc(x, func(v float32) bool { return v != 0 })
}

// SaveHead writes d to the new or empty directory dir in the format of talf's own
// heads, tied to target. The zero Tie keeps the existing one.
func (d *Draft) SaveHead(ctx context.Context, dir string, target identity.Tie) error {
	if !target.Known() {
		target = d.Target
	}
	ts, err := d.weights(ctx)
	if err != nil {
		return err
	}
	return head.Write(ctx, dir, d.Spec, target, ts...)
}

// asType converts floating-point tensors to dtype, "F32" or "BF16". With "" it converts
// only F64, to F32. Other tensors are unchanged. It ends soon after ctx does.
func asType(ctx context.Context, ts []safetensors.Tensor, dtype string) ([]safetensors.Tensor, error) {
	out := slices.Clone(ts)
	for i, t := range ts {
		to := dtype
		if _, ok := floats[t.DType]; !ok || to == t.DType || to == "" && t.DType != "F64" {
			continue
		}
		encode := safetensors.F32
		if to == "BF16" {
			encode = safetensors.BF16
		}
		var err error
		if out[i], err = safetensors.Convert(ctx, t, encode); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// string returns the value of key if it is a string, "true" if it is true, else "".
func (o object) string(key string) string {
	var s string
	if json.Unmarshal(o[key], &s) == nil {
		return s
	}
	var b bool
	if len(o[key]) > 0 && json.Unmarshal(o[key], &b) == nil && b {
		return "true"
	}
	return ""
}

// object reads a nested object.
func (o object) object(key string, dst *object) error {
	raw, ok := o[key]
	if !ok {
		return fmt.Errorf("%s is missing, want an object", key)
	}
	if err := json.Unmarshal(raw, dst); err != nil || *dst == nil {
		return fmt.Errorf("%s is not an object", key)
	}
	return nil
}
