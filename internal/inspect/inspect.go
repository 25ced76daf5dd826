// Package inspect describes the contents of a path: a model, a draft head, a checkpoint,
// training data, tensors or a datastore. A description is marshalled as JSON, and its String
// method is the text for people.
package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"talf/checkpoints"
	"talf/checkpoints/medusa"
	"talf/data"
	"talf/model/arch"
	"talf/model/gguf"
)

// A Description is a *Model, *Draft, *Medusa, *Data or *Tensors.
type Description interface{ String() string }

// Path describes the contents of path. A directory of checkpoints is described by its newest.
func Path(path string) (Description, error) {
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("%s does not exist", path)
	}
	if err != nil {
		return nil, err
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(path, name))
		return err == nil
	}
	switch {
	case gguf.IsHead(path):
		return openDraft(path)
	case gguf.Is(path):
		return openModel(path)
	case info.IsDir() && medusa.Is(path):
		return openMedusa(path)
	case info.IsDir() && checkpoints.IsForeign(path):
		return openDraft(path)
	case info.IsDir() && has(checkpoints.ConfigFile):
		return openModel(path)
	case info.IsDir() && (has(data.ManifestName) || data.HasParts(path)), strings.HasSuffix(path, ".parquet"):
		return OpenData(path)
	case strings.HasSuffix(path, ".safetensors"):
		return openTensors(path)
	case info.IsDir():
		if _, err := checkpoints.Find(path); err == nil {
			var m *Model
			err := checkpoints.Read(path, func(dir string) (err error) {
				m, err = openModel(dir)
				return err
			})
			if err != nil {
				return nil, err
			}
			return m, nil
		}
	}
	if err := arch.HintGGUF(path); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s: want a directory with %s or %s, or a .parquet, .safetensors or .gguf file", path, checkpoints.ConfigFile, data.ManifestName)
}

// A page is a text that grows line by line.
type page struct{ strings.Builder }

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.Builder, format, args...) }

// short abbreviates a hash.
func short(hash string) string { return fmt.Sprintf("%.12s", hash) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
