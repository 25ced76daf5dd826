package command

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/internal/units"
	"talf/model/arch"
	"talf/model/safetensors"
)

func newInspect(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect PATH",
		Short: "Describe a model, a checkpoint, Parquet shards or a safetensors file",
		Long: `Inspect describes what a path contains:

  a model or head directory   its architecture, size and tensors
  a checkpoint                the head, and the state of the training run
  Parquet shards              rows, tokens, label mass and settings; every value is
                              read and checked
  a safetensors file          its tensors

Inspect data shows training samples with the tokens in the loss marked.
Inspect trace draws the trees that generate --trace recorded.`,
		Example: "  talf inspect path/to/model\n  talf inspect labels --json\n  talf inspect labels/shard-00000.parquet",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := waitFor(cmd.Context(), func() (finding, error) { return inspect(args[0]) })
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(v)
			}
			v.print(a)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(newInspectSamples(a), newInspectTrace(a))
	c.AddCommand(newInspectMetrics(a))
	return c
}

// A finding is what inspect found out about a path.
type finding interface{ print(a *app) }

// A modelFinding describes a model or head directory.
type modelFinding struct {
	Kind       string  `json:"kind"` // "model" or "head"
	Path       string  `json:"path"`
	Arch       string  `json:"architecture"`
	Vocab      int     `json:"vocabulary"`
	Hidden     int     `json:"hidden_size"`
	Layers     int     `json:"layers"`
	Heads      int     `json:"heads"`
	KVHeads    int     `json:"kv_heads"`
	HeadDim    int     `json:"head_dim"`
	FFN        int     `json:"ffn"`
	Positions  int     `json:"positions"`
	Rope       string  `json:"rope"`
	Theta      float64 `json:"rope_theta"`
	Rotated    int     `json:"rotated"` // elements of each head
	Window     int     `json:"window"`  // how many recent positions a token sees in some layers
	WindowIn   int     `json:"window_layers"`
	Tied       bool    `json:"tied_embeddings"`
	BOS        int32   `json:"bos"` // -1: none
	EOS        []int32 `json:"eos"`
	Tokenizer  bool    `json:"tokenizer"`
	Tensors    int     `json:"tensors"`
	Parameters int64   `json:"parameters"`
	Bytes      int64   `json:"bytes"`
	Types      string  `json:"types"`
	DraftVocab int     `json:"draft_vocabulary,omitempty"` // tokens that a head predicts; 0: all
	// Checkpoint is the manifest that training wrote, if there is one.
	Checkpoint *checkpoints.Manifest `json:"checkpoint,omitempty"`
}

// inspectModel describes a directory that has a config.json.
func inspectModel(dir string) (*modelFinding, error) {
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	f := &modelFinding{Kind: "model", Path: dir}
	load := arch.Load
	if _, ok := set.Tensor("fc.weight"); ok {
		f.Kind, load = "head", arch.LoadDraft
	}
	s, err := load(dir)
	if err != nil {
		return nil, err
	}
	f.Arch, f.Vocab, f.Hidden, f.Layers, f.Heads = s.Arch, s.Vocab, s.Hidden, s.Layers, s.Heads
	f.DraftVocab = s.DraftVocab
	f.KVHeads, f.HeadDim, f.FFN, f.Positions, f.Tied = s.KVHeads, s.HeadDim, s.FFN, s.MaxPos, s.Tied
	f.Rope, f.Theta, f.Rotated, f.BOS, f.EOS = s.Rope.Type, s.Rope.Theta, s.Rotated(), s.BOS, s.EOS
	for _, w := range s.Windows { // all windows of a model are of one size
		if w > 0 {
			f.Window, f.WindowIn = w, f.WindowIn+1
		}
	}
	_, err = os.Stat(filepath.Join(dir, "tokenizer.json"))
	f.Tokenizer = err == nil
	f.count(set)
	if f.Checkpoint, err = checkpoints.ReadManifest(dir); err != nil {
		return nil, err
	}
	if f.Checkpoint != nil {
		err = f.Checkpoint.Verify(dir)
	}
	return f, err
}

// count adds up the tensors of set.
func (f *modelFinding) count(set *safetensors.Set) {
	types := map[string]int64{}
	for _, name := range set.Names() {
		t, _ := set.Tensor(name)
		f.Tensors++
		f.Parameters += int64(t.Len())
		f.Bytes += int64(len(t.Data))
		types[t.DType] += int64(t.Len())
	}
	f.Types = strings.Join(slices.Sorted(maps.Keys(types)), " ")
}

func (f *modelFinding) print(a *app) {
	a.printf("%-14s%s\n", f.Kind, f.Path)
	a.printf("architecture  %s\n", f.Arch)
	a.printf("parameters    %d in %d tensors, %s (%s)\n", f.Parameters, f.Tensors, units.Bytes(uint64(f.Bytes)), f.Types)
	a.printf("shape         hidden %d, layers %d, heads %d (%d for keys) of %d, ffn %d\n", f.Hidden, f.Layers, f.Heads, f.KVHeads, f.HeadDim, f.FFN)
	a.printf("vocabulary    %d, tied embeddings: %s, tokenizer.json: %s\n", f.Vocab, yesNo(f.Tied), yesNo(f.Tokenizer))
	if f.DraftVocab > 0 {
		a.printf("predicts      %d of these tokens\n", f.DraftVocab)
	}
	rope := f.Rope
	if f.Rotated < f.HeadDim {
		rope += fmt.Sprintf(" of %d elements a head", f.Rotated)
	}
	a.printf("positions     %d, rope %s, theta %g\n", f.Positions, rope, f.Theta)
	if f.Window > 0 {
		a.printf("window        %d positions in %d of %d layers\n", f.Window, f.WindowIn, f.Layers)
	}
	a.printf("tokens        bos %d, eos %v\n", f.BOS, f.EOS)
	if c := f.Checkpoint; c != nil {
		a.printf("checkpoint    step %d, loss %s, files whole\n", c.Step, c.Loss)
		if c.Target != "" {
			a.printf("target        %s\n", short(c.Target))
		}
	}
}

// A tensorsFinding lists a safetensors file.
type tensorsFinding struct {
	Kind     string            `json:"kind"`
	Path     string            `json:"path"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Tensors  []tensorLine      `json:"tensors"`
}

type tensorLine struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

func inspectTensors(path string) (*tensorsFinding, error) {
	set, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	f := &tensorsFinding{Kind: "tensors", Path: path, Metadata: set.Metadata()}
	for _, name := range set.Names() {
		t, _ := set.Tensor(name)
		f.Tensors = append(f.Tensors, tensorLine{t.Name, t.DType, t.Shape})
	}
	return f, nil
}

func (f *tensorsFinding) print(a *app) {
	a.printf("tensors       %d in %s\n", len(f.Tensors), f.Path)
	for _, t := range f.Tensors {
		a.printf("%-5s %-16s %s\n", t.DType, fmt.Sprint(t.Shape), t.Name)
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
