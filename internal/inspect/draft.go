package inspect

import (
	"fmt"

	"talf/checkpoints"
	"talf/internal/units"
)

// A Draft describes a draft head in another system's layout.
type Draft struct {
	Kind       string              `json:"kind"` // "head"
	Algorithm  string              `json:"algorithm"`
	Decodes    bool                `json:"decodes"` // once imported
	Path       string              `json:"path"`
	Layout     string              `json:"layout"`
	File       string              `json:"file"` // of the weights
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
	DraftVocab int                 `json:"draft_vocabulary,omitempty"` // tokens that it predicts; 0: all
	Parameters int64               `json:"parameters"`
	Bytes      int64               `json:"bytes"` // of the weights
	Eagle3     *checkpoints.Eagle3 `json:"eagle3,omitempty"`
	Notes      []string            `json:"notes,omitempty"` // what reading it left out or added
}

// OpenDraft describes the head in dir that checkpoints.OpenDraft reads.
func OpenDraft(dir string) (*Draft, error) {
	d, err := checkpoints.OpenDraft(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	f := &Draft{Kind: "head", Algorithm: "EAGLE", Decodes: true, Path: dir, Layout: d.Layout, File: d.File, Notes: d.Notes}
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

func (d *Draft) String() string {
	var p page
	p.printf("head          %s\n", d.Path)
	if d.Decodes {
		p.printf("algorithm     %s, in the layout of %s: talf import takes it over\n", d.Algorithm, d.Layout)
	} else {
		p.printf("algorithm     %s, in the layout of %s: not decoded yet; talf export converts it\n", d.Algorithm, d.Layout)
	}
	p.printf("parameters    %d in %s, %s\n", d.Parameters, d.File, units.Bytes(uint64(d.Bytes)))
	p.printf("shape         hidden %d, layers %d, heads %d (%d for keys) of %d, ffn %d\n", d.Hidden, d.Layers, d.Heads, d.KVHeads, d.HeadDim, d.FFN)
	p.printf("positions     rope %s, theta %g\n", d.Rope, d.Theta)
	if e := d.Eagle3; e != nil {
		taps := "the target's layers 2, n/2 and n−3"
		if e.Taps != nil {
			taps = fmt.Sprint("the target's layers ", e.Taps)
		}
		p.printf("reads         %s, hidden %d\n", taps, e.TargetHidden)
		p.printf("vocabulary    %d of the target's %d tokens\n", e.DraftVocab, d.Vocab)
	} else {
		p.printf("vocabulary    %d, fc bias: %s\n", d.Vocab, yesNo(d.FCBias))
		if d.DraftVocab > 0 {
			p.printf("predicts      %d of these tokens\n", d.DraftVocab)
		}
	}
	for _, n := range d.Notes {
		p.printf("note          %s\n", n)
	}
	return p.String()
}
