package main

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

	"talf/tools/measurements/results"
	"talf/tools/measurements/tables"
)

// EAGLE-3 heads on gsm10m: a first stage with training-time test, then a second one with each loss. EAGLE-1 heads
// train as long, with losses of their own.
const (
	tttAnswers = 480
	tttFirst   = 400 // steps of the first stage
	tttThen    = 40  // steps of tttPacer in the second
	tttRows    = 512
	tttPacer   = "talf"
	tttRounds  = 3 // in which every loss is timed
	tttProbe   = 3 // steps that are timed
)

// A trainee is a kind of heads: a network, a first and a second loss. Its stages take as long as tttFirst steps of
// training-time test and tttThen of tttPacer on an EAGLE-3 head or, if it is even, have as many steps.
type trainee struct {
	name, network, first, loss string
	even                       bool
}

var trainees = []trainee{
	{"eagle3", "eagle3", "eagle3", "eagle3", false},
	{"talf", "eagle3", "eagle3", "talf", false},
	{"eal", "eagle3", "eagle3", "eal", false},
	{"eagle3-even", "eagle3", "eagle3", "eagle3", true},
	{"eal-even", "eagle3", "eagle3", "eal", true},
	{"e1-hass", "eagle", "eagle", "hass", false},
	{"e1-talf", "eagle", "eagle", "talf", false},
	{"e1-even", "eagle", "eagle", "talf", true},
}

var tttPairs = [][2]string{
	{"talf", "eagle3"},
	{"eal", "eagle3"},
	{"talf", "eagle3-even"},
	{"eal-even", "eagle3-even"},
	{"talf", "e1-hass"},
	{"talf", "e1-talf"},
	{"talf", "e1-even"},
	{"eagle3", "e1-hass"},
}

func traineeNames() (out []string) {
	for _, t := range trainees {
		out = append(out, t.name)
	}
	return out
}

var tttText = &step{
	name: "eagle3-answers", of: fmt.Sprint(tttAnswers), code: answers.code,
	run: func(ctx context.Context, l *lab) error {
		return l.answer(ctx, "eagle3-", tttAnswers)
	},
}

// tttLabel returns the command that labels the answers, and removes what is there.
func tttLabel(l *lab, name string, flags ...string) ([]string, error) {
	return append([]string{
		"preprocess", "--model", l.path("gsm10m"), "--data", l.path("eagle3-answers.jsonl"), "--template", "{prompt}", "--answer-field", "text",
		"--loss-only", "--max-len", "320", "--out", l.path(name),
	}, flags...), os.RemoveAll(filepath.Join(l.root, l.path(name)))
}

// tttLabels are of one text, with the states that each network reads.
var tttLabels = &step{
	name: "eagle3-labels", of: tttText.of, code: labels.code, after: []*step{tttText},
	run: func(ctx context.Context, l *lab) error {
		three, err := tttLabel(l, "eagle3-of-eagle3", "--features", "taps")
		one, err2 := tttLabel(l, "eagle3-of-eagle")
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		return l.pair(ctx, three, one)
	},
}

// tttArgs trains a head into a folder: one that is new, or that continues from.
func tttArgs(l *lab, data, network, loss, from, to, lr string, steps, seed int) []string {
	args := []string{"train", "--model", l.path("gsm10m"), "--data", l.path(data), "--out", to}
	if from != "" {
		args = append(args, "--init", from)
	} else {
		args = append(args, "--network", network)
	}
	return append(args, "--loss", loss, "--steps", fmt.Sprint(steps), "--rows", fmt.Sprint(tttRows), "--lr", lr, "--min-lr", "0.05",
		"--warmup", fmt.Sprint(max(steps/10, 1)), "--seed", fmt.Sprint(seed), "--eval-every", "0", "--eval-seqs", "4", "--save-every", "0")
}

// tttRates are the learning rates of both stages. That of the second is of EAGLE-3 heads: at 1.5e-3, which suits
// EAGLE-1 heads, every loss undoes part of the first stage, on text that is held out, too.
var tttRates = [2]string{"3e-3", "5e-4"}

// rate is the learning rate of the second stage.
func (t trainee) rate() string {
	if t.network == "eagle" {
		return large.lr[1]
	}
	return tttRates[1]
}

// tttPace times a step with each loss, of either network, on one thread in turn.
var tttPace = &step{
	name: "eagle3-pace", of: fmt.Sprint(trainees, tttRounds, tttProbe, tttRows), code: head.code, after: []*step{tttLabels},
	run: func(ctx context.Context, l *lab) error {
		out := l.path("eagle3-paced")
		spent := func(network, loss string, steps int) (time.Duration, error) {
			if err := os.RemoveAll(filepath.Join(l.root, out)); err != nil {
				return 0, err
			}
			_, state, err := l.process(ctx, l.talf, append(tttArgs(l, "eagle3-of-"+network, network, loss, "", out, tttRates[1], steps, 1), "--threads", "1", "--quiet")...)
			if err != nil {
				return 0, err
			}
			return state.UserTime(), nil
		}
		turns := tttRounds
		if l.small {
			turns = 1
		}
		costs := map[string][]float64{}
		for range turns {
			round := map[string]float64{}
			for _, t := range trainees {
				for _, loss := range []string{t.first, t.loss} {
					key := t.network + " " + loss
					if round[key] > 0 {
						continue
					}
					few, err := spent(t.network, loss, 1)
					if err != nil {
						return err
					}
					n := tttProbe
					if loss == "eagle" {
						n *= 4
					}
					many, err := spent(t.network, loss, 1+n)
					if err != nil {
						return err
					}
					if round[key] = (many - few).Seconds() / float64(n); !(round[key] > 0) {
						return fmt.Errorf("a step of %s took %.3f s, want more than nothing", key, round[key])
					}
				}
			}
			for key, c := range round {
				costs[key] = append(costs[key], c/round["eagle3 "+tttPacer])
			}
		}
		cost := map[string]float64{}
		for key, ratios := range costs {
			slices.Sort(ratios)
			cost[key] = (ratios[(len(ratios)-1)/2] + ratios[len(ratios)/2]) / 2
		}
		b, err := json.Marshal(cost)
		if err != nil {
			return err
		}
		return errors.Join(os.RemoveAll(filepath.Join(l.root, out)), os.WriteFile(filepath.Join(l.root, l.path("eagle3-pace.json")), append(b, '\n'), 0o644))
	},
}

func tttCosts(l *lab) (cost map[string]float64, err error) {
	b, err := os.ReadFile(filepath.Join(l.root, l.path("eagle3-pace.json")))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &cost); err != nil {
		return nil, fmt.Errorf("eagle3-pace.json: %w", err)
	}
	for _, t := range trainees {
		for _, loss := range []string{t.first, t.loss} {
			if key := t.network + " " + loss; !(cost[key] > 0) {
				return nil, fmt.Errorf("eagle3-pace.json: a step of %s costs %v, want more than nothing", key, cost[key])
			}
		}
	}
	return cost, nil
}

// steps are those of both stages.
func (t trainee) steps(cost map[string]float64) (first, then int) {
	if t.even {
		return tttFirst, tttThen
	}
	return max(int(math.Round(tttFirst*cost["eagle3 eagle3"]/cost[t.network+" "+t.first])), 1), max(int(math.Round(tttThen/cost[t.network+" "+t.loss])), 1)
}

// dir of a head of a seed.
func tttDir(l *lab, seed int, elem ...string) string {
	return l.path(append([]string{"eagle3", fmt.Sprint(seed)}, elem...)...)
}

// begun is the folder of its first stage.
func (t trainee) begun(l *lab, seed int) string {
	name := "first-" + t.network
	if t.even && t.first != "eagle3" {
		name += "-even"
	}
	return tttDir(l, seed, name)
}

// tttStart is the first stage of the EAGLE-3 head of seed 1.
var tttStart = &step{
	name: "eagle3-start", of: fmt.Sprint(tttFirst, tttRows, tttRates[0]), code: head.code, after: []*step{tttLabels},
	run: func(ctx context.Context, l *lab) error {
		to := trainees[0].begun(l, 1)
		if err := os.RemoveAll(filepath.Join(l.root, to)); err != nil {
			return err
		}
		return l.pair(ctx, tttArgs(l, "eagle3-of-eagle3", "eagle3", "eagle3", "", to, tttRates[0], l.amount(tttFirst), 1))
	},
}

// tttBegun is the first stage of the others.
var tttBegun = &step{
	name: "eagle3-first", of: fmt.Sprint(trainees, tttFirst, tttRows, tttRates[0], lossSeeds), code: head.code, after: []*step{tttPace, tttStart},
	run: func(ctx context.Context, l *lab) error {
		cost, err := tttCosts(l)
		if err != nil {
			return err
		}
		var all [][]string
		seen := map[string]bool{trainees[0].begun(l, 1): true} // by tttStart
		for seed := 1; seed <= lossSeeds; seed++ {
			for _, t := range trainees {
				to := t.begun(l, seed)
				if seen[to] {
					continue
				}
				seen[to] = true
				if err := os.RemoveAll(filepath.Join(l.root, to)); err != nil {
					return err
				}
				first, _ := t.steps(cost)
				all = append(all, tttArgs(l, "eagle3-of-"+t.network, t.network, t.first, "", to, tttRates[0], l.amount(first), seed))
			}
		}
		return l.pair(ctx, all...)
	},
}

// tttHeads is the second stage.
var tttHeads = &step{
	name: "eagle3-heads", of: fmt.Sprint(trainees, tttThen, tttRates[1]), code: head.code, after: []*step{tttBegun},
	run: func(ctx context.Context, l *lab) error {
		cost, err := tttCosts(l)
		if err != nil {
			return err
		}
		var all [][]string
		for seed := 1; seed <= lossSeeds; seed++ {
			for _, t := range trainees {
				to := tttDir(l, seed, t.name)
				if err := os.RemoveAll(filepath.Join(l.root, to)); err != nil {
					return err
				}
				_, then := t.steps(cost)
				all = append(all, tttArgs(l, "eagle3-of-"+t.network, t.network, t.loss, t.begun(l, seed), to, t.rate(), l.amount(then), seed))
			}
		}
		return l.pair(ctx, all...)
	},
}

// tttBench answers prompts with heads, which are called as they are named, into log and the report beside it.
func tttBench(l *lab, log string, heads []string, limit int, temperatures string, specs []string, more ...string) ([]string, error) {
	args := []string{"bench", "--model", l.path("gsm10m")}
	for _, h := range heads {
		args = append(args, "--head", h)
	}
	for _, s := range tttSets {
		args = append(args, "--prompts", s+"="+l.path("prompts", s+".jsonl"))
	}
	args = append(args, l.scaled([]string{"--split", "report", "--limit", fmt.Sprint(limit), "--warmup", "0", "--max-tokens", "32"})...)
	args = append(args, "--temperature", temperatures, "--log", log, "--out", strings.TrimSuffix(log, "l"))
	return slices.Concat(args, more, methods(specs...)), os.RemoveAll(filepath.Join(l.root, log)) // it would be continued
}

var tttSets = []string{"problems", "stories"}

const tttLimit = 6 // prompts of each set

// tttMethods are those whose acceptance is measured.
var tttMethods = lossMethods[:1]

// tttEnd answers prompts with all heads.
var tttEnd = &step{
	name: "eagle3-end", of: fmt.Sprint(tttSets, tttLimit, tttMethods, lossRanks), code: append(slices.Clone(head.code), "infer", "internal/demo"), after: []*step{tttHeads},
	run: func(ctx context.Context, l *lab) error {
		var all [][]string
		for seed := 1; seed <= lossSeeds; seed++ {
			var heads []string
			for _, t := range trainees {
				heads = append(heads, t.name+"="+tttDir(l, seed, t.name))
			}
			args, err := tttBench(l, tttDir(l, seed, "answers.jsonl"), heads, tttLimit, "0,1", tttMethods, "--ranks", fmt.Sprint(lossRanks))
			if err != nil {
				return err
			}
			all = append(all, args)
		}
		return l.pair(ctx, all...)
	},
}

// noted adds the times and commands of steps to those of the table, of commands only those that keep allows.
func (l *lab) noted(keep func(command string) bool, steps ...*step) error {
	for _, s := range steps {
		m, err := s.made(l)
		if err != nil {
			return err
		}
		if m == nil {
			return fmt.Errorf("%s was not made", s.name)
		}
		l.earlier += time.Duration(m.Seconds * float64(time.Second))
		for _, c := range m.Commands {
			if keep(c) {
				l.commands = append(l.commands, c)
			}
		}
	}
	return nil
}

// runTTT is the exhibit.
func runTTT(_ context.Context, l *lab) (string, error) {
	other := func(c string) bool { return !strings.Contains(c, "/eagle3/2/") && !strings.Contains(c, "/eagle3/3/") }
	if err := l.noted(other, tttText, tttLabels, tttPace, tttStart, tttBegun, tttHeads, tttEnd); err != nil {
		return "", err
	}
	cost, err := tttCosts(l)
	if err != nil {
		return "", err
	}
	p := &results.Pool{}
	tokens := 0
	for seed := 1; seed <= lossSeeds; seed++ {
		r, err := results.Read(filepath.Join(l.root, tttDir(l, seed, "answers.json")))
		if err != nil {
			return "", err
		}
		tokens = r.MaxTokens
		if err := p.Add(r, filepath.Join(l.root, tttDir(l, seed, "answers.jsonl"))); err != nil {
			return "", err
		}
	}
	return tttTables(p, cost, tokens)
}

// tttTables writes the section.
func tttTables(p *results.Pool, cost map[string]float64, tokens int) (string, error) {
	var b strings.Builder
	b.WriteString(tables.Wrap(fmt.Sprintf("%d seeds. Heads named `eagle3`, `talf` and `eal` are EAGLE-3 heads with a draft vocabulary of all tokens, those that begin with `e1` EAGLE-1 heads. All have a first stage at lr %s that takes as much processor time as %d steps of "+
		"training-time test, and a second at lr %s (EAGLE-1: %s) that takes as much as %d steps of `%s` on the EAGLE-3 head; those called *even* have as many steps in both stages as `talf` instead, and so see as many positions. %d positions a step, on the target's greedy answers to %d training prompts of six kinds. "+
		"What a step costs was measured on one thread, all losses in turn: medians of %d ratios of processor time. Commands are those of seed 1.\n\n",
		lossSeeds, tttRates[0], tttFirst, tttRates[1], large.lr[1], tttThen, tttPacer, tttRows, tttAnswers, tttRounds)))
	var rows [][]string
	for _, t := range trainees {
		first, then := t.steps(cost)
		rows = append(rows, []string{
			"`" + t.name + "`", fmt.Sprintf("`%s`, %d", t.first, first), fmt.Sprintf("`%s`, %d", t.loss, then), fmt.Sprintf("%.2f", cost[t.network+" "+t.loss]), fmt.Sprintf("%.0f", float64((first+then)*tttRows)/1000),
		})
	}
	b.WriteString(tables.Markdown([]string{"head", "first stage, steps", "second stage, steps", "cost of a step of the second, `" + tttPacer + "` = 1", "positions, thousands"}, rows))

	drafted, _, err := draftTables(p, tttSets, tokens, tttMethods, traineeNames(), tttPairs)
	if err != nil {
		return "", err
	}
	b.WriteString(drafted)

	var columns []string
	for d := range results.PoolDepths {
		columns = append(columns, fmt.Sprintf("depth %d", d+1))
	}
	b.WriteString(tables.Wrap(fmt.Sprintf("\nOf the paths that had come to the depth above with drafted tokens below it, how many, in %%, went on to each depth; the same answers, greedy, `%s`:\n\n", tttMethods[0])))
	values, err := results.Compare("accepted", traineeNames(), tttPairs, columns, func(name string, i int) (results.Shares, error) {
		return results.Found(p.Deep, results.Deep{Drafted: results.Drafted{Spec: tttMethods[0], Temperature: 0, Loss: name}, Depth: i + 1})
	}, 1, 100)
	b.WriteString(values)
	return b.String(), err
}
