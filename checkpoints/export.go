package checkpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"talf/checkpoints/internal/torchfile"
	"talf/internal/durable"
	"talf/internal/spec"
	"talf/internal/units"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/gguf/write"
	"talf/model/head"
	"talf/model/safetensors"
)

// A Format is an export format for draft heads, for one reader. The comments of the
// formats name the readers' source files. Readers change: SGLang, vLLM and EAGLE are
// described as of their main branches in 2025, the speculators library as of versions
// 0.1, 0.3, 0.4 and 0.9.
type Format struct {
	spec.Line        // without parameters
	Reader    string // the program that loads it, for messages

	own      bool // it takes from the target what a head's files lack
	tokenMap bool // it reads a draft vocabulary from tokenMapFile
	problems func(d *Draft, c *ExportConfig) []Problem
	// serve is a command that serves a head in DIR for TARGET, drafting TOKENS tokens with METHOD.
	serve string
	// file writes a head as one file, and returns its name and what it holds. A format has either this
	// or the next two.
	file func(d *Draft, c *ExportConfig, ts []safetensors.Tensor) (name string, f *write.File, err error)
	// eagle and eagle3 return config.json and the tensors, for heads of EAGLE-1 and 2 and
	// of EAGLE-3.
	eagle  func(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor)
	eagle3 func(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor)
	// block does so for block heads; nil: it reads none, unless in a file.
	block func(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor, error)
}

// Formats returns the export formats, in the order of the help text. A new one takes a
// function in its own file and a line here.
func Formats() []Format {
	return []Format{eagle(), sglang(), vllm(), speculators(), ggufFile(), blockFile(), talf()}
}

// findFormat returns the format with the given name.
func findFormat(name string) (Format, error) {
	return spec.Table[Format]{Kind: "format", Lines: Formats()}.Find(name)
}

// An ExportConfig says how a head is exported.
type ExportConfig struct {
	Format string
	DType  string // of the weights: "F32" or "BF16"; "": unchanged
	Torch  bool   // also write pytorch_model.bin
	Force  bool   // write even what the reader would refuse or misread

	// The target, if known. Embed is its embedding [Vocab][Hidden], which is written if
	// the head has none and the reader needs one.
	Target        *arch.Spec
	Embed         *safetensors.Tensor
	LMHead        *safetensors.Tensor // its LM head [Vocab][Hidden], for a head that uses some of its rows
	TargetName    string              // path or Hugging Face id under which the reader finds it
	TargetClasses []string            // "architectures" of its config.json

	DraftTokens int // speculators: tokens to draft per round

	unindexed bool   // the target's weights are in one file without an index
	targetDir string // its directory or GGUF file
}

// DefaultExport returns the export for EAGLE's own code. The speculators library also
// writes three draft tokens into heads that it converts.
func DefaultExport() ExportConfig { return ExportConfig{Format: "eagle", DraftTokens: 3} }

// Validate reports the first invalid option.
func (c *ExportConfig) Validate() error {
	if _, err := findFormat(c.Format); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	if c.DType != "" && c.DType != "F32" && c.DType != "BF16" {
		return fmt.Errorf("export: type of weights %q, want F32 or BF16", c.DType)
	}
	if c.Torch && c.Format == formatGGUF {
		return fmt.Errorf("export: format %s is one file, without %s", formatGGUF, torchFile)
	}
	if c.DraftTokens < 1 {
		return fmt.Errorf("export: %d tokens to draft, want at least 1", c.DraftTokens)
	}
	return nil
}

// Exported describes what Export wrote.
type Exported struct {
	Format   string    `json:"format"`
	Out      string    `json:"out"`
	Files    []string  `json:"files"`
	Tensors  int       `json:"tensors"`
	Bytes    int64     `json:"bytes"` // of one copy of the weights
	Notes    []string  `json:"notes,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
}

// String returns the lines that tell a user what was written or, if nothing was, which
// problems the format's reader would have with the head.
func (r *Exported) String() string {
	var b strings.Builder
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	bad := false
	for _, p := range r.Problems {
		word := "note"
		if p.Grade != Note {
			word, bad = "problem", true
		}
		fmt.Fprintf(&b, "%s: %s\n", word, p)
	}
	if r.Out != "" {
		fmt.Fprintf(&b, "%s: %d tensors, %s, as %s: %s\n", r.Out, r.Tensors, units.Bytes(uint64(r.Bytes)), r.Format, strings.Join(r.Files, ", "))
	} else if !bad {
		fmt.Fprintf(&b, "no problems with the format %s\n", r.Format)
	}
	return b.String()
}

// Predict returns the problems that the format's reader will have with d. It writes
// nothing.
func (d *Draft) Predict(c ExportConfig) (*Exported, error) {
	p, err := d.Problems(c)
	return &Exported{Format: c.Format, Notes: d.Notes, Problems: p}, err
}

// Problems predicts the problems that the format's reader will have with d.
func (d *Draft) Problems(c ExportConfig) ([]Problem, error) {
	f, err := findFormat(c.Format)
	if err != nil {
		return nil, err
	}
	var out []Problem
	switch block := f.block != nil || f.file != nil; {
	case d.Spec.Block.On && !block:
		out = []Problem{refuse("it reads no block heads: want the format block, vllm, sglang or gguf")}
	case d.Spec.Block.Linear && !f.own:
		out = []Problem{refuse("linear_rows is true: rows without layers are talf's own")}
	case !d.Spec.Block.On && f.eagle == nil && f.file == nil:
		out = []Problem{refuse("it is a head of EAGLE's kind: want another format")}
	default:
		out = f.problems(d, &c)
	}
	for i := range out {
		out[i].Reader = f.Reader
	}
	return out, nil
}

// Export writes d to the new or empty directory out as specified by c. Unless forced,
// it refuses to write a head that the format's reader would refuse or misread. If ctx ends before
// it is done, nothing is left.
func (d *Draft) Export(ctx context.Context, out string, c ExportConfig) (*Exported, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := c.resolve(); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	f, err := findFormat(c.Format)
	if err != nil {
		return nil, err
	}
	problems, err := d.Problems(c)
	if err != nil {
		return nil, err
	}
	if d.Spec.Block.On && f.block == nil && f.file == nil || !d.Spec.Block.On && f.eagle == nil && f.file == nil {
		return nil, fmt.Errorf("export %s as %s: %s", d.Dir, f.Name, problems[0].What)
	}
	var bad []error
	for _, p := range problems {
		if p.Grade != Note {
			bad = append(bad, errors.New(p.String()))
		}
	}
	if len(bad) > 0 && !c.Force {
		return nil, fmt.Errorf("export %s as %s: %w", d.Dir, f.Name, errors.Join(bad...))
	}
	if f.own {
		c.LMHead = nil
	}
	ts, err := d.typed(ctx, &c)
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", d.Dir, err)
	}
	if f.file != nil {
		return d.exportFile(ctx, out, f, &c, ts, problems)
	}
	conf, ts, err := d.arranged(f, &c, ts)
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", d.Dir, err)
	}
	r := &Exported{Format: f.Name, Out: out, Tensors: len(ts), Notes: d.Notes, Problems: problems}
	for _, t := range ts {
		r.Bytes += int64(len(t.Data))
	}
	card, err := d.card(f, &c, "", problems)
	if err != nil {
		return nil, fmt.Errorf("export %s: %w", d.Dir, err)
	}
	meta := map[string]string{"format": "pt"}
	d.Target.Metadata(meta)
	parts := []part{{WeightsFile, func(w io.Writer) error { return safetensors.Write(w, meta, ts...) }}}
	if f.tokenMap && d.Vocab != nil && !d.Spec.Eagle3.On {
		parts = append(parts, part{tokenMapFile, func(w io.Writer) error { return torchfile.WriteInts(w, d.Vocab) }})
	}
	if c.Torch {
		parts = append(parts, part{torchFile, func(w io.Writer) error { return torchfile.Write(w, ts...) }})
	}
	return r.write(ctx, append(parts, textPart(cardFile, card), part{ConfigFile, func(w io.Writer) error {
		b, err := json.MarshalIndent(conf, "", "  ")
		if err == nil {
			_, err = w.Write(append(b, '\n'))
		}
		return err
	}}))
}

// typed returns the head's tensors as c's type, with the LM head that c asks for; c's embedding is of that type then, too.
func (d *Draft) typed(ctx context.Context, c *ExportConfig) ([]safetensors.Tensor, error) {
	ts, err := asType(ctx, d.Tensors, c.DType)
	if err != nil {
		return nil, err
	}
	if c.Embed != nil {
		if _, ok := floats[c.Embed.DType]; !ok {
			return nil, fmt.Errorf("the target's embedding is %s, want F32, F16, BF16 or F64", c.Embed.DType)
		}
		e, err := asType(ctx, []safetensors.Tensor{*c.Embed}, c.DType)
		if err != nil {
			return nil, fmt.Errorf("the target's embedding: %w", err)
		}
		c.Embed = &e[0]
	}
	return d.withLMHead(ctx, c, ts)
}

// arranged returns the configuration and the tensors as format f has them.
func (d *Draft) arranged(f Format, c *ExportConfig, ts []safetensors.Tensor) (conf map[string]any, _ []safetensors.Tensor, err error) {
	raw, err := head.Config(d.Spec)
	if err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(raw, &conf); err != nil {
		return nil, nil, err
	}
	conf["torch_dtype"] = dtypeOf(ts)
	if d.Spec.Block.On {
		if c.Target != nil {
			conf["num_target_layers"] = c.Target.Layers
		}
		if d.Vocab != nil {
			ts = append(ts, draftvocab.Tensors(d.Vocab, d.Spec.Vocab)...)
		}
		return f.block(d, c, conf, ts)
	}
	if !d.Spec.Eagle3.On {
		delete(conf, "draft_vocab_size") // every other reader would take the head for an EAGLE-3 head
		conf, ts = f.eagle(d, c, conf, ts)
		return conf, ts, nil
	}
	if d.Vocab != nil {
		ts = append(ts, draftvocab.Tensors(d.Vocab, d.Spec.Vocab)...)
	}
	conf, ts = f.eagle3(d, c, conf, ts)
	return conf, ts, nil
}

// A part is a file of an export.
type part struct {
	name string
	fill func(io.Writer) error
}

func textPart(name string, b []byte) part {
	return part{name, func(w io.Writer) error { _, err := w.Write(b); return err }}
}

// write writes the parts to the directory r.Out. The last one is that without which the directory
// is not a head.
func (r *Exported) write(ctx context.Context, parts []part) (*Exported, error) {
	files, err := durable.NewDir(r.Out)
	for _, p := range parts {
		if err == nil {
			err = files.Write(p.name, func(w io.Writer) error { return p.fill(durable.Until(ctx, w)) })
		}
	}
	if err == nil {
		err = files.Commit()
	}
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	r.Files = files.Names()
	return r, nil
}

// withEmbed adds the target's embedding, already converted to the file's type, to a
// head that has none.
func (d *Draft) withEmbed(c *ExportConfig, ts []safetensors.Tensor) []safetensors.Tensor {
	name := d.Spec.Weight(arch.Embed, 0)
	if _, ok := d.Tensor(name); ok || c.Embed == nil {
		return ts
	}
	e := *c.Embed
	e.Name = name
	return append(ts, e)
}

// withLMHead adds the rows of the target's LM head that an EAGLE-3 or block head with a draft
// vocabulary uses, if the head has no LM head of its own: readers use all rows or none.
func (d *Draft) withLMHead(ctx context.Context, c *ExportConfig, ts []safetensors.Tensor) ([]safetensors.Tensor, error) {
	targets := d.Spec.Eagle3.TargetLMHead || d.Spec.Block.On && !d.Spec.Block.OwnLMHead
	if !targets || d.Vocab == nil || c.LMHead == nil {
		return ts, nil
	}
	l := *c.LMHead
	row := len(l.Data) / d.Spec.Vocab
	rows := safetensors.Tensor{Name: "lm_head.weight", DType: l.DType, Shape: []int{len(d.Vocab), d.Spec.Hidden}}
	for _, id := range d.Vocab {
		rows.Data = append(rows.Data, l.Data[int(id)*row:][:row]...)
	}
	if _, ok := floats[l.DType]; !ok {
		return nil, fmt.Errorf("the target's LM head is %s, want F32, F16, BF16 or F64", l.DType)
	}
	out, err := asType(ctx, []safetensors.Tensor{rows}, c.DType)
	return append(slices.Clone(ts), out...), err
}

// dtypeOf returns torch's name for the type of the trained weights. An embedding may
// have its target's type.
func dtypeOf(ts []safetensors.Tensor) string {
	i := slices.IndexFunc(ts, func(t safetensors.Tensor) bool { return strings.HasSuffix(t.Name, "fc.weight") })
	return floats[ts[i].DType]
}
