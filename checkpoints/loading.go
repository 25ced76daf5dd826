package checkpoints

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"talf/compute"
	"talf/model"
	"talf/model/arch"
	"talf/model/gguf"
	"talf/model/safetensors"
	"talf/model/synth"
)

// A DType is the type in which weights are kept, or Auto. It is a flag value.
type DType compute.DType

// Auto is the type in which each matrix is stored, or another one that loses nothing; see
// Loading.Options.
const Auto DType = 255

var dtypes = [...]compute.DType{compute.F32, compute.BF16, compute.BF16DP, compute.Q8, compute.Q4}

// DTypeNames lists the names of all types except Auto.
func DTypeNames() string {
	var names []string
	for _, t := range dtypes {
		names = append(names, strings.ToLower(t.String()))
	}
	return strings.Join(names, ", ")
}

// Type names the kind of value for a flag's help text.
func (d *DType) Type() string { return "dtype" }

func (d *DType) String() string {
	if *d == Auto {
		return "auto"
	}
	return strings.ToLower(compute.DType(*d).String())
}

// Set reads a name.
func (d *DType) Set(s string) error {
	if s == "auto" {
		*d = Auto
		return nil
	}
	for _, t := range dtypes {
		if strings.EqualFold(t.String(), s) {
			*d = DType(t)
			return nil
		}
	}
	return fmt.Errorf("want one of %s", DTypeNames())
}

// A KVType is the type in which keys and values are kept. It is a flag value.
type KVType compute.DType

// Type names the kind of value for a flag's help text.
func (k *KVType) Type() string   { return "dtype" }
func (k *KVType) String() string { return strings.ToLower(compute.DType(*k).String()) }

// Set reads a name.
func (k *KVType) Set(s string) error {
	switch s {
	case "f32":
		*k = KVType(compute.F32)
	case "bf16":
		*k = KVType(compute.BF16)
	default:
		return errors.New("want f32 or bf16")
	}
	return nil
}

// A Loading says how a language model is loaded. The zero Loading keeps weights, keys and
// values as float32.
type Loading struct {
	DType     DType
	KV        KVType
	Layers    int  // deepen the model to this many layers; 0: unchanged
	Rows      int  // maximum rows of an internal pass; 0: the model's default
	Positions int  // positions of keys and values to reserve on a device of limited memory
	LogitRows int  // rows that have logits at one time, if they are more than a tree's nodes
	Lazy      bool // pack the weights only when the model first runs
	// AllowNonFinite loads weights that are NaN, infinite or too large for DType.
	AllowNonFinite bool
	// Watch, unless nil, is called with the progress of long work on all the weights.
	Watch model.Watch
}

// A LayersError says why a model cannot have the layers that a Loading asks for.
type LayersError struct{ Err error }

func (e LayersError) Error() string { return e.Err.Error() }
func (e LayersError) Unwrap() error { return e.Err }

// Options returns the options to load a set of weights onto dev.
func (l Loading) Options(set *safetensors.Set, dev compute.Device) model.Options {
	opt := model.Default()
	if l.Rows > 0 {
		opt.MaxRows = l.Rows
	}
	opt.KV, opt.Lazy, opt.AllowNonFinite, opt.Watch = compute.DType(l.KV), l.Lazy, l.AllowNonFinite, l.Watch
	limited := dev.Abilities().Plan != nil
	if limited {
		opt.Positions, opt.LogitRows = l.Positions, l.LogitRows
	}
	if opt.DType = compute.DType(l.DType); l.DType == Auto {
		opt.DType = model.Stored(set, dev)
		// On such a device reading weights takes most of the time, and bf16 loses nothing
		// here.
		if opt.DType == compute.F32 && limited && allBF16(set) {
			opt.DType = compute.BF16
		}
	}
	return opt
}

// allBF16 reports whether all weights of a set are stored as bfloat16.
func allBF16(set *safetensors.Set) bool {
	names := set.Names()
	for _, name := range names {
		if t, _ := set.Describe(name); t.DType != "BF16" {
			return false
		}
	}
	return len(names) > 0
}

// Load loads the model in dir onto dev. It sets Layers to 0 if the model already has
// that many layers. The files of a deepened model stay mapped until the process exits.
func (l *Loading) Load(dir string, dev compute.Device) (*model.Model, error) {
	set, setErr := safetensors.OpenDir(dir) // first: a GGUF file that is open is read once
	spec, err := arch.Load(dir)
	if err != nil {
		if setErr == nil {
			err = errors.Join(err, set.Close())
		}
		return nil, err
	}
	if setErr != nil {
		return nil, setErr
	}
	opt := l.Options(set, dev)
	if l.Layers == spec.Layers {
		l.Layers = 0
	}
	if l.Layers > 0 {
		// The deepened set shares this set's mappings.
		if spec, set, err = synth.Deepen(spec, set, l.Layers); err != nil {
			return nil, LayersError{err}
		}
	}
	m, err := model.New(spec, set, dev, opt)
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	return m, nil
}

// FindModel returns the directory or GGUF file of the language model that a user means by
// path: path itself or what Find returns. For any other path, the error says what is wrong with
// it.
func FindModel(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return "", fmt.Errorf("%s does not exist: want a model (directory or .gguf)", path)
	case err != nil:
		return "", err
	case gguf.Is(path):
		return path, nil
	case !info.IsDir():
		return "", fmt.Errorf("%s is a file and not GGUF: want a model (directory or .gguf)", path)
	}
	dir, err := Find(path)
	if err != nil {
		// It may exist but be unreadable.
		if _, err := os.Stat(filepath.Join(path, ConfigFile)); err != nil && !os.IsNotExist(err) {
			return "", err
		}
		if err := arch.HintGGUF(path); err != nil {
			return "", err
		}
		return "", fmt.Errorf("%s has no config.json: want a model (directory or .gguf), a directory with config.json, *.safetensors and tokenizer.json", path)
	}
	return dir, nil
}
