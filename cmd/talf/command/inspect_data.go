package command

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"talf/checkpoints"
	"talf/data"
	"talf/internal/units"
	"talf/train/mix"
)

// inspect finds out what path holds.
func inspect(path string) (finding, error) {
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("%s does not exist", path)
	}
	if err != nil {
		return nil, err
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(path, name))
		return err == nil
	}
	switch {
	case info.IsDir() && checkpoints.IsForeign(path):
		return inspectDraft(path)
	case info.IsDir() && has("config.json"):
		return inspectModel(path)
	case info.IsDir() && (has(data.ManifestName) || data.HasParts(path)), strings.HasSuffix(path, ".parquet"):
		return inspectData(path)
	case strings.HasSuffix(path, ".safetensors"):
		return inspectTensors(path)
	case info.IsDir():
		if dir, err := checkpoints.Find(path); err == nil {
			return inspectModel(dir)
		}
	}
	return nil, fmt.Errorf("%s: want a directory with config.json or %s, or a .parquet or .safetensors file", path, data.ManifestName)
}

// A dataFinding describes Parquet shards.
type dataFinding struct {
	Kind     string       `json:"kind"` // "data"
	Path     string       `json:"path"`
	Complete *bool        `json:"complete,omitempty"` // not known of a single shard
	ID       string       `json:"id"`
	Meta     data.Meta    `json:"meta"`
	Stats    data.Stats   `json:"stats"`
	Shards   []data.Shard `json:"shards"`
	// DraftVocab is what one covers, if that was asked for.
	DraftVocab *mix.Coverage `json:"draft_vocab,omitempty"`
}

func inspectData(path string) (*dataFinding, error) {
	set, err := data.Open(path)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	f := &dataFinding{Kind: "data", Path: path, ID: set.ID(), Meta: set.Meta(), Shards: set.Shards()}
	if !strings.HasSuffix(path, ".parquet") {
		complete := set.Complete()
		f.Complete = &complete
	}
	f.Stats, err = set.Stats()
	return f, err
}

func (f *dataFinding) print(a *app) {
	m, s := &f.Meta, &f.Stats
	a.printf("data          %s\n", f.Path)
	if f.Complete != nil && !*f.Complete {
		a.printf("state         unfinished: run preprocess again to go on\n")
	}
	a.printf("rows          %d in %d shards, %s\n", s.Rows, len(f.Shards), units.Bytes(uint64(s.Bytes)))
	a.printf("tokens        %d, %d of them to learn, %.1f bytes a token\n", s.Tokens, s.LossTokens, s.PerToken)
	a.printf("trees         %d nodes a position (k=%d, %d levels)\n", m.Nodes(), m.Branch, m.Depth)
	labels := "whole distributions"
	if m.Labels == data.TopK {
		labels = fmt.Sprintf("the %d most likely tokens and the rest", m.K)
	}
	a.printf("labels        %s; mass %.6g, tails %.6g\n", labels, s.LabelMass, s.TailMass)
	for _, l := range s.Levels {
		a.printf("level %-8d%d nodes, their labels hold %.1f%% of the mass", l.Level, l.Nodes, 100*l.Mass)
		for i, k := range s.TopK {
			if k < m.K {
				a.printf(", the first %d %.1f%%", k, 100*l.Top[i])
			}
		}
		if l.Level > 0 {
			a.printf("; what follows is in the tree so far with %.1f%%", 100*l.Reach)
		}
		a.printf("\n")
	}
	if f.DraftVocab != nil {
		printCoverage(a, f.DraftVocab)
	}
	a.printf("features      %s\n", m.Features)
	a.printf("target        %s, hidden %d, vocabulary %d\n", short(m.Target), m.Hidden, m.Vocab)
	a.printf("tokenizer     %s\n", short(m.Tokenizer))
	if m.Sampling != "" {
		a.printf("answers       %s, seed %d\n", m.Sampling, m.Seed)
	}
	for _, in := range s.Inputs {
		a.printf("input %-8d%d conversations, %d turns (%d cut off), %d rows of %d tokens, %d to learn\n", in.Input, in.Conversations, in.Turns, in.Cut, in.Rows, in.Tokens, in.Loss)
	}
	if n, of := s.DroppedShare(); n > 0 {
		a.printf("dropped       %d of %d texts (%.2g%%)\n", n, of, 100*float64(n)/float64(of))
	}
	for _, why := range slices.Sorted(maps.Keys(s.Dropped)) {
		a.printf("dropped       %d: %s\n", s.Dropped[why], why)
	}
}

// short abbreviates a hash.
func short(hash string) string {
	if len(hash) > 12 {
		return hash[:12]
	}
	return hash
}
