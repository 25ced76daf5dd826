package inspect

import (
	"fmt"
	"strings"

	"talf/checkpoints"
	"talf/internal/units"
	"talf/model/arch"
)

// A Draft describes a draft head in another system's layout.
type Draft struct {
	Kind       string   `json:"kind"` // "head"
	Algorithm  string   `json:"algorithm"`
	Decodes    bool     `json:"decodes"` // a head of EAGLE-1 or 2 once it is imported
	Path       string   `json:"path"`
	Layout     string   `json:"layout"`
	File       string   `json:"file"` // of the weights
	Vocab      int      `json:"vocabulary"`
	Hidden     int      `json:"hidden_size"`
	Layers     int      `json:"layers"`
	Heads      int      `json:"heads"`
	KVHeads    int      `json:"kv_heads"`
	HeadDim    int      `json:"head_dim"`
	FFN        int      `json:"ffn"`
	Rope       string   `json:"rope"`
	Theta      float64  `json:"rope_theta"`
	FCBias     bool     `json:"fc_bias"`
	DraftVocab int      `json:"draft_vocabulary,omitempty"` // tokens that it predicts; 0: all
	Parameters int64    `json:"parameters"`
	Bytes      int64    `json:"bytes"` // of the weights
	Eagle3     *Eagle3  `json:"eagle3,omitempty"`
	Block      *Block   `json:"block,omitempty"`
	Notes      []string `json:"notes,omitempty"` // what reading it left out or added
}

// An Eagle3 is what an EAGLE-3 head has beyond others.
type Eagle3 struct {
	Taps         []int    `json:"taps,omitempty"` // boundaries of the target's layers; none: 2, n/2 and n−3 of n
	TargetHidden int      `json:"target_hidden_size"`
	OwnEmbed     bool     `json:"own_embedding"`
	OwnLMHead    bool     `json:"own_lm_head"`
	Options      []string `json:"options,omitempty"` // variations that are set, by their keys
}

// eagle3 describes an EAGLE-3 head; nil for another.
func eagle3(s *arch.Spec, embed bool) *Eagle3 {
	e := &s.Eagle3
	if !e.On {
		return nil
	}
	x := &Eagle3{Taps: e.Taps, TargetHidden: s.TargetHidden(), OwnEmbed: embed, OwnLMHead: !e.TargetLMHead}
	for _, f := range []struct {
		key string
		set bool
	}{
		{"norm_before_fc", e.NormBeforeFC},
		{"fc_norm", e.FCNorm},
		{"norm_before_residual", e.NormBeforeResidual},
		{"norm_output", e.NormOutput},
		{"qk_norm", e.QKNorm},
	} {
		if f.set {
			x.Options = append(x.Options, f.key)
		}
	}
	return x
}

func (e *Eagle3) print(p *page) {
	taps := "2, n/2 and n−3"
	if e.Taps != nil {
		taps = strings.Trim(fmt.Sprint(e.Taps), "[]")
	}
	p.printf("reads         the target's hidden states %s, of %d elements\n", taps, e.TargetHidden)
	p.printf("own           embedding: %s, LM head: %s\n", yesNo(e.OwnEmbed), yesNo(e.OwnLMHead))
	if e.Options != nil {
		p.printf("options       %s\n", strings.Join(e.Options, ", "))
	}
}

// openDraft describes the head in dir that checkpoints.OpenDraft reads.
func openDraft(dir string) (*Draft, error) {
	d, err := checkpoints.OpenDraft(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	f := &Draft{Kind: "head", Algorithm: "EAGLE", Decodes: true, Path: dir, Layout: d.Layout, File: d.File, Notes: d.Notes}
	s := d.Spec
	if s.Eagle3.On {
		_, embed := d.Tensor(s.Weight(arch.Embed, 0))
		f.Algorithm, f.Eagle3 = "EAGLE-3", eagle3(s, embed)
		if d.Layout == checkpoints.LayoutEAGLE {
			f.Layout = "EAGLE, SpecForge, SGLang and vLLM"
		}
	}
	if s.Block.On {
		f.Algorithm, f.Layout, f.Block = s.Block.Family(), "its family", block(s)
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
	p.printf("algorithm     %s, in the layout of %s", d.Algorithm, d.Layout)
	if d.Eagle3 == nil && d.Block == nil {
		p.printf(": talf import takes it over")
	}
	p.printf("\n")
	p.printf("parameters    %d in %s, %s\n", d.Parameters, d.File, units.Bytes(uint64(d.Bytes)))
	p.printf("shape         hidden %d, layers %d, heads %d (%d for keys) of %d, ffn %d\n", d.Hidden, d.Layers, d.Heads, d.KVHeads, d.HeadDim, d.FFN)
	p.printf("positions     rope %s, theta %g\n", d.Rope, d.Theta)
	p.printf("vocabulary    %d, fc bias: %s\n", d.Vocab, yesNo(d.FCBias))
	if d.DraftVocab > 0 {
		p.printf("predicts      %d of these tokens\n", d.DraftVocab)
	}
	if d.Eagle3 != nil {
		d.Eagle3.print(&p)
	}
	if d.Block != nil {
		d.Block.print(&p)
	}
	for _, n := range d.Notes {
		p.printf("note          %s\n", n)
	}
	return p.String()
}
