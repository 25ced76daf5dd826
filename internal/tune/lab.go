package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/bench/replay"
	"talf/infer/draft/constants"
	"talf/internal/limits"
)

// A curve is what passes cost by their rows, in plain passes.
type curve struct {
	Name   string          `json:"name"`
	Origin string          `json:"origin"`
	Target map[int]float64 `json:"target"`
	Draft  map[int]float64 `json:"draft"`
}

// costs returns c as a recording has it: a plain pass takes a millisecond.
func costs(c map[int]float64) []replay.Cost {
	var out []replay.Cost
	for rows, x := range c {
		out = append(out, replay.Cost{Rows: rows, Seconds: x / 1e3, Passes: 1})
	}
	return out
}

// set gives a recording's passes the times of c.
func (c *curve) set(r *replay.Recording) {
	for k := range r.Channels {
		by := c.Draft
		if k == 0 {
			by = c.Target
		}
		r.Channels[k].SetCosts(costs(by))
	}
}

// A lab replays recordings in the time of curves.
type lab struct {
	names  []string
	all    []*replay.Recording
	curves []curve
	costs  string // digest of the files of curves
	busy   bool   // clocks show what they would on a machine that others use
}

// open reads recordings, and files of cost curves that are joined by commas.
func open(files []string, curves string) (*lab, error) {
	l := &lab{}
	sum := sha256.New()
	for path := range strings.SplitSeq(curves, ",") {
		b, err := limits.ReadFile(path, 1<<20)
		if err != nil {
			return nil, err
		}
		var more []curve
		if err := json.Unmarshal(b, &more); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		sum.Write(b)
		l.curves = append(l.curves, more...)
	}
	l.costs = hex.EncodeToString(sum.Sum(nil))
	for _, c := range l.curves {
		if len(c.Target) == 0 || len(c.Draft) == 0 {
			return nil, fmt.Errorf("%s: curve %q: want target and draft", curves, c.Name)
		}
	}
	for _, f := range files {
		r, err := replay.Open(f)
		if err != nil {
			return nil, err
		}
		l.names, l.all = append(l.names, strings.TrimSuffix(filepath.Base(f), ".rec")), append(l.all, r)
	}
	if l.prompts() == 0 {
		return nil, fmt.Errorf("%s: no prompts besides those for warm-up", strings.Join(files, ", "))
	}
	return l, nil
}

// prompts counts the prompts that are not for warm-up.
func (l *lab) prompts() (n int) {
	for _, r := range l.all {
		for _, s := range r.Sets() {
			n += max(0, len(s.Prompts)-r.Warmup)
		}
	}
	return n
}

// texts returns a digest of the answers.
func (l *lab) texts() string {
	h := sha256.New()
	for _, r := range l.all {
		for _, t := range r.Texts {
			fmt.Fprintf(h, "%q %q %v %d %d\n", t.Set, t.Prompt, t.Temperature, t.Seed, t.Start)
			_ = binary.Write(h, binary.LittleEndian, t.Tokens) // hashes take everything
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A method is what is replayed: a specification, with a draft model of the recording if it asks one.
type method struct {
	spec  string
	draft string // lm, head or none
}

const (
	none = ""
	lm   = "LM"
	head = "head"
)

func (m method) String() string {
	if m.draft != none {
		return m.spec + ", " + m.draft
	}
	return m.spec
}

// A prompt is one answer in the time of one curve.
type prompt struct {
	recording, curve string
	temperature      float64
	set, name        string
}

// speeds are speed-ups of decoding, by prompt and method.
type speeds map[prompt]map[method]float64

// greedy is the temperature that constants are fitted at.
var greedy = []float64{0}

// replay runs methods on all recordings and curves at some temperatures, with constants s.
func (l *lab) replay(ctx context.Context, s *constants.Set, temperatures []float64, methods []method, each func(m method, x *infer.Stats)) (speeds, error) {
	out := speeds{}
	for i, r := range l.all {
		for _, c := range l.curves {
			c.set(r)
			if err := l.one(ctx, r, s, temperatures, methods, func(m method, x *bench.Measurement) {
				at := prompt{l.names[i], c.Name, x.Temperature, x.Set, x.Prompt}
				if out[at] == nil {
					out[at] = map[method]float64{}
				}
				out[at][m] = x.Stats.TPOT().Seconds()
				if each != nil {
					each(m, &x.Stats)
				}
			}); err != nil {
				return nil, err
			}
		}
	}
	for at, by := range out {
		plain := by[method{spec: bench.Baseline}]
		for m, t := range by {
			by[m] = plain / t
		}
		if plain == 0 { // an answer of one token has no decoding
			delete(out, at)
		}
	}
	return out, nil
}

// source returns the recording's first draft model of the kind that a method asks.
func source(player *replay.Replay, kind string) (bench.Source, bool) {
	for _, s := range player.Sources() {
		if s.LM == (kind == lm) {
			return s, true
		}
	}
	return bench.Source{}, false
}

func (l *lab) one(ctx context.Context, r *replay.Recording, s *constants.Set, temperatures []float64, methods []method, keep func(m method, x *bench.Measurement)) error {
	player := replay.New(r)
	c := r.Config(temperatures, 0)
	c.Constants = s
	byTitle := map[string]method{bench.Baseline: {spec: bench.Baseline}}
	for _, m := range methods {
		x := bench.Method{Spec: m.spec, Label: m.String()}
		if m.draft != none {
			from, ok := source(player, m.draft)
			if !ok {
				return fmt.Errorf("%s: the recording has no such draft model", m)
			}
			x.Source, x.SourceName = from.Source, from.Name
		}
		c.Methods = append(c.Methods, x)
		byTitle[x.Title()] = m
	}
	c.Keep = func(x *bench.Measurement) error {
		m, ok := byTitle[x.Method]
		if !ok {
			return fmt.Errorf("a measurement of %q, which was not asked for", x.Method)
		}
		keep(m, x)
		return nil
	}
	_, err := player.Run(ctx, c)
	return err
}

// score is the geometric mean of a method's speed-ups over all prompts and curves.
func (s speeds) score(methods ...method) float64 {
	sum, n := 0.0, 0
	for _, at := range s.sorted() {
		for _, m := range methods {
			sum += math.Log(s[at][m])
			n++
		}
	}
	return math.Exp(sum / float64(max(n, 1)))
}

// where returns the part whose prompts are of a kind.
func (s speeds) where(kind func(at prompt) bool) speeds {
	part := speeds{}
	for at, by := range s {
		if kind(at) {
			part[at] = by
		}
	}
	return part
}

// sorted lists the prompts in one order, so that sums do not depend on that of maps.
func (s speeds) sorted() []prompt {
	var all []prompt
	for at := range s {
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b prompt) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	return all
}
