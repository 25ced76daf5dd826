package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"talf/infer/constrain"
	"talf/text/grammar"
	"talf/text/tokenizer"
)

// A job asks for the masks along one answer.
type job struct {
	Schema json.RawMessage `json:"schema"`
	IDs    []int32         `json:"ids"`
}

// times are microseconds.
type times struct {
	Compile  float64   `json:"compile"`
	Cold     []float64 `json:"cold"` // of each mask, when it is computed first
	Warm     []float64 `json:"warm"` // the same once more
	Allowed  []int     `json:"allowed"`
	Accepted bool      `json:"accepted"` // the answer is a text of the grammar
	Error    string    `json:"error,omitempty"`
}

// masks answers jobs, one a line, until the input ends. The states after tokens are found in the time of
// the masks that follow, as in peers, which find them when a token is accepted.
func masks(args []string, in io.Reader, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("masks: want the directory of a tokenizer")
	}
	t, err := tokenizer.Load(args[0])
	if err != nil {
		return err
	}
	v, err := constrain.Vocabulary(t, t.VocabSize())
	if err != nil {
		return err
	}
	out := json.NewEncoder(stdout)
	d := json.NewDecoder(bufio.NewReaderSize(in, 1<<20))
	for {
		var j job
		if err := d.Decode(&j); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		got, err := measure(v, j)
		if err != nil {
			got = times{Error: err.Error()}
		}
		if err := out.Encode(got); err != nil {
			return err
		}
	}
}

func measure(v *grammar.Vocabulary, j job) (out times, err error) {
	began := time.Now()
	c, err := constrain.New(constrain.Format{Kind: constrain.Schema, Text: string(j.Schema)}, v, nil)
	if err != nil {
		return out, err
	}
	out.Compile = micro(began)
	for _, to := range []*[]float64{&out.Cold, &out.Warm} {
		s := c.Automaton.Start()
		for i, id := range j.IDs {
			began := time.Now()
			m, err := c.Automaton.Mask(s)
			if err != nil {
				return out, err
			}
			next := c.Automaton.Next(s, id)
			*to = append(*to, micro(began))
			if to == &out.Cold {
				out.Allowed = append(out.Allowed, m.Count())
			}
			if s = next; s == nil {
				return out, fmt.Errorf("token %d of the answer is not allowed", i)
			}
		}
		out.Accepted = s.Accepting()
	}
	return out, nil
}

func micro(since time.Time) float64 { return float64(time.Since(since).Nanoseconds()) / 1e3 }
