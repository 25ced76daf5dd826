// Package quantize writes models with smaller weights: q8, which has 8-bit integers and
// a float16 scale for every 32 of a row (docs/formats.md), or bfloat16.
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
// with its matrices as Q8 or BF16. Vectors and other files are unchanged, and with Q8 routers of
// experts and the up-projection of latent attention, which are not rounded when they are loaded. dir may be a GGUF
// file, or have experts in MXFP4; q8 keeps the integers and scales of their blocks where it has them. The file
// records the hash of the original weights, so heads trained for these also run with
// the new ones. The weights are read twice and are never all in memory together.
func Model(ctx context.Context, dir, out string, as compute.DType) (*Result, error) {
	if as != compute.Q8 && as != compute.BF16 {
		return nil, fmt.Errorf("quantize to %v, want Q8 or BF16", as)
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
	if quantized(set) {
		return nil, fmt.Errorf("%s: the weights are q8 already", dir)
	}
	to, err := durable.NewDir(out)
	if err != nil {
		return nil, err
	}
	r, err := convert(ctx, set, to, as, chunk, unrounded(spec, as))
	for _, name := range append(files[:], "config.json") { // last: without it the directory is not a model
		if err == nil {
			err = copyFile(to, dir, name)
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

// quantized says whether Model wrote the set's weights, as q8. Blocks of other formats are not those.
func quantized(set *safetensors.Set) bool {
	return slices.ContainsFunc(set.Names(), func(name string) bool {
		of, isScale := strings.CutSuffix(name, model.ScaleSuffix)
		ints, ok := set.Describe(of)
		return isScale && ok && ints.DType == "I8"
	})
}

func copyFile(to *durable.Dir, dir, name string) error {
	b, err := gguf.ReadFile(dir, name, limits.TokenizerBytes)
	if errors.Is(err, fs.ErrNotExist) {
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
}

// unrounded returns the matrices that a model does not hold as integers, and that stay as they are
// stored if the others become Q8: routers, and the up-projection of latent attention.
func unrounded(spec *arch.Spec, as compute.DType) map[string]bool {
	names := make(map[string]bool)
	if as != compute.Q8 {
		return names
	}
	specs := []*arch.Spec{spec}
	if own, err := spec.MTPFor(); err == nil {
		specs = append(specs, own)
	}
	for _, s := range specs {
		for _, t := range s.Tensors() {
			switch t.Role {
			case arch.Router, arch.SharedRouter, arch.KVUp:
				names[t.Name] = true
			}
		}
	}
	return names
}

func convert(ctx context.Context, set *safetensors.Set, to *durable.Dir, as compute.DType, chunk int, keep map[string]bool) (*Result, error) {
	r := &Result{DType: strings.ToLower(as.String())}
	pieces := make(map[string]piece)
	var all []safetensors.Tensor
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		r.From += int64(t.Size())
		made := planned(t, as)
		if keep[name] {
			made = nil
		}
		if made == nil {
			r.Kept++
			made = []piece{{Tensor: safetensors.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape}, from: t}}
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
	meta["format"], meta[model.MetaSource] = "pt", model.OriginOf(set)
	return r, to.Write("model.safetensors", func(f io.Writer) error {
		layout := safetensors.Layout(all)
		w, err := safetensors.NewWriter(f, meta, layout...)
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
	scales := []int{t.Shape[0], kern.Q8Blocks(t.Shape[1])}
	return []piece{
		{Tensor: safetensors.Tensor{Name: t.Name, DType: "I8", Shape: t.Shape}, from: t},
		{Tensor: safetensors.Tensor{Name: t.Name + model.ScaleSuffix, DType: "F16", Shape: scales}, from: t, scales: true},
	}
}

// write converts a piece, rows of about chunk elements at a time.
func (p *piece) write(ctx context.Context, w io.Writer, chunk int) error {
	if p.DType == p.from.DType && !p.scales {
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
	if b == nil || p.DType == "BF16" {
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
	if p.DType == "BF16" {
		return safetensors.BF16(p.Name, x, n, cols).Data
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
