// Package checkpoints stores the results of training on disk and exchanges draft
// heads with other systems. Every saved step is a directory with the weights in the
// format that other systems read (for a head, EAGLE's config.json and
// model.safetensors), the trainer's state and a manifest.
//
// A checkpoint is written under a temporary name, flushed and renamed, so a directory
// with a checkpoint's name is complete. The manifest has the size and hash of every
// file, so later damage is detected. Only one process at a time may open a store;
// reading checkpoints needs no store.
package checkpoints

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"talf/internal/durable"
	"talf/internal/limits"
	"talf/internal/vfs"
	"talf/model"
	"talf/model/gguf"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/safetensors"
)

// Schema is the version of checkpoints.
const Schema = 2

// The files of a checkpoint.
const (
	ConfigFile    = "config.json"
	WeightsFile   = "model.safetensors"
	optimizerFile = "optimizer.safetensors"
	StateFile     = "trainer.json"
	ManifestFile  = "manifest.json"
)

const (
	format     = "talf-checkpoint"
	lockFile   = ".lock"
	stepPrefix = "step-"
)

// The kinds of checkpoints.
const (
	KindHead = "head" // a draft head of one target
	KindLM   = "lm"   // a complete language model
)

// A Manifest describes a checkpoint and lists its files.
type Manifest struct {
	Format    string `json:"format"`
	Schema    int    `json:"schema"`
	Kind      string `json:"kind"`
	Step      int    `json:"step"`
	Tokenizer string `json:"tokenizer,omitempty"` // hash of the target's tokenizer
	Hidden    int    `json:"hidden"`
	Vocab     int    `json:"vocab"`
	// DraftVocab is the number of Vocab tokens that a head predicts; 0: all.
	DraftVocab int             `json:"draft_vocab,omitempty"`
	Model      *identity.Model `json:"target_model,omitempty"` // a head's target
	Loss       string          `json:"loss,omitempty"`
	Data       string          `json:"data,omitempty"` // hash of the training data's manifest
	Files      map[string]File `json:"files"`
}

// A File is one file of a checkpoint.
type File struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Tie returns the target that a head belongs to.
func (m *Manifest) Tie() identity.Tie { return identity.To(m.Model) }

// A Checkpoint is everything saved at one step. Save fills in Format, Schema and Files
// of its manifest.
type Checkpoint struct {
	Manifest
	Config    []byte               // config.json
	Weights   []safetensors.Tensor // model.safetensors
	Optimizer []safetensors.Tensor // empty: no trainer state
	State     []byte               // trainer.json; nil: no trainer state
	Extra     map[string][]byte    // further files by name, such as a tokenizer's
}

// A Store is a directory of checkpoints.
type Store struct {
	dir  string
	keep int
	lock *durable.Guard // held while the store is open
}

// NewStore opens the store in dir for exclusive use by this process. It creates dir if
// needed. Save keeps the newest keep checkpoints and the best one, or all if keep is 0.
func NewStore(dir string, keep int) (*Store, error) {
	if keep < 0 {
		return nil, fmt.Errorf("checkpoints: keep %d, want 0 (all) or more", keep)
	}
	if err := durable.MakeDirs(dir); err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	lock, err := durable.LockFile(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %s: %w", dir, err)
	}
	return &Store{dir: dir, keep: keep, lock: lock}, nil
}

// Close releases the store to other processes. The lock also ends with the process.
func (s *Store) Close() error { return s.lock.Release() }

// Dir returns the store's directory.
func (s *Store) Dir() string { return s.dir }

// Save writes c and returns its directory. If it fails, earlier checkpoints are
// unchanged.
func (s *Store) Save(c *Checkpoint) (dir string, err error) {
	dir = s.Path(c.Step)
	if err := s.save(c, dir); err != nil {
		return "", fmt.Errorf("save checkpoint %s: %w", dir, err)
	}
	return dir, s.Prune()
}

func (s *Store) save(c *Checkpoint, dir string) (err error) {
	if err := s.sweep(); err != nil {
		return err
	}
	files, err := durable.ReplaceDir(dir) // a resumed run may have saved this step before
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Discard()) }()
	m := c.Manifest
	m.Format, m.Schema, m.Files = format, Schema, make(map[string]File)
	put := func(name string, fill func(io.Writer) error) error {
		h, n := sha256.New(), &counter{}
		if err := files.Write(name, func(w io.Writer) error { return fill(io.MultiWriter(w, h, n)) }); err != nil {
			return err
		}
		m.Files[name] = File{Bytes: n.n, SHA256: hex.EncodeToString(h.Sum(nil))}
		return nil
	}
	meta := map[string]string{"format": "pt"}
	if c.Kind == KindHead {
		c.Tie().Metadata(meta) // by it head.Load refuses another target
	}
	raw := func(b []byte) func(io.Writer) error {
		return func(w io.Writer) error { _, err := w.Write(b); return err }
	}
	tensors := func(ts []safetensors.Tensor) func(io.Writer) error {
		return func(w io.Writer) error {
			return safetensors.Write(w, meta, ts...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Extra)) {
		if name != filepath.Base(name) || name == ManifestFile {
			return fmt.Errorf("file %q, want the name of a file other than %s", name, ManifestFile)
		}
		if err := put(name, raw(c.Extra[name])); err != nil {
			return err
		}
	}
	if err := put(ConfigFile, raw(c.Config)); err != nil {
		return err
	}
	if err := put(WeightsFile, tensors(c.Weights)); err != nil {
		return err
	}
	if c.State != nil {
		if err := put(optimizerFile, tensors(c.Optimizer)); err != nil {
			return err
		}
		if err := put(StateFile, raw(c.State)); err != nil {
			return err
		}
	}
	b, err := json.MarshalIndent(&m, "", " ")
	if err != nil {
		return err
	}
	if err := files.Write(ManifestFile, raw(append(b, '\n'))); err != nil {
		return err
	}
	return files.Commit()
}

// A counter counts the bytes written to it.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// sweep removes what an interrupted Save or SetBest left behind, also checkpoints that were half
// removed, and restores a checkpoint that Save had moved aside but not yet replaced.
func (s *Store) sweep() error {
	if err := errors.Join(durable.Recover(s.dir, stepPrefix), durable.Sweep(filepath.Join(s.dir, BestFile))); err != nil {
		return err
	}
	_, ruins, err := steps(s.dir)
	for _, d := range ruins {
		err = errors.Join(err, vfs.DeleteAll(d))
	}
	return err
}

// Steps returns the directories of the checkpoints in the store, oldest first.
func (s *Store) Steps() ([]string, error) {
	whole, _, err := steps(s.dir)
	return whole, err
}

// stepOf returns the step of a checkpoint's directory.
func stepOf(dir string) (step int, ok bool) {
	name, ok := strings.CutPrefix(filepath.Base(dir), stepPrefix)
	n, err := strconv.Atoi(name)
	return n, ok && err == nil
}

// steps lists the checkpoints in dir, oldest first, and the remains of checkpoints
// whose removal was interrupted: directories without a manifest.
func steps(dir string) (whole, ruins []string, err error) {
	es, err := vfs.List(dir)
	if err != nil {
		return nil, nil, err
	}
	number := make(map[string]int)
	for _, e := range es {
		n, ok := stepOf(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		d := filepath.Join(dir, e.Name())
		if _, err := os.Stat(filepath.Join(d, ManifestFile)); err == nil {
			whole = append(whole, d)
			number[d] = n
		} else if errors.Is(err, os.ErrNotExist) {
			ruins = append(ruins, d)
		} else {
			return nil, nil, err
		}
	}
	slices.SortFunc(whole, func(a, b string) int { return number[a] - number[b] })
	return whole, ruins, nil
}

// Prune removes all but the newest checkpoints and the best, as Save does. A run that goes on from
// the newest checkpoint calls it in case a crash came before.
func (s *Store) Prune() error {
	if err := s.prune(); err != nil {
		return fmt.Errorf("remove older checkpoints: %w", err)
	}
	return nil
}

// prune removes the manifest first, so that a half-removed directory is not mistaken for a
// checkpoint.
func (s *Store) prune() error {
	whole, ruins, err := steps(s.dir)
	if err != nil {
		return err
	}
	top, err := best(s.dir)
	if err != nil {
		return err
	}
	var errs []error
	if i := slices.Index(whole, top); i >= 0 && i < len(whole)-s.keep {
		whole = slices.Delete(whole, i, i+1)
	}
	for s.keep > 0 && len(whole) > s.keep {
		errs = append(errs, vfs.Delete(filepath.Join(whole[0], ManifestFile)))
		ruins, whole = append(ruins, whole[0]), whole[1:]
	}
	for _, d := range ruins {
		errs = append(errs, vfs.DeleteAll(d))
	}
	return errors.Join(errs...)
}

// Latest returns the newest checkpoint's directory, or "" if there is none.
// Directories without a manifest do not count.
func (s *Store) Latest() (string, error) {
	if err := s.sweep(); err != nil {
		return "", fmt.Errorf("checkpoints: %w", err)
	}
	return latest(s.dir)
}

// ReadManifest reads a checkpoint's manifest without checking its files. It
// returns nil and no error if there is none, as in another system's directory.
func ReadManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ManifestFile)
	b, err := limits.ReadFile(path, limits.ConfigBytes)
	if errors.Is(err, os.ErrNotExist) || err != nil && gguf.Is(dir) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	m, err := parseManifest(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// errLater says that a manifest has a schema of a later release.
var errLater = errors.New("a later release wrote it")

// parseManifest decodes a manifest and reports the first invalid field.
func parseManifest(b []byte) (*Manifest, error) {
	// A later schema may have other fields.
	var v struct {
		Format string `json:"format"`
		Schema int    `json:"schema"`
	}
	if err := json.Unmarshal(b, &v); err == nil && v.Format == format && v.Schema > Schema {
		return nil, fmt.Errorf("schema: version %d, want %d: %w", v.Schema, Schema, errLater)
	}
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("want a JSON object: %w", err)
	}
	if d.More() {
		return nil, errors.New("more than one JSON value")
	}
	switch {
	case m.Format != format:
		return nil, fmt.Errorf("format: %q, want %q", m.Format, format)
	case m.Schema != Schema:
		return nil, fmt.Errorf("schema: version %d, want %d", m.Schema, Schema)
	case m.Kind != KindHead && m.Kind != KindLM:
		return nil, fmt.Errorf("kind: %q, want %q or %q", m.Kind, KindHead, KindLM)
	case m.Step < 0:
		return nil, fmt.Errorf("step: %d, want 0 or more", m.Step)
	case m.Hidden < 1 || m.Vocab < 1:
		return nil, fmt.Errorf("hidden %d, vocab %d: want positive sizes", m.Hidden, m.Vocab)
	}
	for _, name := range []string{ConfigFile, WeightsFile} {
		if _, ok := m.Files[name]; !ok {
			return nil, fmt.Errorf("files: no %s", name)
		}
	}
	for name, f := range m.Files {
		if name != filepath.Base(name) || name == "." || name == ".." || f.Bytes < 0 || len(f.SHA256) != 2*sha256.Size {
			return nil, fmt.Errorf("files: %q with %d bytes and hash %q", name, f.Bytes, f.SHA256)
		}
	}
	return &m, nil
}

// Verify reads all files of a checkpoint, or only the named ones, and reports the
// first that is missing or differs from what was written.
func (m *Manifest) Verify(ctx context.Context, dir string, only ...string) error {
	if len(only) == 0 {
		only = slices.Sorted(maps.Keys(m.Files))
	}
	for _, name := range only {
		want, ok := m.Files[name]
		if !ok {
			return fmt.Errorf("checkpoint %s: the manifest does not list %s", dir, name)
		}
		path := filepath.Join(dir, name)
		f, err := limits.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		h := sha256.New()
		n, err := io.Copy(durable.Until(ctx, h), f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("checkpoint %s: %w", path, err)
		}
		if n != want.Bytes {
			return fmt.Errorf("%w: %s: %d bytes, want %d according to the manifest: truncated?", ErrDamaged, path, n, want.Bytes)
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != want.SHA256 {
			return fmt.Errorf("%w: %s: SHA-256 is %s, want %s according to the manifest: corrupt", ErrDamaged, path, got, want.SHA256)
		}
	}
	return nil
}

// A State is the state that a training run continues from.
type State struct {
	Dir       string
	Manifest  *Manifest
	Weights   *safetensors.Set
	Optimizer *safetensors.Set
	Trainer   []byte // trainer.json
}

// Close unmaps the tensors.
func (s *State) Close() error { return errors.Join(s.Weights.Close(), s.Optimizer.Close()) }

// ErrDamaged says that a checkpoint is not what was written.
var ErrDamaged = errors.New("the checkpoint is damaged")

// Open opens a checkpoint to continue training from, and checks every byte. If files are missing or
// differ from what was written, the error wraps ErrDamaged. A checkpoint of a later release is not
// damaged.
func Open(ctx context.Context, dir string) (*State, error) {
	m, err := ReadManifest(dir)
	var number syscall.Errno
	if err != nil && !errors.As(err, &number) && !errors.Is(err, errLater) { // it was read
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("%s: no %s: nothing to continue training from: %w", dir, ManifestFile, os.ErrNotExist)
	}
	if _, ok := m.Files[StateFile]; !ok {
		return nil, fmt.Errorf("%s: no %s: a checkpoint without trainer state cannot be continued", dir, StateFile)
	}
	if err := m.Verify(ctx, dir); err != nil {
		return nil, err
	}
	s := &State{Dir: dir, Manifest: m}
	if s.Trainer, err = limits.ReadFile(filepath.Join(dir, StateFile), limits.IndexBytes); err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	if s.Weights, err = safetensors.Open(filepath.Join(dir, WeightsFile)); err != nil {
		return nil, err
	}
	if s.Optimizer, err = safetensors.Open(filepath.Join(dir, optimizerFile)); err != nil {
		return nil, errors.Join(err, s.Weights.Close())
	}
	return s, nil
}

// CheckTarget refuses a head that was trained for another target, by head.CheckTie, or
// for another hidden size or vocabulary, which opt cannot force. A nil manifest, for
// another system's head, is always accepted.
func (m *Manifest) CheckTarget(dir string, target *model.Model, opt head.Options) error {
	hidden, vocab := target.Spec().Hidden, target.Spec().Vocab
	switch {
	case m == nil:
		return nil
	case m.Kind != KindHead:
		return fmt.Errorf("%s: a checkpoint of kind %q, want %q", dir, m.Kind, KindHead)
	case m.Hidden != hidden || m.Vocab != vocab:
		return fmt.Errorf("%s: a head for hidden size %d and vocabulary %d, but the target has %d and %d", dir, m.Hidden, m.Vocab, hidden, vocab)
	}
	if err := head.CheckTie(m.Tie(), target, opt); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
