package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/compute"
	"talf/internal/cli"
	"talf/internal/units"
	"talf/model"
	"talf/model/arch"
	"talf/model/safetensors"
)

// An exportOptions holds the flags of export.
type exportOptions struct {
	head, out, model, verifier string
	dtype                      dtypeFlag
	check                      bool
	c                          checkpoints.ExportConfig
}

func newExport(a *app) *cobra.Command {
	o := exportOptions{c: checkpoints.DefaultExport(), dtype: dtypeAuto}
	var asJSON bool
	var formats strings.Builder
	for _, f := range checkpoints.Formats() {
		fmt.Fprintf(&formats, "  %-12s %s\n", f.Name, f.Doc)
	}
	c := &cobra.Command{
		Use:   "export --head CKPT --format FORMAT --out DIR",
		Short: "Write a draft head for EAGLE, SGLang, vLLM or speculators",
		Long: `Export writes a draft head in the format of another system. It first checks what
that system would refuse or misread; such a head is written only with --force.
Formats:

` + formats.String() + `
The head may be one of talf's or any that import reads. EAGLE-3 heads are converted
between the layouts of SGLang, vLLM and speculators. --model names the head's
target: its embedding is added to a head that has none, and its rope is compared
with the one that the reader would use.`,
		Example: `  talf export --head heads/talf --format eagle --bin --out DIR-eagle
  talf export --head heads/talf --format sglang --dtype bf16 --out DIR-sglang
  talf export --head heads/talf --format speculators --model DIR --verifier org/model --check`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "head", "format"); err != nil {
				return err
			}
			if !o.check {
				if err := cli.Need(cmd, "out"); err != nil {
					return err
				}
			}
			switch compute.DType(o.dtype) {
			case compute.F32:
				o.c.DType = "F32"
			case compute.BF16:
				o.c.DType = "BF16"
			default:
				if o.dtype != dtypeAuto {
					return usagef("--dtype is %s, want f32, bf16 or auto", &o.dtype)
				}
			}
			if err := o.c.Validate(); err != nil {
				return usageError(err)
			}
			r, err := o.run()
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(r)
			}
			a.printExport(r)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.head, "head", "", "checkpoint of a draft head")
	f.StringVar(&o.c.Format, "format", "", "format to write, one of those above")
	f.StringVar(&o.out, "out", "", "directory to write, new or empty")
	f.StringVar(&o.model, "model", "", "directory of the head's target")
	f.StringVar(&o.verifier, "verifier", "", "speculators: where to find the target, a path or a Hugging Face id (default: --model)")
	f.Var(&o.dtype, "dtype", "type of the weights: f32, bf16, or auto to keep it")
	f.BoolVar(&o.c.Torch, "bin", false, "also write pytorch_model.bin, which old versions of EAGLE need")
	f.IntVar(&o.c.DraftTokens, "draft-tokens", o.c.DraftTokens, "speculators: tokens to draft per round")
	f.BoolVar(&o.check, "check", false, "only report what the reader would refuse or misread")
	f.BoolVar(&o.c.Force, "force", false, "write the head even if the reader would refuse or misread it")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// openDraft opens the head that path refers to. A language model is refused.
func openDraft(path string) (*checkpoints.Draft, error) {
	dir, err := checkpoints.Find(path)
	if err != nil {
		return nil, err
	}
	m, err := checkpoints.ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	if m != nil {
		if m.Kind != checkpoints.KindHead {
			return nil, fmt.Errorf("%s: a language model, want a draft head", dir)
		}
		if err := m.Verify(dir, checkpoints.ConfigFile, checkpoints.WeightsFile); err != nil {
			return nil, err
		}
	}
	return checkpoints.OpenDraft(dir)
}

func (o *exportOptions) run() (_ *checkpoints.Exported, err error) {
	d, err := openDraft(o.head)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	o.c.TargetName = o.verifier
	if o.model != "" {
		t, err := openTarget(o.model)
		if err != nil {
			return nil, err
		}
		defer func() { _ = t.set.Close() }() // only read
		if err := t.fits(d); err != nil {
			return nil, err
		}
		e, err := t.set.Get(t.spec.Weight(arch.Embed, 0))
		if err != nil {
			return nil, err
		}
		o.c.Target, o.c.Embed, o.c.TargetClasses = t.spec, &e, t.classes
		if o.verifier == "" {
			o.c.TargetName = o.model
		}
	}
	if !o.check {
		return d.Export(o.out, o.c)
	}
	p, err := d.Problems(o.c)
	return &checkpoints.Exported{Format: o.c.Format, Notes: d.Notes, Problems: p}, err
}

func (a *app) printExport(r *checkpoints.Exported) {
	for _, n := range r.Notes {
		a.printf("note: %s\n", n)
	}
	bad := false
	for _, p := range r.Problems {
		word := "note"
		if p.Grade != checkpoints.Note {
			word, bad = "problem", true
		}
		a.printf("%s: %s\n", word, p)
	}
	if r.Out != "" {
		a.printf("%s: %d tensors, %s, as %s: %s\n", r.Out, r.Tensors, units.Bytes(uint64(r.Bytes)), r.Format, strings.Join(r.Files, ", "))
	} else if !bad {
		a.printf("no problems with the format %s\n", r.Format)
	}
}

// A targetFiles is a head's target as far as its files describe it.
type targetFiles struct {
	dir     string
	spec    *arch.Spec
	set     *safetensors.Set
	classes []string // "architectures"
}

func openTarget(path string) (*targetFiles, error) {
	dir, err := findModel(path)
	if err != nil {
		return nil, err
	}
	t := &targetFiles{dir: dir}
	if t.spec, err = arch.Load(dir); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, checkpoints.ConfigFile))
	if err != nil {
		return nil, err
	}
	var conf struct {
		Architectures []string `json:"architectures"`
	}
	if err := json.Unmarshal(raw, &conf); err != nil {
		return nil, fmt.Errorf("%s: architectures: %w", dir, err)
	}
	t.classes = conf.Architectures
	t.set, err = safetensors.OpenDir(dir)
	return t, err
}

// fits refuses a target whose sizes are not the head's.
func (t *targetFiles) fits(d *checkpoints.Draft) error {
	s, hidden := d.Spec, 0
	if d.Eagle3 != nil {
		s, hidden = d.Eagle3.Spec, d.Eagle3.TargetHidden
	} else {
		hidden = s.Hidden
	}
	if hidden != t.spec.Hidden || s.Vocab != t.spec.Vocab {
		return fmt.Errorf("%s: a head for hidden size %d and vocabulary %d, but the target %s has %d and %d",
			d.Dir, hidden, s.Vocab, t.dir, t.spec.Hidden, t.spec.Vocab)
	}
	return nil
}

// hash is the target's weight hash.
func (t *targetFiles) hash() string { return model.HashOf(t.set) }
