package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talf/data"
	"talf/internal/units"
	"talf/model/identity"
	"talf/train/mix"
)

// Data describes Parquet shards of training data.
type Data struct {
	Kind     string       `json:"kind"` // "data"
	Path     string       `json:"path"`
	Complete *bool        `json:"complete,omitempty"` // nil: unknown, as of a single shard
	ID       string       `json:"id"`
	Meta     data.Meta    `json:"meta"`
	Stats    data.Stats   `json:"stats"`
	Shards   []data.Shard `json:"shards"`
	// DraftVocab says what a draft vocabulary covers; nil unless Cover was called.
	DraftVocab *mix.Coverage `json:"draft_vocab,omitempty"`
}

// OpenData reads and checks every value of a set of shards, or of one shard.
func OpenData(path string) (*Data, error) {
	set, err := data.Open(path)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	d := &Data{Kind: "data", Path: path, ID: set.ID(), Meta: set.Meta(), Shards: set.Shards()}
	if !strings.HasSuffix(path, ".parquet") {
		complete := set.Complete()
		d.Complete = &complete
	}
	d.Stats, err = set.Stats()
	return d, err
}

// Cover measures the draft vocabulary that mix.Vocab makes of text if the share held of the
// sequences is held out.
func (d *Data) Cover(text string, held float64) error {
	set, err := data.Open(d.Path)
	if err != nil {
		return err
	}
	defer set.Close()
	d.DraftVocab, err = mix.Cover(set, text, held)
	return err
}

func (d *Data) String() string {
	var p page
	m, s := &d.Meta, &d.Stats
	p.printf("data          %s\n", d.Path)
	if d.Complete != nil && !*d.Complete {
		p.printf("state         unfinished: run preprocess again to go on\n")
	}
	p.printf("rows          %d in %d shards, %s\n", s.Rows, len(d.Shards), units.Bytes(uint64(s.Bytes)))
	p.printf("tokens        %d, %d of them to learn, %.1f bytes a token\n", s.Tokens, s.LossTokens, s.PerToken)
	p.printf("trees         %d nodes a position (k=%d, %d levels)", m.Nodes(), m.Branch, m.Depth)
	if m.TreeShare > 0 {
		p.printf(", of the last %.4g%% of the rows alone", 100*m.TreeShare)
	}
	p.printf("\n")
	labels := "whole distributions"
	if m.Labels == data.TopK {
		labels = fmt.Sprintf("the %d most likely tokens and the rest", m.K)
	}
	p.printf("labels        %s; mass %.6g, tails %.6g\n", labels, s.LabelMass, s.TailMass)
	for _, l := range s.Levels {
		p.printf("level %-8d%d nodes, their labels hold %.1f%% of the mass", l.Level, l.Nodes, 100*l.Mass)
		for i, k := range s.TopK {
			if k < m.K {
				p.printf(", the first %d %.1f%%", k, 100*l.Top[i])
			}
		}
		if l.Level > 0 {
			p.printf("; what follows is in the tree so far with %.1f%%", 100*l.Reach)
		}
		p.printf("\n")
	}
	p.coverage(d.DraftVocab)
	p.printf("features      %s%s\n", m.Features, tapsOf(m))
	p.printf("target        %s, hidden %d, vocabulary %d\n", identity.Short(m.Function.Hash()), m.Hidden, m.Vocab)
	if f := m.Function; f != nil {
		p.printf("made with     weights %s, keys and values %s, activations %s, arithmetic %s\n", f.Weights, f.KV, cmp.Or(f.Activations, "of the device"), f.Arithmetic)
	}
	p.printf("tokenizer     %s\n", short(m.Tokenizer))
	if m.Sampling != "" {
		p.printf("answers       %s, seed %d\n", m.Sampling, m.Seed)
	}
	for _, in := range s.Inputs {
		p.printf("input %-8d%d conversations, %d turns (%d cut off), %d rows of %d tokens, %d to learn\n", in.Input, in.Conversations, in.Turns, in.Cut, in.Rows, in.Tokens, in.Loss)
	}
	if n, of := s.DroppedShare(); n > 0 {
		p.printf("dropped       %d of %d texts (%.2g%%)\n", n, of, 100*float64(n)/float64(of))
	}
	for _, why := range slices.Sorted(maps.Keys(s.Dropped)) {
		p.printf("dropped       %d: %s\n", s.Dropped[why], why)
	}
	return p.String()
}

func (p *page) coverage(c *mix.Coverage) {
	if c == nil {
		return
	}
	for _, part := range []struct {
		name string
		data.Coverage
	}{{"learnt", c.Train}, {"held out", c.Held}} {
		p.printf("vocab         %d tokens are %.2f%% of the %d to learn, %s", c.Size, 100*part.Share(), part.Tokens, part.name)
		for l, x := range part.Levels {
			p.printf("; labels of level %d: %.2f%%", l, 100*x)
		}
		p.printf("\n")
	}
}

// tapsOf says which layers the features of a set are from.
func tapsOf(m *data.Meta) string {
	if m.Taps == nil {
		return ""
	}
	return fmt.Sprintf(" before the layers %v", m.Taps)
}
