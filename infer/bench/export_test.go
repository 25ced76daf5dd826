package bench

import (
	"io"
	"testing"

	"talf/infer"
	"talf/infer/verify"
	"talf/model/sample"
)

// CountPaths decodes up to n tokens with d, or up to one of eos, and returns what is counted
// of its labels.
func CountPaths(t *testing.T, target infer.Target, d infer.Drafter, prompt []int32, n int, eos ...int32) *Paths {
	t.Helper()
	w := watch(new(verify.Greedy), d)
	proc, err := infer.NewSampling(sample.Greedy(), 0)
	if err != nil {
		t.Fatal(err)
	}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	_, err = e.Stream(t.Context(), infer.Request{
		Prompt: prompt, MaxTokens: n, NoEOS: len(eos) == 0, EOS: eos, Drafter: d, Verifier: w, Processor: proc,
	}, w.emit)
	if err != nil {
		t.Fatal(err)
	}
	return w.paths
}

// Text is the form of settings in a log's header.
func (s *Settings) Text() string { return s.text() }

// ReadOwn reads a log of a run with these settings and returns the length of its whole lines.
func ReadOwn(r io.Reader, settings *Settings) (got []Measurement, whole int64, err error) {
	c := logConfig(settings, &got)
	whole, err = c.Read(r)
	return got, whole, err
}
