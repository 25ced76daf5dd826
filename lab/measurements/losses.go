package measurements

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"talf/lab/measurements/results"
	"talf/lab/measurements/tables"
)

// The losses that are compared. Each continues the same first stage for as much processor time as
// budgetSteps steps of pacer take.
var lossNames = []string{"eagle", "hass", "talf", "eal"}

const (
	pacer       = "talf"
	budgetSteps = 60
	lossSeeds   = 3 // each has a first stage of its own
	lossRows    = 512
	lossRanks   = 5
	// paceRounds is how often the losses take turns in being timed, paceBase and probes how many
	// steps are taken: the fewest, and those of each loss beyond them, about the same time of each.
	paceRounds = 3
	paceBase   = 2
)

var probes = map[string]int{"eagle": 24, "hass": 12, "talf": 6, "eal": 6}

// differences are the pairs of losses that the tables compare.
var differences = [][2]string{{"eal", "hass"}, {"eal", "talf"}, {"talf", "hass"}, {"talf", "eagle"}}

// lossMethods are those whose acceptance is measured. Their trees do not depend on the machine.
var lossMethods = []string{"optimal:paper", "salf:paper"}

// A course is a target, and how heads are trained for it.
type course struct {
	name   string // of its steps and folder
	target string // the model's folder
	labels *step
	sets   []string
	limit  int // prompts of each set
	first  int // steps of the first stage
	lr     [2]string
	text   string // what the heads are trained on
}

var large = &course{
	name: "losses", target: "gsm10m", labels: fewLabels, sets: []string{"problems", "stories"}, limit: 8,
	first: 400, lr: [2]string{"3e-3", "1.5e-3"},
	text: fmt.Sprintf("the target's greedy answers to %d training prompts of six kinds", fewAnswers),
}

var small = &course{
	name: "losses-quickstart", target: "quickstart-target", labels: textLabels, sets: []string{"quickstart"}, limit: 24,
	first: 400, lr: [2]string{"6e-3", "3e-3"},
	text: "the text of quickstart, which the target did not write, but was trained on the like of",
}

// dir of what was trained and measured with a seed.
func (c *course) dir(l *lab, seed int, elem ...string) string {
	return l.path(append([]string{c.name, fmt.Sprint(seed)}, elem...)...)
}

// args trains a head into a folder: one that is new, or that continues from.
func (c *course) args(l *lab, loss, from, to, lr string, steps, seed int) []string {
	args := []string{"train", "--model", l.path(c.target), "--data", l.path(c.labels.name), "--out", to}
	if from != "" {
		args = append(args, "--init", from)
	}
	return append(args, "--loss", loss, "--steps", fmt.Sprint(steps), "--rows", fmt.Sprint(lossRows), "--lr", lr, "--min-lr", "0.05",
		"--warmup", fmt.Sprint(max(steps/10, 1)), "--seed", fmt.Sprint(seed), "--eval-every", "0", "--eval-seqs", "8", "--save-every", "0")
}

// paced returns the step that times what a step of training costs with each loss.
func (c *course) paced() *step {
	return &step{
		name: c.name + "-pace", of: fmt.Sprint(lossNames, probes, paceBase, paceRounds, lossRows), code: head.code, after: []*step{c.labels},
		run: func(ctx context.Context, l *lab) error {
			cost, err := c.pace(ctx, l)
			if err != nil {
				return err
			}
			b, err := json.Marshal(cost)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(l.root, l.path(c.name+"-pace.json")), append(b, '\n'), 0o644)
		},
	}
}

// begun returns the step that trains the first stage of a seed.
func (c *course) begun(seed int) *step {
	return &step{
		name: fmt.Sprintf("%s-first-%d", c.name, seed), of: fmt.Sprint(c.first, lossRows, c.lr[0]), code: head.code, after: []*step{c.labels},
		run: func(ctx context.Context, l *lab) error {
			if err := os.RemoveAll(filepath.Join(l.root, c.dir(l, seed))); err != nil {
				return err
			}
			_, err := l.run(ctx, c.args(l, "eagle", "", c.dir(l, seed, "first"), c.lr[0], l.amount(c.first), seed)...)
			return err
		},
	}
}

// ended returns the step that trains a head with each loss, and answers the prompts with them.
func (c *course) ended(seed int) *step {
	return &step{
		name: fmt.Sprintf("%s-%d", c.name, seed), of: fmt.Sprint(lossNames, budgetSteps, c.lr[1], lossMethods, lossRanks, c.sets, c.limit),
		code: append(slices.Clone(head.code), "infer", "internal/demo"), after: []*step{c.paced(), c.begun(seed)},
		run: func(ctx context.Context, l *lab) error {
			cost, err := c.costs(l)
			if err != nil {
				return err
			}
			var heads []string
			for _, loss := range lossNames {
				to := c.dir(l, seed, loss)
				if err := os.RemoveAll(filepath.Join(l.root, to)); err != nil {
					return err
				}
				if _, err := l.run(ctx, c.args(l, loss, c.dir(l, seed, "first"), to, c.lr[1], l.amount(stepsOf(cost[loss])), seed)...); err != nil {
					return err
				}
				heads = append(heads, "--head", loss+"="+to)
			}
			log := c.dir(l, seed, "answers.jsonl")
			if err := os.RemoveAll(filepath.Join(l.root, log)); err != nil { // it would be continued
				return err
			}
			var sets []string
			for _, s := range c.sets {
				sets = append(sets, "--prompts", s+"="+l.path("prompts", s+".jsonl"))
			}
			_, err = l.benchOn(ctx, c.target, c.name+"/"+fmt.Sprint(seed)+"/bench", slices.Concat(heads, sets, []string{
				"--split", "report", "--limit", fmt.Sprint(c.limit), "--warmup", "0", "--max-tokens", "48",
				"--temperature", "0,1", "--ranks", fmt.Sprint(lossRanks), "--log", log,
			}, methods(lossMethods...))...)
			return err
		},
	}
}

// costs are what paced found.
func (c *course) costs(l *lab) (map[string]float64, error) {
	name := filepath.Join(l.root, l.path(c.name+"-pace.json"))
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var cost map[string]float64
	if err := json.Unmarshal(b, &cost); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, loss := range lossNames {
		if !(cost[loss] > 0) {
			return nil, fmt.Errorf("%s: a step of %s costs %v, want more than nothing", name, loss, cost[loss])
		}
	}
	return cost, nil
}

// needs are the steps of all seeds.
func (c *course) needs() (out []*step) {
	for seed := 1; seed <= lossSeeds; seed++ {
		out = append(out, c.ended(seed))
	}
	return out
}

// pace returns the processor time of a step of each loss, in user mode, over that of pacer: the medians of rounds
// in which every loss is timed in turn on one thread, so that other work on the machine changes
// little. Loading and evaluating are left out: they are in the time of a few steps as in that of
// many. What a step costs does not depend on the weights: the heads are new.
func (c *course) pace(ctx context.Context, l *lab) (map[string]float64, error) {
	out := l.path(c.name + "-paced")
	spent := func(loss string, steps int) (time.Duration, error) {
		if err := os.RemoveAll(filepath.Join(l.root, out)); err != nil {
			return 0, err
		}
		args := append(c.args(l, loss, "", out, c.lr[1], steps, 1), "--threads", "1", "--quiet")
		_, state, err := l.process(ctx, l.talf, args...)
		if err != nil {
			return 0, err
		}
		return state.UserTime(), nil
	}
	turns := paceRounds
	if l.small {
		turns = 1
	}
	var rounds []map[string]float64
	for range turns {
		cost := map[string]float64{}
		for _, loss := range lossNames {
			few, err := spent(loss, paceBase)
			if err != nil {
				return nil, err
			}
			many, err := spent(loss, paceBase+probes[loss])
			if err != nil {
				return nil, err
			}
			cost[loss] = (many - few).Seconds() / float64(probes[loss])
		}
		rounds = append(rounds, cost)
	}
	if err := os.RemoveAll(filepath.Join(l.root, out)); err != nil {
		return nil, err
	}
	return ratios(rounds, pacer)
}

// ratios divides the costs of each round by that of pacer, and takes medians.
func ratios(rounds []map[string]float64, pacer string) (map[string]float64, error) {
	out := map[string]float64{}
	for loss := range rounds[0] {
		var ratios []float64
		for _, cost := range rounds {
			if !(cost[loss] > 0 && cost[pacer] > 0) {
				return nil, fmt.Errorf("a step of %s took %.3f s, one of %s %.3f s: want more than nothing", loss, cost[loss], pacer, cost[pacer])
			}
			ratios = append(ratios, cost[loss]/cost[pacer])
		}
		slices.Sort(ratios)
		out[loss] = (ratios[(len(ratios)-1)/2] + ratios[len(ratios)/2]) / 2
	}
	return out, nil
}

// stepsOf are the steps that take as long as the budget, at a cost relative to a step of pacer.
func stepsOf(cost float64) int { return max(int(math.Round(budgetSteps/cost)), 1) }

// A lesson is what a course measured.
type lesson struct {
	*course
	results.Pool
	cost   map[string]float64
	tokens int
	took   [3]time.Duration // labels with what they need, first stages, the rest
}

// run is the exhibit.
func (c *course) run(_ context.Context, l *lab) (string, error) {
	x := &lesson{course: c}
	note := func(s *step, as int, shown bool) error {
		m, err := s.made(l)
		if err != nil {
			return err
		}
		if m == nil {
			return fmt.Errorf("%s was not made", s.name)
		}
		took := time.Duration(m.Seconds * float64(time.Second))
		x.took[as], l.earlier = x.took[as]+took, l.earlier+took
		if shown {
			l.commands = append(l.commands, m.Commands...)
		}
		return nil
	}
	for _, s := range append(slices.Clone(c.labels.after), c.labels) {
		if err := note(s, 0, true); err != nil {
			return "", err
		}
	}
	if err := note(c.paced(), 2, false); err != nil {
		return "", err
	}
	var err error
	if x.cost, err = c.costs(l); err != nil {
		return "", err
	}
	for seed := 1; seed <= lossSeeds; seed++ {
		if err := errors.Join(note(c.begun(seed), 1, seed == 1), note(c.ended(seed), 2, seed == 1)); err != nil {
			return "", err
		}
		r, err := results.Read(filepath.Join(l.root, c.dir(l, seed, "bench.json")))
		if err != nil {
			return "", err
		}
		x.tokens = r.MaxTokens
		if err := x.Add(r, filepath.Join(l.root, c.dir(l, seed, "answers.jsonl"))); err != nil {
			return "", err
		}
	}
	return x.tables()
}

// tables writes the section.
func (x *lesson) tables() (string, error) {
	var b strings.Builder
	b.WriteString(tables.Wrap(fmt.Sprintf("%d steps of `eagle` at lr %s for each of %d seeds, then each loss at lr %s for as much processor time as %d steps of `%s` take; %d positions a step, on %s. "+
		"What a step costs was measured on one thread, all losses in turn: medians of %d ratios of processor time. The commands are those of seed 1; the other seeds have their number in its place. "+
		"Of the time, labels with what they need took %s, first stages %s, the rest %s.\n\n",
		x.first, x.lr[0], lossSeeds, x.lr[1], budgetSteps, pacer, lossRows, x.text, paceRounds, x.took[0].Round(time.Second), x.took[1].Round(time.Second), x.took[2].Round(time.Second))))
	var rows [][]string
	for _, loss := range lossNames {
		n := stepsOf(x.cost[loss])
		rows = append(rows, []string{"`" + loss + "`", fmt.Sprintf("%.2f", x.cost[loss]), fmt.Sprint(n), fmt.Sprintf("%.0f", float64(n*lossRows)/1000)})
	}
	b.WriteString(tables.Markdown([]string{"loss", "cost of a step, `" + pacer + "` = 1", "steps", "positions, thousands"}, rows))

	drafted, columns, err := draftTables(&x.Pool, x.sets, x.tokens, lossMethods, lossNames, differences)
	if err != nil {
		return "", err
	}
	b.WriteString(drafted)
	b.WriteString(tables.Wrap("\nThe expected calibration error there, 10 bins of equal width, the confidence being the probability of the target's choice; means of the seeds:\n\n"))
	rows = nil
	for _, loss := range lossNames {
		row := []string{"`" + loss + "`"}
		for n := range lossRanks {
			e, err := results.Found(x.ECE, results.Ranked{Loss: loss, Rank: n + 1})
			if err != nil {
				return "", err
			}
			sum := 0.0
			for _, v := range e {
				sum += v
			}
			row = append(row, fmt.Sprintf("%.3f", sum/float64(len(e))))
		}
		rows = append(rows, row)
	}
	b.WriteString(tables.Markdown(append([]string{"ECE"}, columns...), rows))
	return b.String(), nil
}

// draftTables writes what heads are worth to drafts: tokens per pass of methods, and the accuracy behind tokens of
// each rank, whose columns it returns too. Pairs are the heads whose difference is taken.
func draftTables(p *results.Pool, sets []string, tokens int, methods, names []string, pairs [][2]string) (text string, ranks []string, err error) {
	var b strings.Builder
	b.WriteString(tables.Wrap(fmt.Sprintf("\n%d prompts of the reporting part (%s), up to %d tokens, trees of the papers. Greedy outputs equal those of plain decoding. Tokens per pass of all seeds together, with 95%% intervals of a bootstrap over prompts, "+
		"each drawn with its answers of all seeds; differences take the same prompts of both.\n\n", len(p.Prompts), strings.Join(sets, ", "), tokens)))
	var columns []string
	var kinds []results.Drafted
	for _, t := range []float64{0, 1} {
		for _, m := range methods {
			columns = append(columns, fmt.Sprintf("%s, T=%g", m, t))
			kinds = append(kinds, results.Drafted{Spec: m, Temperature: t})
		}
	}
	tau := func(name string, i int) (results.Shares, error) {
		k := kinds[i]
		k.Loss = name
		return results.Found(p.Tau, k)
	}
	values, err := results.Compare("τ", names, pairs, columns, tau, 2, 1)
	if err != nil {
		return "", nil, err
	}
	each, err := results.EachSeed(pairs, columns, tau)
	if err != nil {
		return "", nil, err
	}
	b.WriteString(values + "\n" + each)

	for n := range lossRanks {
		ranks = append(ranks, fmt.Sprintf("n = %d", n+1))
	}
	b.WriteString(tables.Wrap("\nHow often, in %, the head's first choice behind its own n-th ranked token is the target's, at every position of the target's greedy answers to these prompts:\n\n"))
	values, err = results.Compare("accuracy", names, pairs, ranks, func(name string, i int) (results.Shares, error) {
		return results.Found(p.Hits, results.Ranked{Loss: name, Rank: i + 1})
	}, 1, 100)
	b.WriteString(values)
	return b.String(), ranks, err
}
