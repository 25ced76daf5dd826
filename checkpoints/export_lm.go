package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"talf/internal/durable"
	"talf/internal/limits"
	"talf/model/arch"
	"talf/model/safetensors"
)

// ExportLM writes the language model of a checkpoint, or of the newest one in a store, to the new
// directory to: config.json, model.safetensors in float32 or bfloat16, and the
// checkpoint's other files. Equal checkpoints give equal bytes. It ends soon after ctx does, and leaves nothing then.
func ExportLM(ctx context.Context, from, to string, bf16 bool) error {
	return Read(from, func(dir string) error { return exportLM(ctx, dir, to, bf16) })
}

func exportLM(ctx context.Context, dir, to string, bf16 bool) error {
	m, err := ReadManifest(dir)
	if err != nil {
		return err
	}
	if m == nil || m.Kind != KindLM {
		return fmt.Errorf("%s: not the checkpoint of a language model", dir)
	}
	if err := m.Verify(ctx, dir); err != nil {
		return err
	}
	spec, err := arch.Load(dir)
	if err != nil {
		return err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = set.Close() }() // read-only
	dtype := "float32"
	if bf16 {
		dtype = "bfloat16"
	}
	conf, err := spec.LlamaConfig(dtype)
	if err != nil {
		return err
	}
	var ts []safetensors.Tensor
	for _, name := range set.Names() {
		t, err := set.Get(name)
		if err != nil {
			return err
		}
		if bf16 {
			if t, err = safetensors.Convert(ctx, t, safetensors.BF16); err != nil {
				return err
			}
		}
		ts = append(ts, t)
	}
	files, err := durable.NewDir(to)
	if err != nil {
		return fmt.Errorf("export model: %w", err)
	}
	write := func(name string, fill func(io.Writer) error) {
		if err == nil {
			err = files.Write(name, fill)
		}
	}
	raw := func(name string, b []byte) {
		write(name, func(w io.Writer) error { _, err := w.Write(b); return err })
	}
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		switch name {
		case ConfigFile, WeightsFile, optimizerFile, StateFile:
			continue
		}
		b, err := limits.ReadFile(filepath.Join(dir, name), limits.TokenizerBytes)
		if err != nil {
			return fmt.Errorf("export model: %w", errors.Join(err, files.Discard()))
		}
		raw(name, b)
	}
	write(WeightsFile, func(w io.Writer) error {
		return safetensors.Write(durable.Until(ctx, w), map[string]string{"format": "pt"}, ts...)
	})
	raw(ConfigFile, conf) // last: without it the directory is not a model
	if err == nil {
		err = files.Commit()
	}
	if err != nil {
		return fmt.Errorf("export model: %w", err)
	}
	return nil
}
