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

// The ablation of losses: variants of a loss that each change one thing. All continue the same first
// stage of a seed for as much processor time as ablationSteps steps of talf take.
const (
	ablationSteps   = 40
	ablationFirst   = 270
	ablationAnswers = 320
	ablationRows    = 512
	ablationLimit   = 8 // prompts of each set
	ablationTokens  = 48
	// Rounds of timing, the fewest steps of a run that is timed, and how many more steps of talf the
	// other has.
	ablationTurns = 3
	ablationBase  = 1
	ablationProbe = 4
	firstRate     = "3e-3"
	ablationRate  = "1.5e-3"
)

var ablationSets = []string{"problems", "stories"}

// A variant is a loss as it is by default, or with one change.
type variant struct {
	name string // of its head
	what string // what is changed; "": nothing
	loss string
	data *step
	flag []string // more flags of train
	// as is the variant whose steps cost as much; "": they are timed.
	as string
}

// A family is a loss and its variants, the default first.
type family []variant

var families = []family{
	{
		{name: "talf", loss: "talf", data: ablationLabels},
		{name: "talf-detach", what: "`feed=detach`", loss: "talf:feed=detach", data: ablationLabels},
		{name: "talf-full", what: "full labels (`--labels full`)", loss: "talf", data: ablationFull},
		{name: "talf-noise", what: "`--noise 0.2`", loss: "talf", data: ablationLabels, flag: noisy, as: "talf"},
		{name: "talf-half", what: "`decay=0.5`", loss: "talf:decay=0.5", data: ablationLabels, as: "talf"},
		{name: "talf-twice", what: "`decay=2`", loss: "talf:decay=2", data: ablationLabels, as: "talf"},
		{name: "talf-k2", what: "trees of k = 2", loss: "talf", data: ablationK2},
		{name: "talf-k8", what: "trees of k = 8", loss: "talf", data: ablationK8},
		{name: "talf-d2", what: "depth 2 (`levels=2`)", loss: "talf:levels=2", data: ablationLabels},
		{name: "talf-d4", what: "depth 4", loss: "talf", data: ablationD4},
	},
	{
		{name: "hass", loss: "hass", data: ablationLabels},
		{name: "hass-full", what: "`labels=full`", loss: "hass:labels=full", data: ablationLabels},
		{name: "hass-noise", what: "`--noise 0.2`", loss: "hass", data: ablationLabels, flag: noisy, as: "hass"},
		{name: "hass-half", what: "`decay=0.5`", loss: "hass:decay=0.5", data: ablationLabels, as: "hass"},
		{name: "hass-twice", what: "`decay=2`", loss: "hass:decay=2", data: ablationLabels, as: "hass"},
	},
	{
		{name: "eagle", loss: "eagle", data: ablationLabels},
		{name: "eagle-full", what: "`labels=full`", loss: "eagle:labels=full", data: ablationLabels},
		{name: "eagle-noise", what: "`--noise 0.2`", loss: "eagle", data: ablationLabels, flag: noisy, as: "eagle"},
	},
}

var noisy = []string{"--noise", "0.2"}

func (f family) name() string { return f[0].name }

// Labels of the same answers: as preprocess makes them, and with one change.
var (
	ablationAnswered = answersTo("ablation-", ablationAnswers)
	ablationLabels   = ablationSet("")
	ablationFull     = ablationSet("full", "--labels", "full")
	ablationK2       = ablationSet("k2", "--k", "2")
	ablationK8       = ablationSet("k8", "--k", "8")
	ablationD4       = ablationSet("depth4", "--depth", "4")
)

func ablationSet(name string, flags ...string) *step {
	s := &step{name: strings.TrimSuffix("ablation-labels-"+name, "-"), of: strings.Join(flags, " "), code: labels.code, after: []*step{ablationAnswered}}
	s.run = func(ctx context.Context, l *lab) error {
		if err := os.RemoveAll(filepath.Join(l.root, l.path(s.name))); err != nil {
			return err
		}
		_, err := l.run(ctx, slices.Concat([]string{
			"preprocess", "--model", l.path("gsm10m"), "--data", l.path("ablation-answers.jsonl"), "--template", "{prompt}", "--answer-field", "text",
			"--loss-only", "--max-len", "320",
		}, flags, []string{"--out", l.path(s.name)})...)
		return err
	}
	return s
}

// ablationArgs trains a head into a folder, on one thread: seeds are made beside each other.
func ablationArgs(l *lab, v *variant, from, to, lr string, steps, seed int) []string {
	args := []string{"train", "--model", l.path("gsm10m"), "--data", l.path(v.data.name), "--out", to}
	if from != "" {
		args = append(args, "--init", from)
	}
	return slices.Concat(args, []string{"--loss", v.loss}, v.flag, []string{
		"--steps", fmt.Sprint(steps), "--rows", fmt.Sprint(ablationRows), "--lr", lr, "--min-lr", "0.05", "--warmup", fmt.Sprint(max(steps/10, 1)),
		"--seed", fmt.Sprint(seed), "--eval-every", "0", "--eval-seqs", "8", "--save-every", "0", "--threads", "1",
	})
}

func ablationDir(l *lab, seed int, name string) string {
	return l.path("ablation", fmt.Sprint(seed), name)
}

// ablationBegun returns the step that trains the first stage of a seed.
func ablationBegun(seed int) *step {
	return &step{
		name: fmt.Sprintf("ablation-first-%d", seed), of: fmt.Sprint(ablationFirst, ablationRows, firstRate), code: head.code, after: []*step{ablationLabels},
		run: func(ctx context.Context, l *lab) error {
			to := ablationDir(l, seed, "first")
			if err := os.RemoveAll(filepath.Join(l.root, to)); err != nil {
				return err
			}
			v := variant{loss: "eagle", data: ablationLabels}
			_, err := l.run(ctx, ablationArgs(l, &v, "", to, firstRate, l.amount(ablationFirst), seed)...)
			return err
		},
	}
}

// timed are the variants whose steps are timed, all but those that cost what another does.
func timed() (out []*variant) {
	for _, f := range families {
		for i := range f {
			if f[i].as == "" {
				out = append(out, &f[i])
			}
		}
	}
	return out
}

// ablationPaced returns the step that times a step of training of each variant, all in turn: a round of
// ablationTurns, which may be made beside each other.
func ablationPaced(round int) *step {
	name := fmt.Sprintf("ablation-pace-%d", round)
	return &step{
		name: name, of: fmt.Sprint(ablationProbe, ablationBase, ablationRows), code: head.code,
		after: []*step{ablationLabels, ablationFull, ablationK2, ablationK8, ablationD4},
		run: func(ctx context.Context, l *lab) error {
			cost := map[string]float64{}
			for _, v := range timed() {
				probe := ablationProbe
				if base, _, _ := strings.Cut(v.name, "-"); base == "eagle" || base == "hass" {
					probe *= 3 // cheaper
				}
				few, err := l.spent(ctx, name, v, ablationBase)
				if err != nil {
					return err
				}
				many, err := l.spent(ctx, name, v, ablationBase+probe)
				if err != nil {
					return err
				}
				cost[v.name] = (many - few).Seconds() / float64(probe)
			}
			b, err := json.Marshal(cost)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(l.root, l.path(name+".json")), append(b, '\n'), 0o644)
		},
	}
}

// spent is the processor time of so many steps of training, in user mode; the head is thrown away.
func (l *lab) spent(ctx context.Context, name string, v *variant, steps int) (time.Duration, error) {
	out := l.path(name + "-head")
	_, state, err := l.process(ctx, l.talf, append(ablationArgs(l, v, "", out, ablationRate, steps, 1), "--quiet")...)
	if err != nil {
		return 0, err
	}
	return state.UserTime(), os.RemoveAll(filepath.Join(l.root, out))
}

// ablationPaces are the steps of all rounds.
func ablationPaces() (out []*step) {
	for round := 1; round <= ablationTurns; round++ {
		out = append(out, ablationPaced(round))
	}
	return out
}

// ablationCosts are the costs of a step of every variant over that of talf: medians of the rounds.
func ablationCosts(l *lab) (map[string]float64, error) {
	var rounds []map[string]float64
	for _, s := range ablationPaces() {
		name := filepath.Join(l.root, l.path(s.name+".json"))
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var cost map[string]float64
		if err := json.Unmarshal(b, &cost); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		rounds = append(rounds, cost)
	}
	cost, err := ratios(rounds, pacer)
	if err != nil {
		return nil, err
	}
	for _, f := range families {
		for _, v := range f {
			if v.as != "" {
				cost[v.name] = cost[v.as]
			}
			if !(cost[v.name] > 0) {
				return nil, fmt.Errorf("nothing timed a step of %s", v.name)
			}
		}
	}
	return cost, nil
}

func ablationStepsOf(cost float64) int { return max(int(math.Round(ablationSteps/cost)), 1) }

// ablationEnded returns the step that trains a family's variants of a seed, and answers the prompts with them.
func ablationEnded(f family, seed int) *step {
	of := []string{fmt.Sprint(ablationSteps, ablationRate, lossMethods, ablationSets, ablationLimit, ablationTokens)}
	for _, v := range f {
		of = append(of, strings.Join(append([]string{v.name, v.loss, v.data.name, v.as}, v.flag...), " "))
	}
	name := fmt.Sprintf("ablation-%s-%d", f.name(), seed)
	return &step{
		name: name, of: strings.Join(of, "; "), code: append(slices.Clone(head.code), "infer", "internal/demo"), after: append(ablationPaces(), ablationBegun(seed)),
		run: func(ctx context.Context, l *lab) error {
			cost, err := ablationCosts(l)
			if err != nil {
				return err
			}
			var heads []string
			for i := range f {
				v := &f[i]
				to := ablationDir(l, seed, v.name)
				if err := os.RemoveAll(filepath.Join(l.root, to)); err != nil {
					return err
				}
				if _, err := l.run(ctx, ablationArgs(l, v, ablationDir(l, seed, "first"), to, ablationRate, l.amount(ablationStepsOf(cost[v.name])), seed)...); err != nil {
					return err
				}
				heads = append(heads, "--head", v.name+"="+to)
			}
			log := l.path(name + ".jsonl")
			if err := os.RemoveAll(filepath.Join(l.root, log)); err != nil { // it would be continued
				return err
			}
			var sets []string
			for _, s := range ablationSets {
				sets = append(sets, "--prompts", s+"="+l.path("prompts", s+".jsonl"))
			}
			_, err = l.benchOn(ctx, "gsm10m", name, slices.Concat(heads, sets, []string{
				"--split", "report", "--limit", fmt.Sprint(ablationLimit), "--warmup", "0", "--max-tokens", fmt.Sprint(ablationTokens), "--threads", "1", "--log", log,
			}, methods(lossMethods...))...)
			return err
		},
	}
}

func ablationNeeds() (out []*step) {
	for seed := 1; seed <= lossSeeds; seed++ {
		for _, f := range families {
			out = append(out, ablationEnded(f, seed))
		}
	}
	return out
}

// runAblation is the exhibit.
func runAblation(_ context.Context, l *lab) (string, error) {
	all, none := func(string) bool { return true }, func(string) bool { return false }
	err := l.noted(all, append([]*step{ablationAnswered}, ablationPaced(1).after...)...)
	err = errors.Join(err, l.noted(none, ablationPaces()...), l.noted(all, ablationBegun(1)), l.noted(none, ablationBegun(2), ablationBegun(3)))
	if err != nil {
		return "", err
	}
	cost, err := ablationCosts(l)
	if err != nil {
		return "", err
	}
	p := &results.Pool{}
	for seed := 1; seed <= lossSeeds; seed++ {
		for _, f := range families {
			s := ablationEnded(f, seed)
			shown := none
			if seed == 1 {
				shown = func(c string) bool {
					return strings.HasPrefix(c, "talf bench ") || strings.Contains(strings.Join(strings.Fields(c), " "), "--out "+ablationDir(l, 1, f.name())+" ")
				}
			}
			if err := l.noted(shown, s); err != nil {
				return "", err
			}
			r, err := results.Read(filepath.Join(l.root, l.path(s.name+".json")))
			if err != nil {
				return "", err
			}
			if err := p.Add(r, filepath.Join(l.root, l.path(s.name+".jsonl"))); err != nil {
				return "", err
			}
		}
	}
	return ablationTables(p, cost)
}

// ablationTables writes the section.
func ablationTables(p *results.Pool, cost map[string]float64) (string, error) {
	var b strings.Builder
	b.WriteString(tables.Wrap(fmt.Sprintf("%d steps of `eagle` at lr %s for each of %d seeds; then each variant continues them at lr %s for as much processor time as %d steps of `talf` take, %d positions a step, "+
		"on the target's greedy answers to %d training prompts of six kinds. What a step costs was measured on one thread, all in turn: medians of %d ratios of processor time; noise and decay change nothing of it. "+
		"The commands are those of seed 1, of the labels and of the default of each loss.\n\n"+
		"τ is greedy, trees of the papers: %d prompts of the reporting part of each set, up to %d tokens. The default of a loss has its own τ; each variant has its difference from that, "+
		"with 95%% intervals of a bootstrap over prompts, each drawn with its answers of all seeds and of both. Outputs equal those of plain decoding.\n",
		ablationFirst, firstRate, lossSeeds, ablationRate, ablationSteps, ablationRows, ablationAnswers, ablationTurns, len(p.Within("problems")), ablationTokens)))
	head := []string{"variant", "cost of a step, `talf` = 1", "steps"}
	for _, m := range lossMethods {
		for _, s := range ablationSets {
			head = append(head, m+", "+s)
		}
	}
	for _, m := range lossMethods {
		head = append(head, m+", seed by seed")
	}
	for _, f := range families {
		var rows [][]string
		for i, v := range f {
			label := "`" + v.name + "`"
			if i > 0 {
				label = "`" + f.name() + "`, " + v.what
			}
			row := []string{label, fmt.Sprintf("%.2f", cost[v.name]), fmt.Sprint(ablationStepsOf(cost[v.name]))}
			var each []string
			for _, m := range lossMethods {
				own, err := results.Found(p.Tau, results.Drafted{Spec: m, Loss: v.name})
				if err != nil {
					return "", err
				}
				base, err := results.Found(p.Tau, results.Drafted{Spec: m, Loss: f.name()})
				if err != nil {
					return "", err
				}
				for _, s := range ablationSets {
					at := p.Within(s)
					if i == 0 {
						row = append(row, own.Only(at).Pooled().String())
					} else {
						row = append(row, difference(own.Only(at).Minus(base.Only(at))))
					}
				}
				var text []string
				if i > 0 {
					for _, d := range own.BySeed(base) {
						text = append(text, results.Signed(fmt.Sprintf("%+.2f", d)))
					}
				}
				each = append(each, strings.Join(text, " / "))
			}
			rows = append(rows, append(row, each...))
		}
		b.WriteString("\n" + tables.Markdown(head, rows))
	}
	return b.String(), nil
}

// difference writes one in bold whose interval leaves out 0.
func difference(i results.Interval) string {
	text := results.Signed(fmt.Sprintf("%+.2f [%.2f, %.2f]", i.Value, i.Low, i.High))
	if i.Low > 0 || i.High < 0 {
		text = "**" + text + "**"
	}
	return text
}
