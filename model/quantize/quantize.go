// Package quantize writes models with smaller weights: q8, which has 8-bit integers and
// a float16 scale for every 32 of a row (docs/formats.md), q4, which has 4-bit integers in the
// blocks of GGUF files, or bfloat16.
package quantize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/internal/durable"
	"talf/internal/limits"
	"talf/model"
	"talf/model/arch"
	"talf/model/ggml"
	"talf/model/gguf"
	"talf/model/safetensors"
)

// A Result says what Model wrote.
type Result struct {
	Out      string `json:"out"`
	DType    string `json:"dtype"`
	Matrices int    `json:"matrices"` // matrices converted
	Kept     int    `json:"kept"`     // tensors left unchanged
	From     int64  `json:"bytes_before"`
	To       int64  `json:"bytes_after"`

	Warnings []string `json:"warnings,omitempty"` // of the tokenizer of a GGUF file, what was mended or guessed
}

// files are the files that a model directory may have in addition to config.json and
// the weights.
var files = [...]string{
	"generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
	"special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
}

// chunk is the number of elements converted at a time. It bounds memory and how long a
// cancelled context goes unnoticed.
const chunk = 4 << 20

// Model writes the model in dir to the new or empty directory out, whole or not at all,
// with its matrices as Q8, Q4 or BF16. Vectors, routers of experts and other files are unchanged, and with Q8 and Q4 the
// up-projection of latent attention: they are not rounded when they are loaded. With Q4, matrices
// of whole blocks of a row are in Q4_K, or in Q4_0; embedding and LM head, and all others, are q8, but what is in blocks
// that Q4 keeps stays in them. dir may be a GGUF file, or have experts in MXFP4; the integers and scales of their blocks are kept where the new type has them. The file
// records the hash of the original weights, so heads trained for these also run with
// the new ones. The weights are read twice and are never all in memory together. The tokenizer of a GGUF file is written so that it
// splits texts as pre says, unless that is empty (gguf.ReadAs); the Result says what is odd about it.
func Model(ctx context.Context, dir, out string, as compute.DType, pre string) (*Result, error) {
	if as != compute.Q8 && as != compute.Q4 && as != compute.BF16 {
		return nil, fmt.Errorf("quantize to %v, want Q8, Q4 or BF16", as)
	}
	if pre != "" && !gguf.Is(dir) {
		return nil, fmt.Errorf("%s: how texts are split (%.40q) can be named for GGUF files alone: tokenizer.json says it", dir, pre)
	}
	spec, err := arch.Load(dir)
	if err != nil {
		return nil, err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = set.Close() }() // read-only
	if dt := quantized(set); dt != "" {
		return nil, fmt.Errorf("%s: the weights are %s already", dir, dt)
	}
	to, err := durable.NewDir(out)
	if err != nil {
		return nil, err
	}
	r, err := convert(ctx, set, to, as, chunk, plans(spec, as))
	for _, name := range append(files[:], "config.json") { // last: without it the directory is not a model
		if err == nil {
			err = r.copyFile(to, dir, name, pre)
		}
	}
	if err == nil {
		err = to.Commit()
	}
	if err != nil {
		return nil, errors.Join(err, to.Discard())
	}
	r.Out = out
	return r, nil
}

// quantized returns the type of the set's weights if Model wrote them as integers, and otherwise "".
// Blocks of other formats are not those.
func quantized(set *safetensors.Set) string {
	q8 := slices.ContainsFunc(set.Names(), func(name string) bool {
		of, isScale := strings.CutSuffix(name, model.ScaleSuffix)
		ints, ok := set.Describe(of)
		return isScale && ok && ints.DType == "I8"
	})
	switch file := set.Metadata()[model.MetaSource] != ""; { // blocks of GGUF files, and experts in MXFP4, are as their makers wrote them
	case file && slices.ContainsFunc(set.Names(), func(name string) bool { t, _ := set.Describe(name); return kept(t) }): // there need be no other integers
		return "q4"
	case q8:
		return "q8"
	}
	return ""
}

func (r *Result) copyFile(to *durable.Dir, dir, name, pre string) (err error) {
	var b []byte
	if gguf.Is(dir) && name == "tokenizer.json" {
		b, r.Warnings, err = gguf.ReadAs(dir, name, pre, limits.TokenizerBytes)
	} else {
		b, err = gguf.ReadFile(dir, name, limits.TokenizerBytes)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if name == "tokenizer.json" && pre != "" {
			return fmt.Errorf("%s: how texts are split (%.40q) can be named for byte-level tokenizers alone", dir, pre)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return to.Write(name, func(w io.Writer) error { _, err := w.Write(b); return err })
}

// A piece is a tensor of the new file and the tensor that it is made from.
type piece struct {
	safetensors.Tensor                    // without Data
	from               safetensors.Tensor // without Data until it is written
	scales             bool               // the scales of a quantised matrix
	blocks             *ggml.Type         // that Q4 keeps, or nil
}

// A plan says which matrices are not converted like the others.
type plan struct {
	stored map[string]bool // stay as they are stored
	eight  map[string]bool // are q8 if the others become Q4, unless it keeps their blocks
}

// plans returns the matrices that a model with weights of that type does not round, routers, gates and convolutions of
// recurrent layers and, unless it has BF16, the up-projection of latent attention, and those that every token's logits
// depend on most directly: embedding and LM head.
func plans(spec *arch.Spec, as compute.DType) plan {
	p := plan{make(map[string]bool), make(map[string]bool)}
	specs := []*arch.Spec{spec}
	if own, err := spec.MTPFor(); err == nil {
		specs = append(specs, own)
	}
	for _, s := range specs {
		for _, t := range s.Tensors() {
			switch t.Role {
			case arch.Router, arch.SharedRouter, arch.DeltaGates, arch.DeltaConv:
				p.stored[t.Name] = true
			case arch.KVUp, arch.KeyUp, arch.ValueUp:
				p.stored[t.Name] = as != compute.BF16
			case arch.Embed, arch.LMHead:
				p.eight[t.Name] = true
			}
		}
	}
	return p
}

func convert(ctx context.Context, set *safetensors.Set, to *durable.Dir, as compute.DType, chunk int, how plan) (*Result, error) {
	r := &Result{DType: strings.ToLower(as.String())}
	pieces := make(map[string]piece)
	var all []safetensors.Tensor
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		r.From += int64(t.Size())
		to := as
		if how.eight[name] && as == compute.Q4 && !kept(t) {
			to = compute.Q8
		}
		made := planned(t, to)
		if how.stored[name] {
			made = nil
		}
		if made == nil {
			r.Kept++
			same := piece{Tensor: safetensors.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape}, from: t}
			if ggml.Blocks(t.DType) != nil && len(t.Shape) == 2 { // of a GGUF file: this file has no such type, and no value changes
				same.DType = "F32"
			}
			made = []piece{same}
		} else {
			r.Matrices++
		}
		for _, p := range made {
			r.To += int64(p.Size())
			pieces[p.Name] = p
			all = append(all, p.Tensor)
		}
	}
	meta := maps.Clone(set.Metadata())
	if meta == nil {
		meta = map[string]string{}
	}
	origin, err := model.OriginOf(set, func(int64, int64) error { return ctx.Err() })
	if err != nil {
		return nil, err
	}
	meta["format"], meta[model.MetaSource] = "pt", origin
	return r, to.Write("model.safetensors", func(f io.Writer) error {
		layout := safetensors.Layout(all)
		w, err := safetensors.NewWriter(durable.Until(ctx, f), meta, layout...)
		if err != nil {
			return err
		}
		for _, t := range layout {
			p := pieces[t.Name]
			p.from, _ = set.Tensor(p.from.Name)
			if err := p.write(ctx, w, chunk); err != nil {
				return err
			}
			set.Release(p.from.Name, 0, len(p.from.Data))
		}
		return w.Close()
	})
}

// planned returns the tensors that replace t, or nil if t stays unchanged, as vectors
// do, and the buffers that some files contain.
func planned(t safetensors.Tensor, as compute.DType) []piece {
	float := t.DType == "F32" || t.DType == "F16" || t.DType == "BF16" || ggml.Blocks(t.DType) != nil
	if !float || len(t.Shape) != 2 || !strings.HasSuffix(t.Name, ".weight") || as == compute.BF16 && t.DType == "BF16" {
		return nil
	}
	if as == compute.BF16 {
		return []piece{{Tensor: safetensors.Tensor{Name: t.Name, DType: "BF16", Shape: t.Shape}, from: t}}
	}
	if as == compute.Q4 {
		if b := blocksFor(t); b != nil {
			shape := []int{t.Shape[0], t.Shape[1] / b.Elems * b.Size}
			return []piece{{Tensor: safetensors.Tensor{Name: t.Name + safetensors.BlocksSuffix(b.Name), DType: "U8", Shape: shape}, from: t, blocks: b}}
		}
	}
	scales := []int{t.Shape[0], kern.Q8Blocks(t.Shape[1])}
	return []piece{
		{Tensor: safetensors.Tensor{Name: t.Name, DType: "I8", Shape: t.Shape}, from: t},
		{Tensor: safetensors.Tensor{Name: t.Name + model.ScaleSuffix, DType: "F16", Shape: scales}, from: t, scales: true},
	}
}

// blocksFor returns the type of blocks that t becomes with Q4: its own if Q4 keeps that, nil if it is in other
// blocks or its rows are not whole ones.
func blocksFor(t safetensors.Tensor) *ggml.Type {
	if kept(t) {
		return ggml.Blocks(t.DType)
	}
	if ggml.Blocks(t.DType) != nil {
		return nil
	}
	for _, name := range []string{"Q4_K", "Q4_0"} {
		if b := ggml.Blocks(name); t.Shape[1] > 0 && t.Shape[1]%b.Elems == 0 {
			return b
		}
	}
	return nil
}

// kept reports whether t is in blocks that Q4 keeps.
func kept(t safetensors.Tensor) bool {
	b := ggml.Blocks(t.DType)
	return b != nil && b.Kept() != compute.NotKept
}

// write converts a piece, rows of about chunk elements at a time.
func (p *piece) write(ctx context.Context, w io.Writer, chunk int) error {
	if p.DType == p.from.DType && !p.scales || p.blocks != nil && p.from.DType == p.blocks.Name {
		for part := range slices.Chunk(p.from.Data, chunk) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	}
	rows, cols := p.from.Shape[0], p.from.Shape[1]
	step := max(1, chunk/max(cols, 1))
	for r := 0; r < rows; r += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(step, rows-r)
		size := len(p.from.Data) / rows
		part := safetensors.Tensor{Name: p.from.Name, DType: p.from.DType, Shape: []int{n, cols}, Data: p.from.Data[r*size:][:n*size]}
		if b, ok := p.kept(part); ok {
			if _, err := w.Write(b); err != nil {
				return err
			}
			continue
		}
		x, err := part.Float32s()
		if err != nil {
			return err
		}
		if _, err := w.Write(p.encode(x, n, cols)); err != nil {
			return err
		}
	}
	return nil
}

// kept returns rows of a q8 piece whose integers and scales are those of blocks of a GGUF file, if
// that is so.
func (p *piece) kept(rows safetensors.Tensor) ([]byte, bool) {
	b := ggml.Blocks(rows.DType)
	if b == nil || p.DType != "I8" && !p.scales {
		return nil, false
	}
	n := rows.Len()
	ints, scales := make([]byte, n), make([]byte, n/kern.Q8Block*2)
	if !b.Q8(ints, scales, rows.Data) {
		return nil, false
	}
	if p.scales {
		return scales, true
	}
	return ints, true
}

// encode converts rows x [n][cols].
func (p *piece) encode(x []float32, n, cols int) []byte {
	switch p.DType {
	case "BF16":
		return safetensors.BF16(p.Name, x, n, cols).Data
	case "F32":
		return safetensors.F32(p.Name, x, n, cols).Data
	}
	if p.blocks != nil {
		b := make([]byte, n*p.Shape[1])
		p.blocks.Encode(b, x)
		return b
	}
	blocks := kern.Q8Blocks(cols)
	ints, scales := make([]byte, n*cols), make([]byte, 2*n*blocks)
	for r := range n {
		kern.QuantQ8(ints[r*cols:][:cols], scales[2*r*blocks:], x[r*cols:][:cols])
	}
	if p.scales {
		return scales
	}
	return ints
}
