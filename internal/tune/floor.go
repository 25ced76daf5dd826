package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/bench/replay"
	"talf/infer/draft/constants"
)

// A bill is what an answer won and what it paid over plain decoding, as shares of the time that plain
// decoding takes. Drafters' own work takes no time in a replay.
type bill struct {
	Won     float64 `json:"won"`     // passes that drafts saved
	Rows    float64 `json:"rows"`    // what passes with drafts cost more than plain ones
	Drafts  float64 `json:"drafts"`  // passes of the draft model, but for
	Reading float64 `json:"reading"` // the tokens that it read beyond those of a draft
}

func (b *bill) add(o bill) {
	b.Won, b.Rows, b.Drafts, b.Reading = b.Won+o.Won, b.Rows+o.Rows, b.Drafts+o.Drafts, b.Reading+o.Reading
}

// speed is that over plain decoding, if nothing else takes time.
func (b bill) speed() float64 { return 1 / (1 + b.Rows + b.Drafts + b.Reading - b.Won) }

// A floor is how slow auto becomes, and on what, with one draft model at one temperature in the time of one curve.
type floor struct {
	Temperature float64 `json:"temperature"`
	Costs       string  `json:"costs"`
	Draft       string  `json:"draft"`
	Cold        bool    `json:"cold"` // every answer begins without what earlier ones taught

	Answers int     `json:"answers"`
	Mean    float64 `json:"mean"`    // geometric mean of speed-ups
	Slowest float64 `json:"slowest"` // speed-up of the slowest answer, which paid Worst
	Below   int     `json:"below"`   // answers below tolerated
	Early   int     `json:"early"`   // of these, those that ended before as many tokens as the first answer is expected to have
	All     bill    `json:"all"`     // mean over answers
	Worst   bill    `json:"worst"`
}

// A ledger counts what its source reads.
type ledger struct {
	infer.Postponer
	ch      *replay.Channel
	reading float64 // seconds
}

func (s *ledger) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	rows, err := s.Postponer.Rows(ctx, asks)
	beside := s.Read()
	for _, a := range asks {
		if a.From == 0 {
			beside-- // the root's row is an answer
		}
	}
	if beside > 0 {
		s.reading += s.ch.Seconds(len(rows)+beside) - s.ch.Seconds(len(rows))
	}
	return rows, err
}

// floors replays auto, warm and cold, with every draft model and without one.
func (l *lab) floors(ctx context.Context, s *constants.Set) (out floors, err error) {
	at := map[floor]int{} // by the fields that name a cell
	for _, r := range l.all {
		kinds := []string{none}
		for _, c := range r.Channels[1:] {
			if c.LM {
				kinds = append(kinds, lm)
			} else {
				kinds = append(kinds, head)
			}
		}
		for _, c := range l.curves {
			c.set(r)
			for i, draft := range kinds {
				err := l.bills(ctx, r, i, s, func(x *bench.Measurement, cold bool, b bill) {
					key := floor{Temperature: x.Temperature, Costs: c.Name, Draft: draft, Cold: cold}
					n, ok := at[key]
					if !ok {
						n = len(out)
						at[key] = n
						key.Slowest = math.Inf(1)
						out = append(out, key)
					}
					out[n].take(b, x.Stats.Tokens)
				})
				if err != nil {
					return nil, err
				}
			}
		}
	}
	for i := range out {
		f := &out[i]
		n := float64(f.Answers)
		f.Mean = math.Exp(f.Mean / n)
		f.All = bill{f.All.Won / n, f.All.Rows / n, f.All.Drafts / n, f.All.Reading / n}
	}
	return out, nil
}

// usual is how many tokens auto expects of a first answer.
const usual = 48

func (f *floor) take(b bill, tokens int) {
	f.Answers++
	f.Mean += math.Log(b.speed())
	f.All.add(b)
	if b.speed() < f.Slowest {
		f.Slowest, f.Worst = b.speed(), b
	}
	if b.speed() < tolerated {
		f.Below++
		if tokens < usual {
			f.Early++
		}
	}
}

// bills replays auto with the recording's draft model k, 0 for none.
func (l *lab) bills(ctx context.Context, r *replay.Recording, k int, s *constants.Set, keep func(x *bench.Measurement, cold bool, b bill)) error {
	player := replay.New(r)
	if l.busy {
		player.Disturb(disturbance(rand.New(rand.NewPCG(1, 0))))
	}
	c := r.Config(l.temperatures(), 0)
	c.Constants = s
	warm := bench.Method{Spec: "auto", Label: "warm"}
	count := new(ledger)
	if k > 0 {
		from := player.Sources()[k-1]
		source, ok := from.Source.(infer.Postponer)
		if !ok {
			return fmt.Errorf("draft model %s reads everything at once", from.Name)
		}
		*count = ledger{Postponer: source, ch: &r.Channels[k]}
		warm.Source, warm.SourceName = count, from.Name
	}
	cold := warm
	cold.Cold, cold.Label = true, "cold"
	c.Methods = []bench.Method{warm, cold}
	read := map[string]float64{} // seconds by key
	took := map[string]replay.Took{}
	c.Around = func(x *bench.Measurement, decode func() error) error {
		count.reading = 0
		err := decode()
		read[x.Key], took[x.Key] = count.reading, player.Took()
		return err
	}
	var plain infer.Stats // of the prompt, which comes first
	c.Keep = func(x *bench.Measurement) error {
		if x.Method == bench.Baseline {
			plain = x.Stats
			return nil
		}
		if plain.Verify == 0 {
			return nil // an answer of one token has no decoding
		}
		one := r.Channels[0].Seconds(1)
		all, reading, took := one*float64(plain.Passes), read[x.Key], took[x.Key]
		keep(x, x.Method == "cold", bill{
			Won:     float64(x.Stats.Tokens-x.Stats.Passes) * one / all,
			Rows:    (took.Target - float64(x.Stats.Passes)*one) / all,
			Drafts:  (took.Draft - reading) / all,
			Reading: reading / all,
		})
		return nil
	}
	_, err := player.Run(ctx, c)
	return err
}

// disturbance returns what a clock shows for a pass on a machine that others use, too: its speed changes
// every now and then by up to a factor of three, measures differ by 5%, and one of thirty passes is interrupted.
func disturbance(rng *rand.Rand) func(seconds float64) float64 {
	speed, left := 1.0, 0.0 // how long it stays so
	return func(seconds float64) float64 {
		if left -= seconds; left < 0 {
			speed, left = 1+2*rng.Float64()*rng.Float64(), 0.05*rng.ExpFloat64()
		}
		x := seconds * speed * (0.95 + 0.1*rng.Float64())
		if rng.IntN(30) == 0 {
			x += 4e-3 * rng.ExpFloat64()
		}
		return x
	}
}

// floors prints as a table.
type floors []floor

func (all floors) String() string {
	var b strings.Builder
	b.WriteString("| T | costs | draft model | | answers | mean | slowest | below 0.97 | of these short | won | rows | drafts | reading | slowest: won | rows | drafts | reading |\n")
	b.WriteString(strings.Repeat("|---", 17) + "|\n")
	for _, f := range all {
		learnt, draft := "warm", f.Draft
		if f.Cold {
			learnt = "cold"
		}
		if draft == none {
			draft = "none"
		}
		fmt.Fprintf(&b, "| %v | %s | %s | %s | %d | %.3f | %.3f | %d | %d |", f.Temperature, f.Costs, draft, learnt, f.Answers, f.Mean, f.Slowest, f.Below, f.Early)
		for _, x := range []bill{f.All, f.Worst} {
			fmt.Fprintf(&b, " %.1f%% | %.1f%% | %.1f%% | %.1f%% |", 100*x.Won, 100*x.Rows, 100*x.Drafts, 100*x.Reading)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
