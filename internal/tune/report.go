package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"talf/infer/draft/constants"
)

// single are the methods of which the best of each prompt is the measure of regret.
var single = []method{
	{"pld", none},
	{"suffix", none},
	{"goose:N=8", none},
	{"goose", none},
	{"recycle:rows,N=16", none},
	{"recycle:rows", none},
	{"static:chain-4", lm},
	{"sequoia:N=16", lm},
	{"salf:N=8,B=4,th=0.3", lm},
	{"salf:paper", lm},
	{"beam:paper", lm},
	{"optimal:paper", lm},
	{"fuse:N=12,head=off", none},
	{"fuse:N=12", lm},
	{"fuse", lm},
}

// judged are the methods whose regret is reported: those that choose for themselves, and their parts.
var judged = []method{{"salf", lm}, {"beam", lm}, {"optimal", lm}, {"auto", lm}, {"auto", none}, {"fuse:N=12", lm}, {"fuse", lm}}

// A sensitivity is the change of speed if a constant is halved or doubled.
type sensitivity struct {
	Name  string  `json:"constant"`
	Value float64 `json:"value"`
	Half  float64 `json:"half"` // speed with half of it, over that with it
	Twice float64 `json:"twice"`
}

// A regret says how a method compares with the best single method of each prompt.
type regret struct {
	Recording   string  `json:"recording"`
	Curve       string  `json:"curve"`
	Temperature float64 `json:"temperature"`
	Method      string  `json:"method"`
	SpeedUp     float64 `json:"speed_up"`   // geometric mean over prompts
	OfBest      float64 `json:"of_best"`    // speed over that of the prompt's best single method, likewise
	Worst       float64 `json:"worst"`      // speed-up on the slowest prompt
	BestFixed   string  `json:"best_fixed"` // the single method that is best over all prompts
	Fixed       float64 `json:"best_fixed_speed_up"`
}

type report struct {
	Recordings    []string      `json:"recordings"`
	Prompts       int           `json:"prompts"`
	Sensitivities []sensitivity `json:"sensitivities"`
	Regrets       []regret      `json:"regrets"`
}

func (l *lab) report(ctx context.Context, s *constants.Set) (*report, error) {
	r := &report{Recordings: l.names, Prompts: l.prompts()}
	base, err := l.speed(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, k := range knobs {
		x := sensitivity{Name: k.name, Value: *k.of(s)}
		for by, to := range map[float64]*float64{0.5: &x.Half, 2: &x.Twice} {
			c := *s
			*k.of(&c) *= by
			got, err := l.speed(ctx, &c)
			if err != nil {
				return nil, err
			}
			*to = got.score(fused(&c)...) / base.score(fused(s)...)
		}
		r.Sensitivities = append(r.Sensitivities, x)
	}
	for _, k := range []struct {
		name, spec string
		draft      string
		of         []float64
	}{{"recycle accept", "recycle:rows,accept=", none, s.Recycle}, {"sequoia accept", "sequoia:N=16,accept=", lm, s.Sequoia}} {
		x := sensitivity{Name: k.name, Value: k.of[0]}
		as := func(by float64) (float64, error) {
			m := method{k.spec + constants.List(scaled(k.of, by)), k.draft}
			got, err := l.replay(ctx, s, greedy, []method{m}, nil)
			return got.score(m), err
		}
		one, err := as(1)
		if err != nil {
			return nil, err
		}
		if x.Half, err = as(0.5); err != nil {
			return nil, err
		}
		if x.Twice, err = as(2); err != nil {
			return nil, err
		}
		x.Half, x.Twice = x.Half/one, x.Twice/one
		r.Sensitivities = append(r.Sensitivities, x)
	}
	got, err := l.replay(ctx, s, greedy, distinct(single, judged), nil)
	if err != nil {
		return nil, err
	}
	for _, name := range l.names {
		for _, c := range l.curves {
			r.Regrets = append(r.Regrets, got.regrets(name, c.Name)...)
		}
	}
	return r, nil
}

// scaled multiplies probabilities, whose sum stays at most 1.
func scaled(all []float64, by float64) []float64 {
	sum := 0.0
	for _, x := range all {
		sum += x
	}
	by = min(by, 0.999/sum)
	out := make([]float64, len(all))
	for i, x := range all {
		out[i] = math.Floor(x*by*1e4) / 1e4
	}
	return out
}

func distinct(lists ...[]method) (out []method) {
	seen := map[method]bool{}
	for _, l := range lists {
		for _, m := range l {
			if !seen[m] {
				seen[m] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// regrets compares on one recording in the time of one curve.
func (s speeds) regrets(recording, curve string) (out []regret) {
	part := s.where(func(at prompt) bool { return at.recording == recording && at.curve == curve })
	for _, m := range judged {
		x := part.regret(m, single)
		x.Recording, x.Curve = recording, curve
		out = append(out, x)
	}
	return out
}

// regret compares m with single methods.
func (s speeds) regret(m method, single []method) regret {
	fixed := single[0]
	for _, y := range single {
		if s.score(y) > s.score(fixed) {
			fixed = y
		}
	}
	x := regret{Method: m.String(), SpeedUp: s.score(m), Worst: math.Inf(1), BestFixed: fixed.String(), Fixed: s.score(fixed)}
	sum := 0.0
	for _, at := range s.sorted() {
		best := 1.0 // plain decoding is a method too
		for _, y := range single {
			best = max(best, s[at][y])
		}
		sum += math.Log(s[at][m] / best)
		x.Worst = min(x.Worst, s[at][m])
	}
	x.OfBest = math.Exp(sum / float64(len(s)))
	return x
}

func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d prompts: %s.\n\n| constant | value | half | twice |\n|---|---|---|---|\n", r.Prompts, strings.Join(r.Recordings, ", "))
	for _, x := range r.Sensitivities {
		fmt.Fprintf(&b, "| %s | %.3g | %+.1f%% | %+.1f%% |\n", x.Name, x.Value, 100*(x.Half-1), 100*(x.Twice-1))
	}
	fmt.Fprintf(&b, "\n| prompts | costs | method | speed-up | of the best of each prompt | slowest prompt | best single method |\n|---|---|---|---|---|---|---|\n")
	for _, x := range r.Regrets {
		fmt.Fprintf(&b, "| %s | %s | `%s` | %.2f | %.2f | %.2f | `%s` %.2f |\n", x.Recording, x.Curve, x.Method, x.SpeedUp, x.OfBest, x.Worst, x.BestFixed, x.Fixed)
	}
	return b.String()
}

// show prints x as a table or as JSON.
func show(w io.Writer, x fmt.Stringer, asJSON bool) error {
	if !asJSON {
		_, err := io.WriteString(w, x.String())
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(x)
}
