// Package medusa reads Medusa heads as they are published: FasterDecoding/Medusa's medusa_lm_head.pt
// with a config.json, the same tensors in safetensors, whole models of Medusa-2 that hold them beside
// their own, and vLLM's conversions. They are read only: nothing here writes such files.
package medusa

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"talf/checkpoints/internal/torchfile"
	"talf/internal/limits"
	"talf/model"
	"talf/model/medusa"
	"talf/model/safetensors"
)

// The names of files, safetensors first: they need no trust.
const (
	configFile  = "config.json"
	ownTensors  = "medusa_lm_head.safetensors"
	ownTorch    = "medusa_lm_head.pt"
	wholeTensor = "model.safetensors"
)

// A config is what config.json says of the heads. A number that is missing is nil.
type config struct {
	Heads    *int   `json:"medusa_num_heads"`
	Layers   *int   `json:"medusa_num_layers"`
	BaseName string `json:"base_model_name_or_path"`

	// vLLM's names.
	Type      string `json:"model_type"`
	NumHeads  *int   `json:"num_heads"`
	NumLayers *int   `json:"num_hidden_layers"`
	Vocab     int    `json:"vocab_size"`
	SharedLM  bool   `json:"original_lm_head"`
}

// Is reports whether dir has Medusa heads.
func Is(dir string) bool {
	for _, name := range []string{ownTensors, ownTorch} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	c, err := readConfig(dir)
	return err == nil && (c.Heads != nil || c.Type == "medusa")
}

// readConfig reads config.json, which may be missing.
func readConfig(dir string) (c config, err error) {
	path := filepath.Join(dir, configFile)
	raw, err := limits.ReadFile(path, limits.ConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read Medusa heads: %w", err)
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Files are Medusa heads as stored, with their tensors under the names of medusa.Spec.
type Files struct {
	Dir    string
	File   string // that the weights were read from
	Spec   medusa.Spec
	Target string   // the name of the model they draft for, "" if the files do not say
	Notes  []string // what the configuration says and the weights do not, and the like

	set *safetensors.Set
}

// Open reads the heads in dir. The weights decide how many there are, because published configurations
// say 2 where there are 5. No part of a pickle is executed.
func Open(dir string) (_ *Files, err error) {
	c, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	f := &Files{Dir: dir, Target: c.BaseName}
	stored, err := f.read()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	tensors, err := f.rename(stored, &c)
	if err != nil {
		return nil, err
	}
	if err := f.measure(tensors, &c); err != nil {
		return nil, err
	}
	f.set = f.set.With(slices.SortedFunc(maps.Values(tensors), func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })...)
	return f, nil
}

// Load reads the heads in dir and loads them for target.
func Load(dir string, target *model.Model) (*medusa.Heads, error) {
	f, err := Open(dir)
	if err != nil {
		return nil, err
	}
	h, err := medusa.New(f.Spec, f.set, target)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return h, nil
}

// Close unmaps the weights.
func (f *Files) Close() error { return f.set.Close() }

// Size returns the number of weights, and their bytes.
func (f *Files) Size() (weights, bytes int64) {
	for _, name := range f.set.Names() {
		if t, ok := f.set.Describe(name); ok {
			weights, bytes = weights+int64(t.Len()), bytes+int64(t.Size())
		}
	}
	return weights, bytes
}

// read opens the weights.
func (f *Files) read() (ts []safetensors.Tensor, err error) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(f.Dir, name))
		return err == nil
	}
	switch {
	case has(ownTensors):
		f.File = ownTensors
		f.set, err = safetensors.Open(filepath.Join(f.Dir, ownTensors))
	case has(ownTorch):
		f.File = ownTorch
		if ts, err = torchfile.Read(filepath.Join(f.Dir, ownTorch)); err == nil {
			f.set = safetensors.Of(filepath.Join(f.Dir, ownTorch))
		}
		return ts, err
	case has(wholeTensor), has(wholeTensor + ".index.json"):
		f.File = wholeTensor
		f.set, err = safetensors.OpenDir(f.Dir)
	default:
		return nil, fmt.Errorf("%s: neither %s nor %s nor %s with Medusa heads", f.Dir, ownTensors, ownTorch, wholeTensor)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range f.set.Names() {
		t, _ := f.set.Tensor(name)
		ts = append(ts, t)
	}
	return ts, nil
}

// rename gives the tensors of the heads the names of medusa.Spec. Those of a whole model are left out.
func (f *Files) rename(stored []safetensors.Tensor, c *config) (map[string]safetensors.Tensor, error) {
	const prefix = "medusa_head." // in whole models
	whole := slices.ContainsFunc(stored, func(t safetensors.Tensor) bool { return strings.HasPrefix(t.Name, prefix) })
	vllm := c.Type == "medusa"
	out := map[string]safetensors.Tensor{}
	for _, t := range stored {
		if whole && !strings.HasPrefix(t.Name, prefix) {
			continue
		}
		name := strings.TrimPrefix(t.Name, prefix)
		if vllm {
			if name = strings.TrimPrefix(name, "medusa_heads."); name == "token_map" {
				return nil, fmt.Errorf("%s: tensor %q: Medusa heads that predict %d of the %d tokens, want heads that predict all", f.Dir, t.Name, t.Len(), c.Vocab)
			}
			name = fromVLLM(name, c)
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("%s: tensor %q: another one has its place", f.Dir, t.Name)
		}
		stored := t.Name
		if t.Name = name; name == "" {
			return nil, fmt.Errorf("%s: tensor %q is not part of Medusa heads", f.Dir, stored)
		}
		out[name] = t
	}
	if vllm && c.SharedLM && c.NumLayers != nil && c.NumHeads != nil && *c.NumHeads <= medusa.MaxHeads {
		s := medusa.Spec{Layers: *c.NumLayers}
		for h := 1; h < *c.NumHeads; h++ {
			if t, ok := out[s.LMHead(0)]; ok {
				t.Name = s.LMHead(h)
				out[t.Name] = t
			}
		}
		f.note("the heads share one LM head")
	}
	return out, nil
}

// fromVLLM returns the name of a tensor of vLLM's in the authors' files, "" if there is none.
func fromVLLM(name string, c *config) string {
	part := strings.Split(name, ".")
	switch {
	case len(part) == 5 && part[0] == "blocks" && part[2] == "layers":
		return fmt.Sprintf("%s.%s.linear.%s", part[1], part[3], part[4])
	case len(part) == 3 && part[0] == "lm_heads" && part[2] == "weight" && c.NumLayers != nil:
		return fmt.Sprintf("%s.%d.weight", part[1], *c.NumLayers)
	case name == "lm_head.weight" && c.NumLayers != nil:
		return fmt.Sprintf("0.%d.weight", *c.NumLayers)
	}
	return ""
}

// measure finds out from names and shapes what heads there are. All must be alike and whole.
func (f *Files) measure(tensors map[string]safetensors.Tensor, c *config) error {
	s := &f.Spec
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t, part := tensors[name], strings.Split(name, ".")
		head, err := strconv.Atoi(part[0])
		if len(part) != 3 || part[2] != "weight" || err != nil || head < 0 || head >= medusa.MaxHeads || len(t.Shape) != 2 {
			continue // checked below
		}
		if s.Heads = max(s.Heads, head+1); head == 0 {
			if s.Layers, err = strconv.Atoi(part[1]); err != nil || s.Layers < 0 || s.Layers > medusa.MaxLayers {
				return fmt.Errorf("%s: tensor %q is not part of Medusa heads of at most %d blocks", f.Dir, t.Name, medusa.MaxLayers)
			}
			s.Vocab, s.Hidden = t.Shape[0], t.Shape[1]
		}
	}
	if s.Hidden == 0 {
		return fmt.Errorf("%s: %s has no LM head of a first Medusa head, such as %q", f.Dir, f.File, (&medusa.Spec{Layers: 1}).LMHead(0))
	}
	want := map[string][]int{}
	for h := range s.Heads {
		for l := range s.Layers {
			want[s.Weight(h, l)], want[s.Bias(h, l)] = []int{s.Hidden, s.Hidden}, []int{s.Hidden}
		}
		want[s.LMHead(h)] = []int{s.Vocab, s.Hidden}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		t, ok := tensors[name]
		if !ok && strings.HasSuffix(name, ".bias") {
			continue
		}
		if !ok || !slices.Equal(t.Shape, want[name]) {
			return fmt.Errorf("%s: tensor %q has shape %v, want %v for %d Medusa heads of %d blocks", f.Dir, name, t.Shape, want[name], s.Heads, s.Layers)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		if _, ok := want[name]; !ok {
			return fmt.Errorf("%s: tensor %q is not part of %d Medusa heads of %d blocks", f.Dir, name, s.Heads, s.Layers)
		}
	}
	for _, x := range []struct {
		key  string
		said *int
		is   int
	}{
		{"medusa_num_heads", c.Heads, s.Heads},
		{"medusa_num_layers", c.Layers, s.Layers},
		{"num_heads", c.vllm(c.NumHeads), s.Heads},
		{"num_hidden_layers", c.vllm(c.NumLayers), s.Layers},
	} {
		if x.said != nil && *x.said != x.is {
			f.note("%s is %d, but the weights have %d", x.key, *x.said, x.is)
		}
	}
	return nil
}

// vllm returns n if the configuration is vLLM's: a whole model has such keys of its own.
func (c *config) vllm(n *int) *int {
	if c.Type != "medusa" {
		return nil
	}
	return n
}

func (f *Files) note(format string, args ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
}
