package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/draft/constants"
)

// A knob is a constant that is fitted by what it does to speed.
type knob struct {
	name string
	of   func(s *constants.Set) *float64
}

var knobs = []knob{
	{"fuse.th", func(s *constants.Set) *float64 { return &s.Fuse.Th }},
	{"fuse.shrink", func(s *constants.Set) *float64 { return &s.Fuse.Shrink }},
	{"fuse.memory", func(s *constants.Set) *float64 { return &s.Fuse.Memory }},
	{"fuse.rate", func(s *constants.Set) *float64 { return &s.Fuse.Rate }},
	{"fuse.agree", func(s *constants.Set) *float64 { return &s.Fuse.Agree }},
	{"fuse.dissent", func(s *constants.Set) *float64 { return &s.Fuse.Dissent }},
}

// factors are tried for one constant after the other. A change has to make decoding faster by certain
// standard errors over prompts, or the value stays: the fit is to find constants, not noise.
var factors = []float64{0.5, 2}

const certain = 2

// fused are the ways in which fuse's constants are fitted: with a draft model and without.
func fused(s *constants.Set) []method {
	return []method{{fmt.Sprintf("fuse:N=12,th=%g", s.Fuse.Th), lm}, {"fuse:N=12,head=off", none}}
}

// A trial is a value and the speed with it.
type trial struct {
	Name   string  `json:"constant"`
	Value  float64 `json:"value"`
	Speed  float64 `json:"speed_up"`
	Change float64 `json:"change"` // of speed, relative to the values before, in the mean over prompts
	Error  float64 `json:"error"`  // its standard error
	Kept   bool    `json:"kept"`
}

type fitting struct {
	Prompts int           `json:"prompts"`
	Trials  []trial       `json:"trials"`
	Values  constants.Set `json:"values"`
}

func (l *lab) fit(ctx context.Context, s constants.Set) (*fitting, error) {
	f := &fitting{Prompts: l.prompts()}
	var err error
	if s.Recycle, err = l.ranks(ctx, "recycle:rows,depth=1,N=%d,accept=%s", none, len(s.Recycle)); err != nil {
		return nil, err
	}
	if s.Sequoia, err = l.ranks(ctx, "sequoia:depth=1,N=%d,accept=%s", lm, len(s.Sequoia)); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "recycle: accept=%s\nsequoia: accept=%s\n", constants.List(s.Recycle), constants.List(s.Sequoia))
	best, err := l.speed(ctx, &s)
	if err != nil {
		return nil, err
	}
	f.Trials = append(f.Trials, trial{Name: "as before", Speed: best.score(fused(&s)...), Kept: true})
	for _, k := range knobs {
		from, at := *k.of(&s), -1
		for _, by := range factors {
			x := s
			*k.of(&x) = from * by
			if x.Validate() != nil {
				continue
			}
			got, err := l.speed(ctx, &x)
			if err != nil {
				return nil, err
			}
			t := trial{Name: k.name, Value: from * by, Speed: got.score(fused(&x)...)}
			t.Change, t.Error = change(got, fused(&x), best, fused(&s))
			fmt.Fprintf(os.Stderr, "%s=%.3g: %.4f, %+.4f ± %.4f\n", t.Name, t.Value, t.Speed, t.Change, t.Error)
			f.Trials = append(f.Trials, t)
			if t.Change > certain*t.Error {
				best, at = got, len(f.Trials)-1
				*k.of(&s) = from * by
			}
		}
		if at >= 0 {
			f.Trials[at].Kept = true
		}
	}
	f.Values = s
	return f, nil
}

// speed replays the methods that constants of s change.
func (l *lab) speed(ctx context.Context, s *constants.Set) (speeds, error) {
	return l.replay(ctx, s, greedy, fused(s), nil)
}

// change is by how much methods of a, in the mean over prompts, are faster than those of b, as a share, and the
// standard error of that. The curves and temperatures of a prompt are no independent evidence, so they count once.
func change(a speeds, of []method, b speeds, than []method) (mean, deviation float64) {
	by := map[prompt][]float64{}
	var order []prompt
	for _, at := range a.sorted() {
		p := at
		p.curve, p.temperature = "", 0
		if by[p] == nil {
			order = append(order, p)
		}
		for i, m := range of {
			by[p] = append(by[p], math.Log(a[at][m]/b[at][than[i]]))
		}
	}
	n := float64(len(order))
	var sum, square float64
	for _, p := range order {
		x := 0.0
		for _, y := range by[p] {
			x += y / float64(len(by[p]))
		}
		sum, square = sum+x, square+x*x
	}
	mean = sum / n
	return mean, math.Sqrt(max(square/n-mean*mean, 0) / max(n-1, 1))
}

// ranks counts how often the next token is the r-th child of the root, for as many ranks as n.
func (l *lab) ranks(ctx context.Context, spec, draft string, n int) ([]float64, error) {
	even := make([]float64, n) // siblings are taken in order of rank if all are as likely
	for i := range even {
		even[i] = math.Floor(1000/float64(n)) / 1000
	}
	m := method{fmt.Sprintf(spec, n+1, constants.List(even)), draft}
	tried, kept := make([]int, n), make([]int, n)
	_, err := l.replay(ctx, nil, greedy, []method{m}, func(x method, s *infer.Stats) {
		if x.spec == bench.Baseline {
			return
		}
		for r := 1; r < min(len(s.Rank), n+1); r++ {
			tried[r-1], kept[r-1] = tried[r-1]+s.Rank[r].Tried, kept[r-1]+s.Rank[r].Kept
		}
	})
	if err != nil {
		return nil, err
	}
	out := make([]float64, n)
	for r := range out {
		out[r] = math.Round(1000*float64(kept[r])/float64(max(tried[0], 1))) / 1000
		if r > 0 {
			out[r] = min(out[r], out[r-1]) // chance alone has a later rank above an earlier one
		}
	}
	return out, nil
}

func (f *fitting) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d prompts. Speed-up in decoding, geometric mean over prompts, curves and trees.\n\n| constant | value | speed-up | change | |\n|---|---|---|---|---|\n", f.Prompts)
	for _, t := range f.Trials {
		kept := ""
		if t.Kept {
			kept = "kept"
		}
		fmt.Fprintf(&b, "| %s | %.3g | %.3f | %+.1f%% ± %.1f%% | %s |\n", t.Name, t.Value, t.Speed, 100*t.Change, 100*t.Error, kept)
	}
	fmt.Fprintf(&b, "\nrecycle: accept=%s\nsequoia: accept=%s\n", constants.List(f.Values.Recycle), constants.List(f.Values.Sequoia))
	return b.String()
}
