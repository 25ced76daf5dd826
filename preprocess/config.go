// Package preprocess makes the training data of a draft head: for every position of a
// text, the tree of the target's own best continuations, the target's distribution
// after each node (TALF, §3.2 and Algorithm 1), and the target's hidden states.
package preprocess

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"talf/data"
	"talf/data/corpus"
	"talf/model"
	"talf/model/arch"
	"talf/text/chat"
	"talf/tree"
	"talf/tree/levels"
)

// An EOSMode says where the end-of-sequence token follows a text.
type EOSMode string

// The modes. An answer is the end of a text; a paragraph or a window is not.
const (
	EOSAnswers EOSMode = "answers"
	EOSAlways  EOSMode = "always"
	EOSNever   EOSMode = "never"
)

// A Config says which text to process and how. Prompts, Rows and Tokens trade memory
// for speed without affecting the output. The CPU's kernels and threads do not affect
// it either.
type Config struct {
	Files []string // files and directories; see corpus.Expand
	Load  corpus.Config

	Out      string      // directory of the set
	Stripe   data.Stripe // the shards to make, if several runs make the set together
	K, Depth int         // nodes of a level, labelled levels
	Labels   data.LabelMode
	TopK     int // labels of a node with data.TopK; unused with data.Full
	// Features is what is stored of the hidden states: data.BF16, data.Taps or data.None.
	// data.Taps may name the layers, as in "taps:2+16+29"; else they are those of EAGLE-3 heads.
	Features data.FeatureMode
	LossOnly bool // no trees at positions outside the loss mask: prompts cost only their prefill
	// TreeShare is the share of the sequences that have trees, the last ones: Meta.TreeShare. 0: all.
	TreeShare float64
	MaxLen    int     // tokens of a sequence; limited by the target's positions
	EOS       EOSMode // where the end token is added; in conversations the template adds it
	Shard     int     // sequences of a shard
	Seed      uint64  // of regenerated answers

	Prompts int // prompts answered at once, with a Generator or an Answerer
	Rows    int // maximum rows of one pass
	Tokens  int // maximum tokens whose keys and values are held at once, unless one sequence has more
	Writer  data.WriterOptions
}

// Default returns the values of the TALF paper, §4.1, for its trees and length. Sixteen
// labels covered 96% of a story model's mass and 82% of a weak arithmetic model's
// (docs/formats.md); the tail has the rest.
func Default() Config {
	return Config{
		Load: corpus.Default(), K: 4, Depth: 3, Labels: data.TopK, TopK: 16, Features: data.BF16,
		MaxLen: 2048, EOS: EOSAnswers, Shard: 256, Stripe: data.Whole(),
		Prompts: 16, Rows: 512, Tokens: 2048, Writer: data.DefaultWriter(),
	}
}

// Rows and Tokens for a device with memory of its own, where passes should be large
// enough for products to be compute-bound, and batches large enough to fill the passes.
const (
	DeviceRows   = 2048
	DeviceTokens = 8192
)

// Validate reports the first invalid option.
func (c *Config) Validate() error {
	if len(c.Files) == 0 {
		return fmt.Errorf("preprocess: no input files")
	}
	if err := c.Load.Validate(); err != nil {
		return fmt.Errorf("preprocess: %w", err)
	}
	if err := (levels.Config{K: c.K, Depth: c.Depth}).Validate(); err != nil {
		return fmt.Errorf("preprocess: %w", err)
	}
	if err := c.Stripe.Validate(); err != nil {
		return fmt.Errorf("preprocess: %w", err)
	}
	if _, _, err := features(c.Features); err != nil {
		return err
	}
	switch {
	case c.Out == "":
		return fmt.Errorf("preprocess: no output directory")
	case c.Labels != data.TopK && c.Labels != data.Full:
		return fmt.Errorf("preprocess: labels is %q, want %q or %q", c.Labels, data.TopK, data.Full)
	case c.Labels == data.TopK && c.TopK < 1:
		return fmt.Errorf("preprocess: label-k is %d, want at least 1", c.TopK)
	case !(c.TreeShare >= 0 && c.TreeShare < 1):
		return fmt.Errorf("preprocess: tree-share is %v, want more than 0 and less than 1, or 0 for trees of all sequences", c.TreeShare)
	case c.MaxLen < minLen:
		return fmt.Errorf("preprocess: max-len is %d, want at least %d", c.MaxLen, minLen)
	case c.EOS != EOSAnswers && c.EOS != EOSAlways && c.EOS != EOSNever:
		return fmt.Errorf("preprocess: eos is %q, want %q, %q or %q", c.EOS, EOSAnswers, EOSAlways, EOSNever)
	case c.Shard < 1:
		return fmt.Errorf("preprocess: shard is %d, want at least 1", c.Shard)
	case c.Prompts < 1:
		return fmt.Errorf("preprocess: %d prompts at once, want at least 1", c.Prompts)
	case c.Rows < c.K || c.Rows > 1<<16:
		return fmt.Errorf("preprocess: rows is %d, want %d..%d", c.Rows, c.K, 1<<16)
	case c.Tokens < 1:
		return fmt.Errorf("preprocess: tokens is %d, want at least 1", c.Tokens)
	}
	return nil
}

// FeaturesAt returns the features of heads that read the states before the layers taps; nil stands
// for the last hidden states.
func FeaturesAt(taps []int) data.FeatureMode {
	if taps == nil {
		return data.BF16
	}
	names := make([]string, len(taps))
	for i, b := range taps {
		names[i] = strconv.Itoa(b)
	}
	return data.FeatureMode(string(data.Taps) + ":" + strings.Join(names, "+"))
}

// features reads Config.Features: the mode and, if they are named, the layers.
func features(text data.FeatureMode) (mode data.FeatureMode, taps []int, err error) {
	word, list, named := strings.Cut(string(text), ":")
	switch mode = data.FeatureMode(word); {
	case named && mode == data.Taps:
		if taps, err = arch.ParseTaps(list); err != nil {
			return "", nil, fmt.Errorf("preprocess: features is %q: %w", text, err)
		}
		return mode, taps, nil
	case !named && (mode == data.BF16 || mode == data.Taps || mode == data.None):
		return mode, nil, nil
	}
	return "", nil, fmt.Errorf("preprocess: features is %q, want %q, %q (with layers: taps:2+16+29) or %q", text, data.BF16, data.Taps, data.None)
}

// minLen is the length of the shortest sequence: the head's first prediction is the
// third token.
const minLen = 3

// A Tokenizer turns text into ids; addSpecial adds the special tokens around a text. It
// must be safe for concurrent use if answers are regenerated.
type Tokenizer interface {
	Encode(text string, addSpecial bool) ([]int32, error)
}

// A Prompt is a text for the target to continue.
type Prompt struct {
	Tokens []int32
	Max    int    // maximum number of new tokens
	Seed   uint64 // the only source of the answer's randomness
}

// A Generator answers prompts with the target.
type Generator interface {
	// Generate returns the new tokens of each prompt, including an end token. An answer
	// depends only on its own Prompt.
	Generate(ctx context.Context, prompts []Prompt) ([][]int32, error)
}

// Inputs are the model and the helpers that the pipeline runs with.
type Inputs struct {
	Target    *model.Model
	Tokenizer Tokenizer
	// TokenizerHash identifies Tokenizer in the shards.
	TokenizerHash string
	// Chat renders conversations; nil if there is no template. With a Generator or an
	// Answerer it also renders prompts of one or more turns. Its output must not depend on the time.
	// ChatHash identifies it in the shards.
	Chat     *chat.Template
	ChatHash string
	// Generator, if not nil, replaces the answers of the text by the target's own.
	// Sampling describes the method, for the shards.
	Generator Generator
	Sampling  string
	// Answerer, if not nil, takes the place of a Generator. Sequences are then made of its
	// answers as of those of a text, unless an answer has no end.
	Answerer Answerer
	// Beside are additional copies of the target, each on its own device, that label
	// alongside it. Rows are written in the order of the input, so a set does not
	// depend on the copies if all devices compute the same bits.
	Beside []Worker
	// Arithmetic names the device and the type of weights that compute the target if
	// they affect the last bits of labels. It is part of the set, which is made with
	// only one arithmetic. "" is the CPU.
	Arithmetic string
	// Bulk allows passes to use model.Model.Bulk. Rows and Tokens then affect bits as
	// well, so Arithmetic should name them as well.
	Bulk bool

	// Progress, if not nil, is called after every batch, from Run's goroutine.
	Progress func(Progress)
	// Warn, if not nil, is called if most answers end at once.
	Warn func(string)
	// Bad, if not nil, is called with input that was skipped.
	Bad func(corpus.BadLine)
}

// regenerates reports whether the answers of the text are replaced.
func (in *Inputs) regenerates() bool { return in.Generator != nil || in.Answerer != nil }

// A Worker is a copy of the target with its Generator, which is nil unless Inputs has
// one.
type Worker struct {
	Target    *model.Model
	Generator Generator
}

// Progress says how far a run has come, within a stripe's own shards. All counts
// include the work of earlier runs.
type Progress struct {
	Sequences, AllSequences int   // including dropped ones
	Tokens                  int64 // written
	AllTokens               int64 // an upper bound, since some may be dropped; only prompts if answers are regenerated
	Shards                  int   // finished
}

// Stats describe what became of the input.
type Stats struct {
	Sequences  int   `json:"sequences"` // written
	Tokens     int64 `json:"tokens"`
	LossTokens int64 `json:"loss_tokens"`
	Shards     int   `json:"shards"`
	Resumed    int   `json:"resumed_shards"` // of these, finished by earlier runs
	// Merged, for a stripe, says that all runs have finished and the set is whole.
	Merged  bool           `json:"merged,omitempty"`
	Dropped map[string]int `json:"dropped,omitempty"`
	Inputs  []InputStats   `json:"inputs,omitempty"` // of each file, in order
}

// InputStats describe what became of one file.
type InputStats struct {
	File string `json:"file"`
	data.Input
}

// Inventory describes what became of every file and what was dropped, one line each.
func (s *Stats) Inventory() string {
	var b strings.Builder
	dropped := func(d map[string]int) {
		for _, why := range slices.Sorted(maps.Keys(d)) {
			fmt.Fprintf(&b, "left out: %d: %s\n", d[why], why)
		}
	}
	if len(s.Inputs) == 0 || len(s.Inputs) == 1 && s.Inputs[0].Conversations == 0 {
		dropped(s.Dropped)
		return b.String()
	}
	for i := range s.Inputs {
		in := &s.Inputs[i]
		fmt.Fprintf(&b, "%s: ", in.File)
		if in.Conversations > 0 {
			fmt.Fprintf(&b, "%d conversations, %d turns (%d cut off), ", in.Conversations, in.Turns, in.Cut)
		}
		fmt.Fprintf(&b, "%d sequences of %d tokens, %d to learn\n", in.Rows, in.Tokens, in.Loss)
		dropped(in.Dropped)
	}
	return b.String()
}

// meta returns the metadata of the shards.
func (c *Config) meta(in *Inputs, maxLen int, files *inputFiles) (data.Meta, error) {
	opts, err := c.options(in, maxLen)
	if err != nil {
		return data.Meta{}, fmt.Errorf("preprocess: %w", err)
	}
	s := in.Target.Spec()
	mode, taps, err := features(c.Features)
	if err == nil && mode == data.Taps && taps == nil {
		if taps, err = arch.DefaultTaps(s.Layers); err != nil {
			err = fmt.Errorf("preprocess: features: %w", err)
		}
	}
	if err != nil {
		return data.Meta{}, err
	}
	for _, b := range taps {
		if b > s.Layers {
			return data.Meta{}, fmt.Errorf("preprocess: features is %q, but the target has only %d layers", c.Features, s.Layers)
		}
	}
	m := data.Meta{
		Schema: data.SchemaVersion, Function: in.Target.Function(), Tokenizer: in.TokenizerHash,
		Hidden: s.Hidden, Vocab: s.Vocab, Branch: c.K, Depth: c.Depth,
		Labels: c.Labels, Features: mode, Taps: taps, LossOnly: c.LossOnly, TreeShare: c.TreeShare, Seed: c.Seed, Sampling: in.Sampling, Source: files.fingerprint(opts), Arithmetic: in.Arithmetic,
	}
	if c.Labels == data.TopK {
		m.K = c.TopK
	}
	if m.K > s.Vocab {
		return m, fmt.Errorf("preprocess: label-k is %d, want at most the target's vocabulary of %d", m.K, s.Vocab)
	}
	if err := m.Validate(); err != nil {
		return m, fmt.Errorf("preprocess: the target cannot be labelled like this: %w", err)
	}
	return m, nil
}

// options is the canonical form of every option that decides which sequences are made
// from the text. Unfinished sets are continued only if the form is the same, so its
// fields must not change. A new option is a new field with omitempty, whose zero value
// stands for the former behaviour.
func (c *Config) options(in *Inputs, maxLen int) ([]byte, error) {
	type load struct {
		Format                              corpus.Format
		Template, AnswerField, AnswerRemove string
		Skip, Limit, MaxLine                int
	}
	l := &c.Load
	return json.Marshal(struct {
		Load       load
		MaxLen     int
		EOS        EOSMode
		Shard      int
		Regenerate bool
		Chat       string `json:",omitempty"`
	}{
		load{l.Format, l.Template, l.AnswerField, l.AnswerRemove, l.Skip, l.Limit, l.MaxLine},
		maxLen, c.EOS, c.Shard, in.regenerates(), in.ChatHash,
	})
}

// length returns the length of the longest sequence that the target can label: tree
// nodes are up to Depth−1 positions past its end, and a prompt chunk is one tree. Nor do they make a long text of one that
// is no longer than turn, beyond which longrope turns all positions otherwise; 0: none.
func (c *Config) length(positions, turn int) (int, error) {
	n := min(c.MaxLen, positions-(c.Depth-1))
	if n <= turn {
		n = min(n, turn-(c.Depth-1))
	}
	if n < minLen {
		return 0, fmt.Errorf("preprocess: the target has %d positions, want at least %d for trees of %d levels", positions, minLen+c.Depth-1, c.Depth)
	}
	return n, nil
}

// chunk returns the maximum number of positions of one sequence in one pass.
func (c *Config) chunk() int { return min(c.Rows, tree.MaxNodes) }
