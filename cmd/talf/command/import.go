package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/internal/units"
)

// An imported describes what import wrote.
type imported struct {
	Out     string   `json:"out"`
	Layout  string   `json:"layout"` // in which the head was found
	File    string   `json:"file"`
	Tensors int      `json:"tensors"`
	Target  string   `json:"target,omitempty"` // weight hash that it is tied to
	Notes   []string `json:"notes,omitempty"`
}

func newImport(a *app) *cobra.Command {
	var dir, out, target string
	var force, asJSON bool
	c := &cobra.Command{
		Use:   "import --head DIR --out DIR",
		Short: "Convert a draft head from EAGLE, SGLang, vLLM or speculators",
		Long: `Import reads an EAGLE-1 or EAGLE-2 draft head as EAGLE, SGLang, vLLM and the
speculators library store it, from safetensors or pytorch_model.bin, and writes it
in the form that talf's commands load. No part of a pickle is executed: a file that
contains anything but tensors is refused.

--model names the target: its sizes are compared with the head's, and the head is
tied to its weights. EAGLE-3 heads are not decoded yet: inspect describes them, and
export converts them between other systems' layouts.`,
		Example: `  talf import --head DIR-eagle --model DIR --out heads/eagle
  talf generate --model DIR --head heads/eagle --prompt 'Once upon a time'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "head", "out"); err != nil {
				return err
			}
			r, err := importHead(dir, out, target, force)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(r)
			}
			for _, n := range r.Notes {
				a.printf("note: %s\n", n)
			}
			a.printf("%s: %d tensors from %s in the layout of %s", r.Out, r.Tensors, r.File, r.Layout)
			if r.Target != "" {
				a.printf(", for target %s", short(r.Target))
			}
			a.printf("\n")
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "head", "", "directory of the head")
	f.StringVar(&out, "out", "", "directory to write, new or empty")
	f.StringVar(&target, "model", "", "directory of the head's target")
	f.BoolVar(&force, "force", false, "tie the head to --model even if it was trained for another target")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func importHead(dir, out, target string, force bool) (*imported, error) {
	d, err := openDraft(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	hash := d.Target
	if target != "" {
		t, err := openTarget(target)
		if err != nil {
			return nil, err
		}
		defer func() { _ = t.set.Close() }() // only read
		if err := t.fits(d); err != nil {
			return nil, err
		}
		hash = t.hash()
		if d.Target != "" && d.Target != hash && !force {
			return nil, fmt.Errorf("%s: trained for a target with weight hash %s, but %s has %s (--force to tie it to that all the same)",
				dir, short(d.Target), target, short(hash))
		}
	}
	if err := d.SaveHead(out, hash); err != nil {
		return nil, err
	}
	return &imported{Out: out, Layout: d.Layout, File: d.File, Tensors: len(d.Tensors), Target: hash, Notes: d.Notes}, nil
}

// A draftFinding describes a draft head in another system's layout.
type draftFinding struct {
	Kind       string              `json:"kind"` // "head"
	Algorithm  string              `json:"algorithm"`
	Decodes    bool                `json:"decodes"` // once imported
	Path       string              `json:"path"`
	Layout     string              `json:"layout"`
	File       string              `json:"file"`
	Vocab      int                 `json:"vocabulary"`
	Hidden     int                 `json:"hidden_size"`
	Layers     int                 `json:"layers"`
	Heads      int                 `json:"heads"`
	KVHeads    int                 `json:"kv_heads"`
	HeadDim    int                 `json:"head_dim"`
	FFN        int                 `json:"ffn"`
	Rope       string              `json:"rope"`
	Theta      float64             `json:"rope_theta"`
	FCBias     bool                `json:"fc_bias"`
	DraftVocab int                 `json:"draft_vocabulary,omitempty"` // 0: all
	Parameters int64               `json:"parameters"`
	Bytes      int64               `json:"bytes"`
	Eagle3     *checkpoints.Eagle3 `json:"eagle3,omitempty"`
	Notes      []string            `json:"notes,omitempty"`
}

func inspectDraft(dir string) (*draftFinding, error) {
	d, err := checkpoints.OpenDraft(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	f := &draftFinding{Kind: "head", Algorithm: "EAGLE", Decodes: true, Path: dir, Layout: d.Layout, File: d.File, Notes: d.Notes}
	s := d.Spec
	if d.Eagle3 != nil {
		f.Algorithm, f.Decodes, f.Eagle3, s = "EAGLE-3", false, d.Eagle3, d.Eagle3.Spec
		if d.Layout == checkpoints.LayoutEAGLE {
			f.Layout = "SpecForge"
		}
	}
	f.Vocab, f.Hidden, f.Layers, f.Heads, f.KVHeads, f.HeadDim, f.FFN = s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN
	f.Rope, f.Theta, f.FCBias, f.DraftVocab = s.Rope.Type, s.Rope.Theta, s.FCBias, len(d.Vocab)
	for _, t := range d.Tensors {
		f.Parameters += int64(t.Len())
		f.Bytes += int64(len(t.Data))
	}
	return f, nil
}

func (f *draftFinding) print(a *app) {
	a.printf("head          %s\n", f.Path)
	if f.Decodes {
		a.printf("algorithm     %s, in the layout of %s: talf import takes it over\n", f.Algorithm, f.Layout)
	} else {
		a.printf("algorithm     %s, in the layout of %s: not decoded yet; talf export converts it\n", f.Algorithm, f.Layout)
	}
	a.printf("parameters    %d in %s, %s\n", f.Parameters, f.File, units.Bytes(uint64(f.Bytes)))
	a.printf("shape         hidden %d, layers %d, heads %d (%d for keys) of %d, ffn %d\n", f.Hidden, f.Layers, f.Heads, f.KVHeads, f.HeadDim, f.FFN)
	a.printf("positions     rope %s, theta %g\n", f.Rope, f.Theta)
	if e := f.Eagle3; e != nil {
		taps := "the target's layers 2, n/2 and n−3"
		if e.Taps != nil {
			taps = fmt.Sprint("the target's layers ", e.Taps)
		}
		a.printf("reads         %s, hidden %d\n", taps, e.TargetHidden)
		a.printf("vocabulary    %d of the target's %d tokens\n", e.DraftVocab, f.Vocab)
	} else {
		a.printf("vocabulary    %d, fc bias: %s\n", f.Vocab, yesNo(f.FCBias))
		if f.DraftVocab > 0 {
			a.printf("predicts      %d of these tokens\n", f.DraftVocab)
		}
	}
	for _, n := range f.Notes {
		a.printf("note          %s\n", n)
	}
}
