package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talf/checkpoints"
	"talf/compute"
	"talf/compute/devices"
	"talf/internal/limits"
	"talf/internal/units"
	"talf/model"
	"talf/model/arch"
	"talf/model/ggml"
	"talf/model/gguf"
	"talf/model/quantize"
	"talf/model/safetensors"
)

// A Model describes a directory with config.json: a language model or a draft head in
// talf's own layout; or a GGUF file.
type Model struct {
	Kind      string  `json:"kind"` // "model" or "head"
	Path      string  `json:"path"`
	Arch      string  `json:"architecture"`
	Vocab     int     `json:"vocabulary"`
	Hidden    int     `json:"hidden_size"`
	Layers    int     `json:"layers"`
	Heads     int     `json:"heads"`
	KVHeads   int     `json:"kv_heads"`
	HeadDim   int     `json:"head_dim"`
	FFN       int     `json:"ffn"`
	Positions int     `json:"positions"`
	Rope      string  `json:"rope"`
	Theta     float64 `json:"rope_theta"`
	Switch    int     `json:"rope_switch,omitempty"` // tokens of a text beyond which all positions rotate otherwise; 0: none
	Rotated   int     `json:"rotated"`               // elements of each attention head
	Window    int     `json:"window"`                // latest positions that a token sees in WindowIn layers; 0: all
	WindowIn  int     `json:"window_layers"`         // layers with such a window
	// MissingWindow is the window that published models of this shape have, if this one has none; 0: nothing is missing.
	MissingWindow int `json:"window_missing,omitempty"`
	// KVElements are the numbers that memory holds of a position in a layer: keys and values of all heads.
	KVElements int      `json:"kv_elements"`
	Latent     int      `json:"kv_latent,omitempty"`        // elements of the latent that keys and values are made of; 0: they are kept
	Recurrent  int      `json:"recurrent_layers,omitempty"` // layers without keys and values
	State      int      `json:"state_elements,omitempty"`   // numbers that memory holds of a sequence in all of them
	Tied       bool     `json:"tied_embeddings"`
	BOS        int32    `json:"bos"` // -1: none
	EOS        []int32  `json:"eos"`
	Tokenizer  bool     `json:"tokenizer"`          // whether there is a tokenizer.json, or a tokenizer in a GGUF file
	Warnings   []string `json:"warnings,omitempty"` // of a GGUF file's tokenizer
	Tensors    int      `json:"tensors"`
	Parameters int64    `json:"parameters"`
	Bytes      int64    `json:"bytes"`                      // of the weights
	Types      string   `json:"types"`                      // of the weights, sorted and separated by spaces
	DraftVocab int      `json:"draft_vocabulary,omitempty"` // tokens that a head predicts; 0: all
	Eagle3     *Eagle3  `json:"eagle3,omitempty"`
	Block      *Block   `json:"block,omitempty"`
	MTP        bool     `json:"mtp,omitempty"`  // the files hold a multi-token prediction module
	GGUF       bool     `json:"gguf,omitempty"` // whether it is a GGUF file
	// Rounded are the matrices of a GGUF file whose values the type q8 rounds.
	Rounded []string `json:"rounded_to_q8,omitempty"`
	// Lost are those that even auto rounds: it keeps all others as they are stored.
	Lost []string `json:"rounded_by_auto,omitempty"`
	// Memory is what a language model takes on this machine's CPU as auto; nil of a head.
	Memory *Memory `json:"memory,omitempty"`
	// Kept are those whose integers the types auto and q4 keep.
	Kept []string `json:"kept_as_q4,omitempty"`
	// Checkpoint is the manifest that training wrote, if there is one.
	Checkpoint *checkpoints.Manifest `json:"checkpoint,omitempty"`
}

// Memory is what a model takes in memory.
type Memory struct {
	Weights int64 `json:"weights"`      // bytes
	KV      int64 `json:"kv_per_token"` // bytes of keys and values for each token of a text, at most: layers with a window keep fewer
}

// memory returns what the model of a set takes. Nothing is loaded.
func memory(s *arch.Spec, set *safetensors.Set) (*Memory, error) {
	dev, err := devices.OpenCPU(devices.Config{Threads: 1})
	if err != nil {
		return nil, err
	}
	defer func() { _ = dev.Close() }()
	opt := checkpoints.Loading{DType: checkpoints.Auto}.Options(set, dev)
	opt.Positions = compute.BlockLen
	f := model.PlanSet(s, set, dev, opt)
	return &Memory{Weights: f.Weights, KV: f.KV / compute.BlockLen}, nil
}

// openModel describes dir, and compares the files of a checkpoint with its manifest.
func openModel(dir string) (*Model, error) {
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	m := &Model{Kind: "model", Path: dir}
	load := arch.Load
	if _, ok := set.Describe("fc.weight"); ok {
		m.Kind, load = "head", arch.LoadDraft
	}
	s, err := load(dir)
	if err != nil {
		return nil, err
	}
	m.Arch, m.Vocab, m.Hidden, m.Layers, m.Heads = s.Arch, s.Vocab, s.Hidden, s.Layers, s.Heads
	m.DraftVocab = s.DraftVocab
	m.MTP = s.HasMTP(func(name string) bool { _, ok := set.Describe(name); return ok })
	if m.Kind == "head" {
		s.Adopt(func(name string) bool { _, ok := set.Tensor(name); return ok })
		_, embed := set.Tensor(s.Weight(arch.Embed, 0))
		m.Eagle3, m.Block = eagle3(s, embed), block(s)
	}
	m.KVHeads, m.HeadDim, m.FFN, m.Positions, m.Tied = s.KVHeads, s.HeadDim, s.FFN, s.MaxPos, s.Tied
	m.KVElements, m.Latent = s.KVElements(), s.Latent.KVRank
	m.Recurrent, m.State = s.Delta.Count(), s.Delta.StateElements()
	m.Rope, m.Theta, m.Switch, m.Rotated, m.BOS, m.EOS = s.Rope.Type, s.Rope.Theta, s.Rope.Switch(), s.Rotated(), s.BOS, s.EOS
	for _, w := range s.Windows { // all windows of a model have the same size
		if w > 0 {
			m.Window, m.WindowIn = w, m.WindowIn+1
		}
	}
	if m.Kind == "model" {
		m.MissingWindow = missingWindow(s)
		if m.Memory, err = memory(s, set); err != nil {
			return nil, err
		}
	}
	m.Tokenizer = gguf.Has(dir, "tokenizer.json")
	m.count(set)
	if gguf.Is(dir) {
		for _, name := range []string{"tokenizer.json", "tokenizer.model"} {
			if _, warnings, err := gguf.ReadAs(dir, name, "", limits.TokenizerBytes); err == nil {
				m.Tokenizer, m.Warnings = true, warnings
			}
		}
		m.GGUF, m.Rounded = true, quantize.Rounded(set)
		for _, name := range set.Names() {
			if t, _ := set.Describe(name); slices.ContainsFunc(ggml.Kept(), func(b *ggml.Type) bool { return b.Name == t.DType }) {
				m.Kept = append(m.Kept, name)
			} else if b := ggml.Blocks(t.DType); b != nil && !b.Exact() {
				m.Lost = append(m.Lost, name)
			}
		}
		return m, nil
	}
	if m.Checkpoint, err = checkpoints.ReadManifest(dir); err != nil {
		return nil, err
	}
	if m.Checkpoint != nil {
		err = m.Checkpoint.Verify(context.Background(), dir)
	}
	return m, err
}

// count adds up the tensors of set.
func (m *Model) count(set *safetensors.Set) {
	types := map[string]bool{}
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		m.Tensors++
		m.Parameters += int64(t.Len())
		m.Bytes += int64(t.Size())
		types[t.DType] = true
	}
	m.Types = strings.Join(slices.Sorted(maps.Keys(types)), " ")
}

func (m *Model) String() string {
	var p page
	p.printf("%-14s%s\n", m.Kind, m.Path)
	p.printf("architecture  %s\n", m.Arch)
	p.printf("parameters    %d in %d tensors, %s (%s)\n", m.Parameters, m.Tensors, units.Bytes(uint64(m.Bytes)), m.Types)
	p.printf("shape         hidden %d, layers %d, heads %d (%d for keys) of %d, ffn %d\n", m.Hidden, m.Layers, m.Heads, m.KVHeads, m.HeadDim, m.FFN)
	if m.Latent > 0 {
		p.printf("latent        keys and values from %d numbers, %d numbers in memory for a position in a layer\n", m.Latent, m.KVElements)
	}
	if m.Recurrent > 0 {
		p.printf("recurrent     %d of %d layers: %d numbers in memory for a sequence, none for a position\n", m.Recurrent, m.Layers, m.State)
	}
	tokenizer := "tokenizer.json"
	if m.GGUF {
		tokenizer = "tokenizer"
	}
	p.printf("vocabulary    %d, tied embeddings: %s, %s: %s\n", m.Vocab, yesNo(m.Tied), tokenizer, yesNo(m.Tokenizer))
	if m.DraftVocab > 0 {
		p.printf("predicts      %d of these tokens\n", m.DraftVocab)
	}
	if m.Eagle3 != nil {
		m.Eagle3.print(&p)
	}
	if m.Block != nil {
		m.Block.print(&p)
	}
	if m.MTP {
		p.printf("drafts        with its own multi-token prediction module: --head mtp\n")
	}
	if y := m.Memory; y != nil {
		p.printf("memory        %s of weights as auto, on the CPU; keys and values %s a token\n", units.Bytes(uint64(y.Weights)), units.Bytes(uint64(y.KV)))
	}
	if n := len(m.Lost); n > 0 {
		p.printf("as auto       %d of its matrices are rounded to 8 bits, the others stay as they are stored\n", n)
	} else if m.GGUF {
		p.printf("as auto       all matrices stay as they are stored\n")
	}
	if n := len(m.Rounded); n > 0 {
		p.printf("as q8         %d of its matrices are rounded to 8 bits, the others keep their integers\n", n)
	} else if m.GGUF {
		p.printf("as q8         all matrices keep their integers\n")
	}
	if n := len(m.Kept); n > 0 {
		rounded := 0
		for _, name := range m.Rounded {
			if !slices.Contains(m.Kept, name) {
				rounded++
			}
		}
		if rounded > 0 {
			p.printf("as q4         %d of its matrices are rounded to 8 bits, %d keep their integers of 4 to 6 bits\n", rounded, n)
		} else {
			p.printf("as q4         all matrices keep their integers, %d of them of 4 to 6 bits\n", n)
		}
	}
	rope := m.Rope
	if m.Rotated < m.HeadDim {
		rope += fmt.Sprintf(" of %d elements a head", m.Rotated)
	}
	if m.Switch > 0 {
		rope += fmt.Sprintf(" (a text is read again beyond %d tokens)", m.Switch)
	}
	p.printf("positions     %d, rope %s, theta %g\n", m.Positions, rope, m.Theta)
	if m.Window > 0 {
		p.printf("window        %d positions in %d of %d layers\n", m.Window, m.WindowIn, m.Layers)
	}
	if w := m.MissingWindow; w > 0 {
		where := "config.json"
		if m.GGUF {
			where = "the file"
		}
		p.printf("warning       %s sets no sliding window, but published models of this shape have one of %d positions: after longer texts, talf computes something else than they do\n", where, w)
	}
	for _, w := range m.Warnings {
		p.printf("warning       %s\n", w)
	}
	p.printf("tokens        bos %d, eos %v\n", m.BOS, m.EOS)
	if c := m.Checkpoint; c != nil {
		p.printf("checkpoint    step %d, loss %s, files whole\n", c.Step, c.Loss)
		if t := c.Tie(); t.Known() {
			p.printf("target        %s\n", t)
		}
	}
	return p.String()
}
