package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"talf/infer/draft/constants"
)

// A lever is a constant of auto's own. They are not fitted: most trade the mean over prompts against
// the slowest of them.
type lever struct {
	name string // in package chooser
	of   string // type of a variable in its place
	by   func(x, factor float64) float64
	what string
}

// levers are those that simulated time can tell something about. In it drafters take no time and measurements
// have no noise, so the constants that deal with these are missing.
var levers = []lever{
	{"share", "float64", amount, "credit, share of the expected answer"},
	{"priorLength", "float64", amount, "tokens of an answer before any is known"},
	{"lendShare", "float64", amount, "most that is lent for reading, share of prompt and answer"},
	{"sound", "float64", probability, "requests that must have gained for reading to be lent"},
	{"fortuneFade", "float64", memory, "weight that a request's gain keeps with the next one with drafts"},
	{"idleFade", "float64", memory, "and with each request"},
	{"boldness", "float64", probability, "share of the funds that a round may risk on average"},
	{"utmost", "float64", probability, "and at worst"},
	{"newcomer", "int", count, "rounds of a first trial"},
	{"doubted", "float64", amount, "standard deviations by which a draft model may do better in a request than in others"},
	{"recent", "float64", memory, "weight that a round keeps with the next one of its request"},
	{"remembered", "float64", memory, "and with the next one of any request"},
	{"readFade", "float64", memory, "weight that a measured price of reading keeps with the next"},
	{"priorRounds", "float64", amount, "weight of other requests' gain by a draft model, in rounds"},
	{"priorTokens", "float64", amount, "weight of a plain round's time per token, in tokens"},
	{"priorChildren", "float64", amount, "weight of other requests' acceptance, in children"},
	{"firstLoss", "float64", amount, "assumed cost of a first round with a draft model"},
	{"firstDraft", "float64", amount, "assumed cost of a draft pass"},
	{"firstRead", "float64", amount, "assumed cost of reading a token, in that of the target's prompt passes"},
	{"believed", "float64", amount, "times what was expected that a first measure of a draft model can say"},
	{"newRow", "float64", amount, "what a row of a new size may cost more than expected"},
	{"spread", "float64", amount, "rounds in which reading is to pay"},
	{"leastGain", "float64", amount, "smallest gain for which a tree is drafted"},
	{"quiet", "int", count, "idle rounds after which candidates are asked less often"},
	{"plainAfter", "int", count, "rounds with drafts after which one goes without"},
}

func amount(x, factor float64) float64 { return x * factor }

// probability is at most 1.
func probability(x, factor float64) float64 { return min(x*factor, 1) }

func count(x, factor float64) float64 { return max(1, math.Round(x*factor)) }

// memory is a weight that a sample keeps with each later one, so that 1/(1-x) samples count; factor changes their
// number.
func memory(x, factor float64) float64 { return 1 - (1-x)/factor }

// autos are the ways in which auto's constants are judged.
var autos = []method{{"auto", head}, {"auto", lm}}

// A cell is what auto does with one draft model at one temperature in the time of one curve.
type cell struct {
	Temperature float64 `json:"temperature"`
	Costs       string  `json:"costs"`
	Draft       string  `json:"draft"`
	Change      float64 `json:"change"`  // of the logarithm of speed, mean over prompts
	Slowest     float64 `json:"slowest"` // speed-up of the slowest prompt
}

// An effect is what another value of a constant does.
type effect struct {
	Name    string  `json:"constant"`
	What    string  `json:"what"`
	Value   float64 `json:"value"` // in use
	Tried   float64 `json:"tried"`
	Change  float64 `json:"change"`  // of the logarithm of speed, mean over prompts and cells
	Error   float64 `json:"error"`   // standard error over prompts
	Slowest float64 `json:"slowest"` // speed-up of the slowest answer in any cell
	Below   int     `json:"below"`   // answers below tolerated
	Cells   []cell  `json:"cells"`
}

// tolerated is the speed relative to plain decoding below which an answer counts as slower.
const tolerated = 0.97

// A study is what auto's constants do, and its regret.
type study struct {
	Recordings []string `json:"recordings"`
	Prompts    int      `json:"prompts"`
	Texts      string   `json:"texts"` // digest of the answers
	Answers    int      `json:"answers"`
	Slowest    float64  `json:"slowest"` // with the values in use, as in effect
	Below      int      `json:"below"`
	Effects    []effect `json:"effects"`
	Regrets    []regret `json:"regrets"`
}

// auto halves and doubles each of the constants in turn, and reports the regret with the values in use.
func (l *lab) auto(ctx context.Context, s *constants.Set, vary []setting) (*study, error) {
	r := &study{Recordings: l.names, Prompts: l.prompts(), Texts: l.texts()}
	temperatures := l.temperatures()
	base, err := l.replay(ctx, s, temperatures, autos, nil)
	if err != nil {
		return nil, err
	}
	var all effect
	all.judge(base, base)
	r.Answers, r.Slowest, r.Below = len(base)*len(autos), all.Slowest, all.Below
	fmt.Fprintf(os.Stderr, "%d answers, slowest %.3f, %d below %v\n", r.Answers, r.Slowest, r.Below, tolerated)
	for _, v := range vary {
		was := v.value()
		for _, factor := range factors {
			x := effect{Name: v.name, What: v.what, Value: was, Tried: v.by(was, factor)}
			v.set(x.Tried)
			got, err := l.replay(ctx, s, temperatures, autos, nil)
			v.set(was)
			if err != nil {
				return nil, fmt.Errorf("%s=%v: %w", v.name, x.Tried, err)
			}
			x.judge(got, base)
			r.Effects = append(r.Effects, x)
			fmt.Fprintf(os.Stderr, "%s=%.4g: %+.4f ± %.4f, slowest %.3f, %d below\n", x.Name, x.Tried, x.Change, x.Error, x.Slowest, x.Below)
		}
	}
	return r, l.regretOfAuto(ctx, s, r)
}

// judge compares auto's speeds with those of other constants, before.
func (x *effect) judge(got, before speeds) {
	x.Change, x.Error = change(got, autos, before, autos)
	x.Slowest = math.Inf(1)
	cells := map[cell]int{}
	var prompts []int
	for _, at := range got.sorted() {
		for _, m := range autos {
			key := cell{Temperature: at.temperature, Costs: at.curve, Draft: m.draft}
			i, ok := cells[key]
			if !ok {
				i = len(x.Cells)
				cells[key], prompts = i, append(prompts, 0)
				key.Slowest = math.Inf(1)
				x.Cells = append(x.Cells, key)
			}
			speed, c := got[at][m], &x.Cells[i]
			c.Change += math.Log(speed / before[at][m])
			c.Slowest = min(c.Slowest, speed)
			prompts[i]++
			if speed < tolerated {
				x.Below++
			}
		}
	}
	for i := range x.Cells {
		c := &x.Cells[i]
		c.Change /= float64(prompts[i])
		x.Slowest = min(x.Slowest, c.Slowest)
	}
}

// regretOfAuto compares auto with single methods, of which those that ask a draft model ask the same one.
func (l *lab) regretOfAuto(ctx context.Context, s *constants.Set, r *study) error {
	judged := append(slices.Clone(autos), method{"auto", none})
	rivals := map[method][]method{}
	all := judged
	for _, m := range judged {
		for _, x := range single {
			if x.draft != none {
				x.draft = m.draft
				if m.draft == none {
					continue
				}
			}
			rivals[m] = append(rivals[m], x)
		}
		all = distinct(all, rivals[m])
	}
	for _, t := range l.temperatures() {
		got, err := l.replay(ctx, s, []float64{t}, all, nil)
		if err != nil {
			return err
		}
		for _, c := range l.curves {
			for _, m := range judged {
				x := got.where(func(at prompt) bool { return at.curve == c.Name }).regret(m, rivals[m])
				x.Recording, x.Curve, x.Temperature = strings.Join(l.names, ", "), c.Name, t
				r.Regrets = append(r.Regrets, x)
			}
		}
	}
	return nil
}

// temperatures lists those of the recordings.
func (l *lab) temperatures() (all []float64) {
	for _, r := range l.all {
		for _, t := range r.Texts {
			all = append(all, t.Temperature)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// mean is the mean change over some cells.
func (x *effect) mean(in func(c *cell) bool) float64 {
	sum, n := 0.0, 0
	for i := range x.Cells {
		if c := &x.Cells[i]; in(c) {
			sum, n = sum+c.Change, n+1
		}
	}
	return sum / float64(max(n, 1))
}

func (r *study) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d prompts: %s; answers %s.\n%d answers of auto, the slowest at %.3f of plain decoding, %d below %.2f.\n",
		r.Prompts, strings.Join(r.Recordings, ", "), r.Texts, r.Answers, r.Slowest, r.Below, tolerated)
	type column struct {
		name string
		in   func(c *cell) bool
	}
	var columns []column
	add := func(name string, in func(c *cell) bool) {
		if !slices.ContainsFunc(columns, func(c column) bool { return c.name == name }) {
			columns = append(columns, column{name, in})
		}
	}
	if len(r.Effects) > 0 {
		for _, c := range r.Effects[0].Cells {
			add(fmt.Sprintf("%s, T=%v", c.Draft, c.Temperature), func(x *cell) bool { return x.Draft == c.Draft && x.Temperature == c.Temperature })
		}
		for _, c := range r.Effects[0].Cells {
			add(c.Costs, func(x *cell) bool { return x.Costs == c.Costs })
		}
		b.WriteString("\n| constant | value | tried | change |")
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", c.name)
		}
		fmt.Fprintf(&b, " slowest prompt | below %.2f |\n%s|\n", tolerated, strings.Repeat("|---", 6+len(columns)))
	}
	for i := range r.Effects {
		x := &r.Effects[i]
		name := ""
		if i == 0 || r.Effects[i-1].Name != x.Name {
			name = fmt.Sprintf("`%s`, %s | %.4g", x.Name, x.What, x.Value)
		} else {
			name = " | "
		}
		fmt.Fprintf(&b, "| %s | %.4g | %+.1f%% ± %.1f%% |", name, x.Tried, 100*x.Change, 100*x.Error)
		for _, c := range columns {
			fmt.Fprintf(&b, " %+.1f%% |", 100*x.mean(c.in))
		}
		fmt.Fprintf(&b, " %.3f | %d |\n", x.Slowest, x.Below)
	}
	b.WriteString("\n| T | costs | method | speed-up | of the best of each prompt | slowest prompt | best single method |\n|---|---|---|---|---|---|---|\n")
	for _, x := range r.Regrets {
		fmt.Fprintf(&b, "| %v | %s | `%s` | %.2f | %.2f | %.2f | `%s` %.2f |\n", x.Temperature, x.Curve, x.Method, x.SpeedUp, x.OfBest, x.Worst, x.BestFixed, x.Fixed)
	}
	return b.String()
}
