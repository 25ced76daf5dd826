package checkpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"talf/internal/limits"
	"talf/model"
	"talf/model/arch"
	"talf/model/ggml"
	"talf/model/gguf"
	"talf/model/identity"
	"talf/model/safetensors"
)

// A Target is a draft head's target, described by its files: nothing is loaded onto a
// device.
type Target struct {
	Dir     string
	Spec    *arch.Spec
	Classes []string // "architectures" of its config.json
	// Watch, unless nil, is called with the progress of reading all weights, and may end it.
	Watch model.Watch

	set *safetensors.Set
}

// OpenTarget opens the model in dir, which may be a GGUF file.
func OpenTarget(dir string) (*Target, error) {
	t := &Target{Dir: dir}
	var err error
	if t.Spec, err = arch.Load(dir); err != nil {
		return nil, err
	}
	raw, err := gguf.ReadFile(dir, ConfigFile, limits.ConfigBytes)
	if err != nil {
		return nil, err
	}
	var conf struct {
		Architectures []string `json:"architectures"`
	}
	if err := json.Unmarshal(raw, &conf); err != nil {
		return nil, fmt.Errorf("%s: architectures: %w", dir, err)
	}
	t.Classes = conf.Architectures
	if t.set, err = safetensors.OpenDir(dir); err != nil {
		return nil, err
	}
	return t, nil
}

// Close unmaps the weights.
func (t *Target) Close() error { return t.set.Close() }

// Identity identifies the target's files, all of whose weights it reads. It fails only if Watch ends it.
func (t *Target) Identity() (*identity.Model, error) {
	m, err := model.IdentityOf(t.Spec, t.set, t.Watch)
	return &m, err
}

// Embed returns the embedding, of shape [vocabulary][hidden], as float32 if it is in blocks of a
// GGUF file or of integers. It is valid until Close.
func (t *Target) Embed(ctx context.Context) (safetensors.Tensor, error) {
	return t.plain(ctx, arch.Embed)
}

func (t *Target) plain(ctx context.Context, role arch.Role) (safetensors.Tensor, error) {
	x, err := t.set.Get(t.Spec.Weight(role, 0))
	if err == nil && x.DType == "I8" {
		return model.Plain(t.set, x.Name)
	}
	if err != nil || ggml.Blocks(x.DType) == nil {
		return x, err
	}
	return safetensors.Convert(ctx, x, safetensors.F32)
}

// Fits refuses a head for a target of different sizes.
func (t *Target) Fits(d *Draft) error {
	s, hidden := d.Spec, d.Spec.TargetHidden()
	if hidden != t.Spec.Hidden || s.Vocab != t.Spec.Vocab {
		return fmt.Errorf("%s: a head for hidden size %d and vocabulary %d, but the target %s has %d and %d",
			d.Dir, hidden, s.Vocab, t.Dir, t.Spec.Hidden, t.Spec.Vocab)
	}
	if _, err := s.TapsOf(t.Spec); err != nil {
		return fmt.Errorf("%s: %w", d.Dir, err)
	}
	return nil
}

// For sets c to export d for the target t: t's rope is compared with the one that the
// reader would use, and t's embedding is added to a head that has none. The embedding
// is valid until t is closed. For ends soon after ctx does.
func (c *ExportConfig) For(ctx context.Context, d *Draft, t *Target) error {
	if err := t.Fits(d); err != nil {
		return err
	}
	e, err := t.Embed(ctx)
	if err != nil {
		return err
	}
	role := arch.LMHead
	if t.Spec.Tied {
		role = arch.Embed
	}
	l, err := t.plain(ctx, role)
	if err != nil {
		return err
	}
	c.Target, c.Embed, c.LMHead, c.TargetClasses, c.targetDir = t.Spec, &e, &l, t.Classes, t.Dir
	_, err = os.Stat(filepath.Join(t.Dir, WeightsFile+".index.json"))
	c.unindexed = errors.Is(err, fs.ErrNotExist)
	if c.TargetName == "" {
		c.TargetName = t.Dir
	}
	return nil
}

// resolve makes the target's name absolute if it is the path of a model: readers resolve paths
// from wherever they are started.
func (c *ExportConfig) resolve() error {
	if c.TargetName == "" {
		return nil
	}
	if _, err := os.Stat(gguf.Path(c.TargetName, ConfigFile)); err == nil {
		if c.TargetName, err = filepath.Abs(c.TargetName); err != nil {
			return fmt.Errorf("the target's path: %w", err)
		}
	}
	return nil
}

// FindDraft opens the draft head that a user means by path: a directory that OpenDraft
// reads, or a talf checkpoint that Find finds, whose files are compared with its
// manifest. It ends soon after ctx does.
func FindDraft(ctx context.Context, path string) (d *Draft, err error) {
	err = Read(path, func(dir string) error {
		d, err = findDraft(ctx, dir)
		return err
	})
	return d, err
}

func findDraft(ctx context.Context, dir string) (*Draft, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	if m != nil {
		if m.Kind != KindHead {
			return nil, fmt.Errorf("%s: a language model, want a draft head", dir)
		}
		if err := m.Verify(ctx, dir, ConfigFile, WeightsFile); err != nil {
			return nil, err
		}
	}
	return OpenDraft(dir)
}

// Imported describes what Import wrote.
type Imported struct {
	Out     string   `json:"out"`
	Layout  string   `json:"layout"` // layout in which the head was found
	File    string   `json:"file"`   // file from which its weights were read
	Tensors int      `json:"tensors"`
	Target  string   `json:"target,omitempty"` // hash of the model that it is tied to
	Notes   []string `json:"notes,omitempty"`
}

// A TiedError is a refusal to tie a head to a target other than the one it was trained
// for.
type TiedError struct{ Differences identity.Differences }

func (e *TiedError) Error() string {
	return "trained for another target: " + e.Differences.Since("it was trained")
}

// Import writes d to the new or empty directory out in the format of talf's own heads.
// A target, if not nil, must have the head's sizes, and the head is tied to it. A head that
// is tied to another is refused with a *TiedError unless forced. It ends soon after ctx does, and leaves nothing then.
func (d *Draft) Import(ctx context.Context, out string, t *Target, force bool) (*Imported, error) {
	tie := d.Target
	if t != nil {
		if err := t.Fits(d); err != nil {
			return nil, err
		}
		own, err := t.Identity()
		if err != nil {
			return nil, err
		}
		tie = identity.To(own)
		if diff := d.Target.Against(tie.Model.Spec, tie.Base()); diff != nil && !force {
			return nil, fmt.Errorf("%s: %w", d.Dir, &TiedError{diff})
		}
	}
	if err := d.SaveHead(ctx, out, tie); err != nil {
		return nil, err
	}
	r := &Imported{Out: out, Layout: d.Layout, File: d.File, Tensors: len(d.Tensors), Notes: d.Notes}
	if tie.Model != nil {
		r.Target = tie.Model.Hash()
	}
	return r, nil
}

// String returns lines that tell a user what was written.
func (r *Imported) String() string {
	var b strings.Builder
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	fmt.Fprintf(&b, "%s: %d tensors from %s in the layout of %s", r.Out, r.Tensors, r.File, r.Layout)
	if r.Target != "" {
		fmt.Fprintf(&b, ", for target %s", identity.Short(r.Target))
	}
	b.WriteString("\n")
	return b.String()
}
