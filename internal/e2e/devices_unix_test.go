//go:build unix

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spf13/pflag"

	"talf/checkpoints"
	"talf/data"
	"talf/infer/draft/shape"
	"talf/internal/cli"
	"talf/internal/e2e/talftest"
	"talf/internal/limits/costtest"
	"talf/model/arch"
	"talf/model/safetensors"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// A model's directory is untrusted: any of its files may be a pipe without a writer, or a link to a
// device without an end.
func TestPipesAndDevicesAreRefused(t *testing.T) {
	model := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	for _, c := range []struct {
		file string
		read func(dir, file string) error
	}{
		{"config.json", func(dir, _ string) error { _, err := arch.Load(dir); return err }},
		{"config.json", func(dir, _ string) error { _, err := arch.LoadDraft(dir); return err }},
		{"config.json", func(dir, _ string) error { _, err := checkpoints.OpenDraft(dir); return err }},
		{"config.json", func(dir, _ string) error { _, err := checkpoints.OpenTarget(dir); return err }},
		{"generation_config.json", func(dir, _ string) error { _, err := arch.Load(dir); return err }},
		{"tokenizer.json", func(dir, _ string) error { _, err := tokenizer.Load(dir); return err }},
		{"tokenizer_config.json", func(dir, _ string) error { _, err := tokenizer.Load(dir); return err }},
		{"tokenizer_config.json", func(dir, _ string) error { _, err := chat.Load(dir); return err }},
		{"chat_template.jinja", func(dir, _ string) error { _, err := chat.Load(dir); return err }},
		{"template.jinja", func(_, file string) error { _, err := chat.LoadFile(file); return err }},
		{"model.safetensors", func(dir, _ string) error { _, err := safetensors.OpenDir(dir); return err }},
		{"pytorch_model.bin", func(dir, _ string) error { _, err := checkpoints.OpenDraft(dir); return err }},
		{"manifest.json", func(dir, _ string) error { _, err := checkpoints.ReadManifest(dir); return err }},
		{"manifest.json", func(dir, _ string) error { _, err := data.Open(dir); return err }},
		{"best.json", func(dir, _ string) error { _, err := checkpoints.Find(filepath.Join(dir, "best")); return err }},
		{"vocab.json", func(_, file string) error { _, _, err := checkpoints.ReadDraftVocab(file, 9); return err }},
		{"vocab.pt", func(_, file string) error { _, _, err := checkpoints.ReadDraftVocab(file, 9); return err }},
		{"shape.json", func(_, file string) error { _, err := shape.Read(file, ""); return err }},
		{"flags.yaml", func(_, file string) error {
			return (&cli.FlagFile{}).Read(pflag.NewFlagSet("", pflag.ContinueOnError), file)
		}},
	} {
		for kind, put := range map[string]func(path string) error{
			"pipe":   func(path string) error { return unix.Mkfifo(path, 0o600) },
			"device": func(path string) error { return os.Symlink("/dev/zero", path) },
		} {
			name := c.file + " is a " + kind
			dir := talftest.CopyDir(t, model)
			path := filepath.Join(dir, c.file)
			if c.file == "pytorch_model.bin" { // it is read if there is nothing better
				if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			bound := costtest.Bound{Yards: costtest.Default.Yards / 2, Bytes: 64 << 20}
			costtest.Check(t, name, bound, func(context.Context) {
				err := c.read(dir, path)
				if err == nil || !strings.Contains(err.Error(), "not a regular file") || !strings.Contains(err.Error(), c.file) {
					t.Errorf("%s: %v, want an error that says so", name, err)
				}
			})
		}
	}
}
