package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/internal/durable"
	"talf/model"
	"talf/model/arch"
	"talf/model/safetensors"
)

// A quantized is what quantize did.
type quantized struct {
	Out      string `json:"out"`
	DType    string `json:"dtype"`
	Matrices int    `json:"matrices"` // that were converted
	Kept     int    `json:"kept"`     // tensors that stay as they are
	From     int64  `json:"bytes_before"`
	To       int64  `json:"bytes_after"`
}

func newQuantize(a *app) *cobra.Command {
	var dir, out string
	var asJSON bool
	dt := dtypeFlag(compute.Q8)
	c := &cobra.Command{
		Use:   "quantize --model DIR --out DIR",
		Short: "Write a model with smaller weights",
		Long: `Quantize writes a model directory whose matrices are kept as q8, integers of 8
bits with a float16 scale for every 32 of a row, or as bf16. Vectors and other files
stay as they are. A head that was trained for the model runs with the new one too.

--dtype of other commands quantises when a model is loaded; this spares the time
and the space.`,
		Example: "  talf quantize --model DIR --out DIR-q8\n  talf generate --model DIR-q8 --prompt 'Once upon a time'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "model", "out"); err != nil {
				return err
			}
			if t := compute.DType(dt); t != compute.Q8 && t != compute.BF16 {
				return usagef("--dtype is %s, want q8 or bf16", &dt)
			}
			path, err := findModel(dir)
			if err != nil {
				return err
			}
			q, err := quantize(cmd.Context(), path, out, compute.DType(dt))
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(q)
			}
			a.printf("%s: %d matrices as %s, %d other tensors: %s, before %s\n", q.Out, q.Matrices, q.DType, q.Kept,
				bytesText(uint64(q.To)), bytesText(uint64(q.From)))
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "model", "", "model directory in Hugging Face layout")
	f.StringVar(&out, "out", "", "directory to write, new or empty")
	f.Var(&dt, "dtype", "type of the new weights: q8 or bf16")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func quantize(ctx context.Context, dir, out string, as compute.DType) (*quantized, error) {
	if _, err := arch.Load(dir); err != nil {
		return nil, err
	}
	if err := newOrEmpty(out); err != nil {
		return nil, err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	if model.Stored(set) == compute.Q8 {
		return nil, fmt.Errorf("%s: the weights are q8 already", dir)
	}
	q := &quantized{Out: out, DType: strings.ToLower(as.String())}
	var tensors []safetensors.Tensor
	for _, name := range set.Names() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t, _ := set.Tensor(name)
		q.From += int64(len(t.Data))
		more, changed, err := convert(t, as)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", set.Name, err)
		}
		if changed {
			q.Matrices++
			set.Release(name, 0, len(t.Data))
		} else {
			q.Kept++
		}
		for _, x := range more {
			q.To += int64(len(x.Data))
			tensors = append(tensors, x)
		}
	}
	meta := maps.Clone(set.Metadata())
	if meta == nil {
		meta = map[string]string{}
	}
	meta["format"], meta[model.MetaSource] = "pt", model.HashOf(set)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	if err := writeModel(ctx, dir, out, meta, tensors); err != nil {
		return nil, err
	}
	return q, nil
}

// convert returns what a tensor is kept as, and whether that is something new.
// Matrices of weights are converted; the others, vectors and buffers that some
// files carry, stay as they are.
func convert(t safetensors.Tensor, as compute.DType) ([]safetensors.Tensor, bool, error) {
	float := t.DType == "F32" || t.DType == "F16" || t.DType == "BF16"
	if !float || len(t.Shape) != 2 || !strings.HasSuffix(t.Name, ".weight") || as == compute.BF16 && t.DType == "BF16" {
		return []safetensors.Tensor{t}, false, nil
	}
	x, err := t.Float32s()
	if err != nil {
		return nil, false, err
	}
	if as == compute.BF16 {
		return []safetensors.Tensor{safetensors.BF16(t.Name, x, t.Shape...)}, true, nil
	}
	rows, cols := t.Shape[0], t.Shape[1]
	blocks := kern.Q8Blocks(cols)
	w := safetensors.Tensor{Name: t.Name, DType: "I8", Shape: t.Shape, Data: make([]byte, rows*cols)}
	s := safetensors.Tensor{Name: t.Name + model.ScaleSuffix, DType: "F16", Shape: []int{rows, blocks}, Data: make([]byte, rows*blocks*2)}
	for r := range rows {
		kern.QuantQ8(w.Data[r*cols:][:cols], s.Data[r*blocks*2:], x[r*cols:][:cols])
	}
	return []safetensors.Tensor{w, s}, true, nil
}

// newOrEmpty refuses a directory that holds something.
func newOrEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty: want a new directory", dir)
	}
	return nil
}

// writeModel writes weights and copies the small files of dir beside them. The
// configuration comes last: without it the directory is no model.
func writeModel(ctx context.Context, dir, out string, meta map[string]string, tensors []safetensors.Tensor) error {
	path := filepath.Join(out, "model.safetensors")
	part := path + ".part"
	f, err := os.Create(part)
	if err != nil {
		return err
	}
	err = safetensors.Write(&stoppable{ctx, f}, meta, tensors...)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(part))
	}
	if err := os.Rename(part, path); err != nil {
		return err
	}
	for _, name := range append(modelFiles(), "config.json") {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := durable.WriteFile(filepath.Join(out, name), b); err != nil {
			return err
		}
	}
	return nil
}

// A stoppable writer fails once its context has ended.
type stoppable struct {
	ctx context.Context
	w   io.Writer
}

func (s *stoppable) Write(b []byte) (n int, err error) {
	const piece = 16 << 20
	for n < len(b) {
		if err := s.ctx.Err(); err != nil {
			return n, err
		}
		k, err := s.w.Write(b[n:min(len(b), n+piece)])
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

// modelFiles are the files beside config.json and the weights that a model
// directory may have.
func modelFiles() []string {
	return []string{
		"generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
		"special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
	}
}
