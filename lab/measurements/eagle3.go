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

// EAGLE-3 heads on gsm10m: a first stage with training-time test, then a second one with each loss. EAGLE-1 heads
// train as long, with losses of their own.
const (
	tttAnswers = 480
	tttFirst   = 400 // steps of the first stage
	tttThen    = 40  // steps of tttPacer in the second
	tttRows    = 512
	tttPacer   = "talf"
	tttRounds  = 3  // in which every loss is timed
	tttProbe   = 16 // steps that are timed: a process takes as long as some three of them to start, and not always as long
)

// A trainee is a kind of heads: a network, a first and a second loss. Its stages take as long as tttFirst steps of
// training-time test and tttThen of tttPacer on an EAGLE-3 head. If it is even, they have as many steps; if it is halved, each
// takes half of that time.
type trainee struct {
	name, network, first, loss string
	narrow                     bool // the second stage has trees of two tokens a level
	even, halved               bool
}

// nextOnly is training-time test without further steps: the next token alone, along the text.
const nextOnly = "eagle3:steps=1"

var trainees = []trainee{
	{name: "eagle3", network: "eagle3", first: "eagle3", loss: "eagle3"},
	{name: "talf", network: "eagle3", first: "eagle3", loss: "talf"},
	{name: "eal", network: "eagle3", first: "eagle3", loss: "eal"},
	{name: "next-eagle3", network: "eagle3", first: nextOnly, loss: "eagle3", halved: true},
	{name: "next-talf", network: "eagle3", first: nextOnly, loss: "talf", narrow: true, halved: true},
	{name: "eagle3-even", network: "eagle3", first: "eagle3", loss: "eagle3", even: true},
	{name: "eal-even", network: "eagle3", first: "eagle3", loss: "eal", even: true},
	{name: "e1-hass", network: "eagle", first: "eagle", loss: "hass"},
}

var tttPairs = [][2]string{
	{"talf", "eagle3"},
	{"eal", "eagle3"},
	{"next-talf", "eagle3"},
	{"next-eagle3", "eagle3"},
	{"next-talf", "next-eagle3"},
	{"talf", "eagle3-even"},
	{"eal-even", "eagle3-even"},
	{"next-talf", "e1-hass"},
	{"eagle3", "e1-hass"},
}

func traineeNames() (out []string) {
	for _, t := range trainees {
		out = append(out, t.name)
	}
	return out
}

var tttText = answersTo("eagle3-", tttAnswers)

// tttLabel returns the command that labels the answers, and removes what is there.
func tttLabel(l *lab, data, name string, flags ...string) ([]string, error) {
	return append([]string{
		"preprocess", "--model", l.path("gsm10m"), "--data", l.path(data), "--template", "{prompt}", "--answer-field", "text",
		"--loss-only", "--max-len", "320", "--out", l.path(name),
	}, flags...), os.RemoveAll(filepath.Join(l.root, l.path(name)))
}

// tttLabels are of one text, with the states that each network reads.
var tttLabels = &step{
	name: "eagle3-labels", of: tttText.of + ", k 4 and 2", code: labels.code, after: []*step{tttText},
	run: func(ctx context.Context, l *lab) error {
		three, err := tttLabel(l, "eagle3-answers.jsonl", "eagle3-of-eagle3", "--features", "taps")
		narrow, err2 := tttLabel(l, "eagle3-answers.jsonl", "eagle3-of-eagle3-k2", "--features", "taps", "--k", "2")
		one, err3 := tttLabel(l, "eagle3-answers.jsonl", "eagle3-of-eagle")
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}
		return l.pair(ctx, three, narrow, one)
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
	if t.network == "eagle" || t.halved {
		return large.lr[1]
	}
	return tttRates[1]
}

// A lap is a stage: a loss, and the labels that it has.
type lap struct{ network, loss, data string }

func (t trainee) laps() [2]lap {
	data := "eagle3-of-" + t.network
	laps := [2]lap{{t.network, t.first, data}, {t.network, t.loss, data}}
	if t.narrow {
		laps[1].data += "-k2"
	}
	return laps
}

// key names what a step of it costs.
func (s lap) key() string {
	if strings.HasSuffix(s.data, "-k2") {
		return s.network + " " + s.loss + " k2"
	}
	return s.network + " " + s.loss
}

// tttLaps are the different stages of all trainees, in the order in which they are timed.
func tttLaps() (out []lap) {
	for _, t := range trainees {
		for _, s := range t.laps() {
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// tttPace times a step with each loss, of either network, on one thread in turn.
var tttPace = &step{
	name: "eagle3-pace", of: fmt.Sprint(tttLaps(), tttRounds, tttProbe, tttRows), code: head.code, after: []*step{tttLabels},
	run: func(ctx context.Context, l *lab) error {
		out := l.path("eagle3-paced")
		spent := func(s lap, steps int) (time.Duration, error) {
			if err := os.RemoveAll(filepath.Join(l.root, out)); err != nil {
				return 0, err
			}
			_, state, err := l.process(ctx, l.talf, append(tttArgs(l, s.data, s.network, s.loss, "", out, tttRates[1], steps, 1), "--threads", "1", "--quiet")...)
			if err != nil {
				return 0, err
			}
			return state.UserTime(), nil
		}
		turns := tttRounds
		if l.small {
			turns = 1
		}
		var rounds []map[string]float64
		for range turns {
			round := map[string]float64{}
			for _, s := range tttLaps() {
				n := tttProbe
				if s.loss == "eagle" || s.loss == nextOnly {
					n *= 4
				}
				few, err := spent(s, 1)
				many, err2 := spent(s, 1+n)
				if err := errors.Join(err, err2); err != nil {
					return err
				}
				key := s.key()
				if round[key] = (many - few).Seconds() / float64(n); !(round[key] > 0) {
					return fmt.Errorf("a step of %s took %.3f s, want more than nothing", key, round[key])
				}
			}
			rounds = append(rounds, round)
		}
		cost, err := ratios(rounds, "eagle3 "+tttPacer)
		if err != nil {
			return err
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
	for _, s := range tttLaps() {
		if key := s.key(); !(cost[key] > 0) {
			return nil, fmt.Errorf("eagle3-pace.json: a step of %s costs %v, want more than nothing", key, cost[key])
		}
	}
	return cost, nil
}

// steps are those of both stages.
func (t trainee) steps(cost map[string]float64) (first, then int) {
	if t.even {
		return tttFirst, tttThen
	}
	laps := t.laps()
	one, two := tttFirst*cost["eagle3 eagle3"], float64(tttThen)
	if t.halved {
		one, two = (one+two)/2, (one+two)/2
	}
	return max(int(math.Round(one/cost[laps[0].key()])), 1), max(int(math.Round(two/cost[laps[1].key()])), 1)
}

// dir of a head of a seed.
func tttDir(l *lab, seed int, elem ...string) string {
	return l.path(append([]string{"eagle3", fmt.Sprint(seed)}, elem...)...)
}

// begun is the folder of its first stage.
func (t trainee) begun(l *lab, seed int) string {
	name := "first-" + t.network
	if t.halved {
		name += "-next"
	}
	return tttDir(l, seed, name)
}

// tttBegun trains the first stages of a seed.
func tttBegun(seed int) *step {
	return &step{
		name: fmt.Sprintf("eagle3-first-%d", seed), of: fmt.Sprint(trainees, tttFirst, tttRows, tttRates[0]), code: head.code, after: []*step{tttPace},
		run: func(ctx context.Context, l *lab) error {
			cost, err := tttCosts(l)
			if err != nil {
				return err
			}
			var all [][]string
			seen := map[string]bool{}
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
				all = append(all, tttArgs(l, t.laps()[0].data, t.network, t.first, "", to, tttRates[0], l.amount(first), seed))
			}
			return l.pair(ctx, all...)
		},
	}
}

// tttHeads trains the second stages of a seed.
func tttHeads(seed int) *step {
	return &step{
		name: fmt.Sprintf("eagle3-heads-%d", seed), of: fmt.Sprint(trainees, tttThen, tttRates[1]), code: head.code, after: []*step{tttBegun(seed)},
		run: func(ctx context.Context, l *lab) error {
			cost, err := tttCosts(l)
			if err != nil {
				return err
			}
			var all [][]string
			for _, t := range trainees {
				to := tttDir(l, seed, t.name)
				if err := os.RemoveAll(filepath.Join(l.root, to)); err != nil {
					return err
				}
				_, then := t.steps(cost)
				all = append(all, tttArgs(l, t.laps()[1].data, t.network, t.loss, t.begun(l, seed), to, t.rate(), l.amount(then), seed))
			}
			return l.pair(ctx, all...)
		},
	}
}

// tttBench answers prompts with heads, which are called as they are named, into log and the report beside it.
func tttBench(l *lab, log string, heads []string, limit int, more ...string) ([]string, error) {
	args := []string{"bench", "--model", l.path("gsm10m")}
	for _, h := range heads {
		args = append(args, "--head", h)
	}
	for _, s := range tttSets {
		args = append(args, "--prompts", s+"="+l.path("prompts", s+".jsonl"))
	}
	args = append(args, l.scaled([]string{"--split", "report", "--limit", fmt.Sprint(limit), "--warmup", "0", "--max-tokens", "32"})...)
	args = append(args, "--temperature", "0,1", "--log", log, "--out", strings.TrimSuffix(log, "l"))
	return slices.Concat(args, more, methods(tttMethods...)), os.RemoveAll(filepath.Join(l.root, log)) // it would be continued
}

var tttSets = []string{"problems", "stories"}

const tttLimit = 6 // prompts of each set

// tttMethods are those whose acceptance is measured.
var tttMethods = lossMethods[:1]

// halves answers prompts with heads, half of them at a time: both cores are used.
func (l *lab) halves(ctx context.Context, dir string, heads []string, limit int, more ...string) error {
	half := (len(heads) + 1) / 2
	one, err := tttBench(l, dir+"/1.jsonl", heads[:half], limit, more...)
	two, err2 := tttBench(l, dir+"/2.jsonl", heads[half:], limit, more...)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	return l.pair(ctx, one, two)
}

// join adds what halves wrote, and returns the most tokens of an answer.
func (l *lab) join(p *results.Pool, dir string) (tokens int, err error) {
	for _, half := range []string{"/1.json", "/2.json"} {
		r, err := results.Read(filepath.Join(l.root, dir+half))
		if err != nil {
			return 0, err
		}
		tokens = r.MaxTokens
		if err := p.Add(r, filepath.Join(l.root, dir+half+"l")); err != nil {
			return 0, err
		}
	}
	return tokens, nil
}

// tttEnd answers prompts with all heads of a seed.
func tttEnd(seed int) *step {
	return &step{
		name: fmt.Sprintf("eagle3-end-%d", seed), of: fmt.Sprint(tttSets, tttLimit, tttMethods, lossRanks), code: append(slices.Clone(head.code), "infer", "internal/demo"), after: []*step{tttHeads(seed)},
		run: func(ctx context.Context, l *lab) error {
			var heads []string
			for _, t := range trainees {
				heads = append(heads, t.name+"="+tttDir(l, seed, t.name))
			}
			return l.halves(ctx, tttDir(l, seed), heads, tttLimit, "--ranks", fmt.Sprint(lossRanks))
		},
	}
}

// tttNeeds are the steps of all seeds.
func tttNeeds() (out []*step) {
	for seed := 1; seed <= lossSeeds; seed++ {
		out = append(out, tttEnd(seed))
	}
	return out
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
	cost, err := tttCosts(l)
	if err = errors.Join(err, l.noted(func(string) bool { return true }, tttText, tttLabels, tttPace)); err != nil {
		return "", err
	}
	p := &results.Pool{}
	tokens := 0
	for seed := 1; seed <= lossSeeds; seed++ {
		if err := l.noted(func(string) bool { return seed == 1 }, tttBegun(seed), tttHeads(seed), tttEnd(seed)); err != nil {
			return "", err
		}
		if tokens, err = l.join(p, tttDir(l, seed)); err != nil {
			return "", err
		}
	}
	return tttTables(p, cost, tokens)
}

// tttTables writes the section.
func tttTables(p *results.Pool, cost map[string]float64, tokens int) (string, error) {
	var b strings.Builder
	b.WriteString(tables.Wrap(fmt.Sprintf("%d seeds. All heads are EAGLE-3 heads with a draft vocabulary of all tokens, but `e1-hass`, an EAGLE-1 head. They have a first stage at lr %s that takes as much processor time as %d steps of "+
		"training-time test, and a second at lr %s (EAGLE-1: %s) that takes as much as %d steps of `%s` on the EAGLE-3 head. Those called *even* have as many steps in both stages as `talf` instead, and so see as many positions. "+
		"Those called *next* share the same time out in halves: the first stage learns the next token alone, without further steps; the second, at lr %s, is training-time test or `talf` on trees of two tokens a level. %d positions a step, on the target's greedy answers to %d training prompts of six kinds. "+
		"What a step costs was measured on one thread, all losses in turn: medians of %d ratios of processor time. Commands are those of seed 1.\n\n",
		lossSeeds, tttRates[0], tttFirst, tttRates[1], large.lr[1], tttThen, tttPacer, large.lr[1], tttRows, tttAnswers, tttRounds)))
	var rows [][]string
	for _, t := range trainees {
		first, then := t.steps(cost)
		rows = append(rows, []string{
			"`" + t.name + "`", fmt.Sprintf("`%s`, %d", t.first, first), fmt.Sprintf("`%s`, %d", t.loss, then), fmt.Sprintf("%.2f", cost[t.laps()[1].key()]), fmt.Sprintf("%.0f", float64((first+then)*tttRows)/1000),
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
