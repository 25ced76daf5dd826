// Package samples shows the sequences of a file that a head is trained on, with the
// tokens that are in the loss.
package samples

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"talf/data"
	"talf/data/corpus"
	"talf/model/arch"
	"talf/model/gguf"
	"talf/preprocess"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// A Set is a selection of sequences of a file, with the counts of others that were
// dropped.
type Set struct {
	Kind    string         `json:"kind"` // "samples"
	Path    string         `json:"path"`
	Samples []Sample       `json:"samples"`
	Dropped map[string]int `json:"dropped,omitempty"` // among the sequences read
}

// A Sample is one sequence.
type Sample struct {
	Place  string  `json:"place"`
	ID     string  `json:"id,omitempty"`
	Turns  int     `json:"turns,omitempty"`
	Cut    int     `json:"cut_turns,omitempty"`
	Tokens int     `json:"tokens"`
	Loss   int     `json:"loss_tokens"`
	Runs   []Run   `json:"runs"`
	tokens []int32 // tokens of Runs
	loss   []bool  // loss mask of Runs
	drop   string  // why it is not a row; "" if it is
}

// A Run is text whose tokens are either all in the loss or all outside it.
type Run struct {
	Text string `json:"text"`
	Loss bool   `json:"loss"`
}

// Pick takes n of the sequences of path: the first n or, if seed is not 0, n at random.
// tok, if not nil, is used to show them as text.
func Pick(ctx context.Context, path string, all iter.Seq2[Sample, error], tok *tokenizer.Tokenizer, n int, seed uint64) (*Set, error) {
	s := &Set{Kind: "samples", Path: path, Samples: []Sample{}}
	rng := rand.New(rand.NewPCG(seed, 0))
	seen := 0
	for x, err := range all {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if x.drop != "" {
			if s.Dropped == nil {
				s.Dropped = map[string]int{}
			}
			s.Dropped[x.drop]++
			continue
		}
		// Reservoir sampling: every sequence has the same chance, however many there
		// are.
		if seen++; len(s.Samples) < n {
			s.Samples = append(s.Samples, x)
		} else if i := rng.IntN(seen); i < n {
			s.Samples[i] = x
		}
		if seed == 0 && len(s.Samples) == n {
			break
		}
	}
	for i := range s.Samples {
		x := &s.Samples[i]
		x.Runs = runs(tok, x.tokens, x.loss)
		x.Tokens = len(x.tokens)
		for _, l := range x.loss {
			if l {
				x.Loss++
			}
		}
	}
	return s, nil
}

// Texts yields the sequences that preprocess would make from c's files. bad is called
// with input that is skipped.
func Texts(ctx context.Context, c preprocess.Config, r preprocess.Reader, bad func(corpus.BadLine)) iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		for x, err := range preprocess.Samples(ctx, c, r, bad) {
			place := fmt.Sprintf("%s:%d", x.File, x.Line)
			if x.Item > 0 {
				place += fmt.Sprintf(": item %d", x.Item)
			}
			if !yield(Sample{Place: place, ID: x.ID, Turns: x.Turns, Cut: x.Cut, tokens: x.Tokens, loss: x.Loss, drop: x.Drop}, err) {
				return
			}
		}
	}
}

// Reader returns the Reader for the model in dir, for which the tokenizer's files are
// enough. The template may be nil.
func Reader(dir string, tok *tokenizer.Tokenizer, template *chat.Template) (preprocess.Reader, error) {
	r := preprocess.Reader{Tokenizer: tok, Chat: template, Vocab: tok.VocabSize(), EOS: -1}
	if id, ok := tok.EOS(); ok {
		r.EOS = id
	}
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err == nil || gguf.Is(dir) {
		spec, err := arch.Load(dir)
		if err != nil {
			return r, err
		}
		r.Vocab, r.Positions, r.Switch = spec.Vocab, spec.MaxPos, spec.Rope.Switch()
		if len(spec.EOS) > 0 {
			r.EOS = spec.EOS[0]
		}
	}
	return r, nil
}

// AreShards reports whether path has Parquet shards: a set or one of its files.
func AreShards(path string) bool {
	_, err := os.Stat(filepath.Join(path, data.ManifestName))
	return err == nil || strings.HasSuffix(path, ".parquet")
}

// Shards yields the rows of Parquet shards. Without a tokenizer they are shown as ids.
func Shards(path string, tok *tokenizer.Tokenizer) iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		set, err := data.Open(path)
		if err != nil {
			yield(Sample{}, err)
			return
		}
		defer set.Close()
		if m := set.Meta(); tok != nil && m.Tokenizer != tok.Hash() {
			yield(Sample{}, fmt.Errorf("%s was made with the tokenizer %.12s, not with that of the model, %.12s", path, m.Tokenizer, tok.Hash()))
			return
		}
		r, err := set.Sequential(data.Everything())
		if err != nil {
			yield(Sample{}, err)
			return
		}
		for i := 0; ; i++ {
			row, err := r.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(Sample{}, err)
				return
			}
			if !yield(Sample{Place: fmt.Sprintf("%s: row %d", path, i), tokens: slices.Clone(row.Tokens), loss: slices.Clone(row.LossMask)}, nil) {
				return
			}
		}
	}
}

// runs splits a sequence where the loss begins and ends. Without a tokenizer its text
// is the token ids.
func runs(tok *tokenizer.Tokenizer, tokens []int32, loss []bool) []Run {
	var out []Run
	add := func(text string, loss bool) {
		if n := len(out); n > 0 && out[n-1].Loss == loss {
			out[n-1].Text += text
		} else {
			out = append(out, Run{text, loss})
		}
	}
	var st *tokenizer.Stream
	if tok != nil {
		st = tok.NewStream(false)
	}
	for i, id := range tokens {
		switch {
		case st != nil:
			add(st.Push(id), loss[i])
		case i > 0:
			add(" "+strconv.Itoa(int(id)), loss[i])
		default:
			add(strconv.Itoa(int(id)), loss[i])
		}
	}
	if st != nil && len(out) > 0 {
		out[len(out)-1].Text += st.Flush()
	}
	return out
}

// Print writes the samples, with marks around the text that is in the loss.
func (s *Set) Print(w io.Writer, begin, end string) {
	printf := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // the caller's writer keeps the error
	for i := range s.Samples {
		x := &s.Samples[i]
		printf("%s: %d tokens, %d to learn", x.Place, x.Tokens, x.Loss)
		if x.Turns > 0 {
			printf(", %d turns", x.Turns)
		}
		if x.Cut > 0 {
			printf(", %d more cut off", x.Cut)
		}
		if x.ID != "" {
			printf(", id %s", visible(x.ID))
		}
		printf("\n")
		for _, r := range x.Runs {
			if r.Loss {
				printf("%s%s%s", begin, visible(r.Text), end)
			} else {
				printf("%s", visible(r.Text))
			}
		}
		printf("\n\n")
	}
	if len(s.Samples) == 0 {
		printf("%s: no sequences\n", s.Path)
	}
	for _, why := range slices.Sorted(maps.Keys(s.Dropped)) {
		printf("left out: %d: %s\n", s.Dropped[why], why)
	}
}

// visible replaces control characters, which would control a terminal, by Unicode's
// control pictures. Line breaks and tabs stay.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < ' ':
			return '␀' + r
		case r == 0x7f:
			return '␡'
		case r >= 0x80 && r < 0xa0: // C1 controls
			return '�'
		}
		return r
	}, s)
}
