package measurements

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"talf/lab/measurements/results"
	"talf/lab/measurements/tables"
)

// An exhibit is a part of a page of docs/measurements that this program writes.
type exhibit struct {
	name, page, doc string
	code            []string // that the figures depend on
	needs           []*step
	run             func(ctx context.Context, l *lab) (string, error)
}

// drafting is the code that decodes, and that made the head.
var drafting = []string{"compute", "data", "infer", "internal/demo", "model", "preprocess", "train", "tree"}

var exhibits = []*exhibit{
	{"quickstart", "docs/measurements/quickstart.md", "both tables of talf quickstart", append(slices.Clone(drafting), "internal/quickstart"), nil, runQuickstart},
	{"passes", "docs/measurements/passes.md", "what passes cost by rows, 110M parameters", []string{"compute", "lab/micro", "model", "tree"}, nil, runPasses},
	{"speed", "docs/measurements/speed.md", "speed-ups over six sets, with a head, a small language model and neither", drafting, []*step{head}, runSpeed},
	{"depth", "docs/measurements/depth.md", "speed-ups where a pass costs what one of a larger model costs", drafting, []*step{head}, runDepth},
	{"auto", "docs/measurements/auto.md", "auto beside plain decoding and single methods, prompt by prompt", drafting, []*step{head}, runAuto},
	{"methods", "docs/measurements/methods.md", "acceptance length and speed of every method with its defaults", drafting, []*step{head, datastore}, runMethods},
	{"copies", "docs/measurements/methods.md", "acceptance length and speed of suffix beside pld and goose", []string{"compute", "infer", "internal/demo", "model", "tree"}, nil, runCopies},
	{"structured", "docs/measurements/structured.md", "speed-ups with answers in a schema and without", drafting, []*step{ordersHead, ordersLM}, runStructured},
	{"losses", "docs/measurements/losses.md", "losses after as much processor time from one start, three seeds, gsm10m", drafting, large.needs(), large.run},
	{"losses-quickstart", "docs/measurements/losses.md", "the same with the target and the text of quickstart", append(slices.Clone(drafting), "internal/quickstart"), small.needs(), small.run},
	{"ablation", "docs/measurements/ablation.md", "variants of losses that change one thing, after as much processor time from one start, three seeds, gsm10m", drafting, ablationNeeds(), runAblation},
	{"eagle3", "docs/measurements/eagle3.md", "losses of EAGLE-3 heads after as much time and as many positions, beside EAGLE-1 heads, three seeds, gsm10m", drafting, tttNeeds(), runTTT},
	{"eagle3-parts", "docs/measurements/eagle3.md", "EAGLE-3 heads with one thing changed: steps, draft vocabulary, taps, trees", drafting, []*step{partEnd}, runParts},
}

// sets are the prompts that lab unpack writes, in the order of the tables.
var sets = []string{"problems", "stories", "chat", "code", "passages", "questions"}

// promptFlags name the sets.
func (l *lab) promptFlags() []string {
	var out []string
	for _, s := range sets {
		out = append(out, "--prompts", s+"="+l.path("prompts", s+".jsonl"))
	}
	return out
}

func (l *lab) drafts() []string {
	return []string{"--head", "talf=" + l.path("head"), "--draft", "lm=" + l.path("gsm10m-lm")}
}

func methods(specs ...string) []string {
	var out []string
	for _, s := range specs {
		out = append(out, "--method", s)
	}
	return out
}

func runSpeed(ctx context.Context, l *lab) (string, error) {
	for _, s := range []*step{answers, labels, head} {
		m, err := s.made(l)
		if err != nil {
			return "", err
		}
		if m != nil {
			l.commands = append(l.commands, m.Commands...)
		}
	}
	flags := slices.Concat(l.drafts(), l.promptFlags(), []string{"--split", "report", "--limit", "13", "--warmup", "1", "--max-tokens", "64", "--repeat", "3"},
		methods("auto", "salf", "salf:N=8,B=4,th=0.3", "beam:N=8,k=4,depth=3", "static:chain-4", "goose:N=8", "pld"))
	r, err := l.bench(ctx, "speed", flags...)
	if err != nil {
		return "", err
	}
	how, err := howHead(l)
	if err != nil {
		return "", err
	}
	fastest, err := r.Fastest(0)
	if err != nil {
		return "", err
	}
	var all, by [][]string
	for i := range r.Rows {
		x := &r.Rows[i]
		if x.Set != "" {
			continue
		}
		cells := append(x.Label(), fmt.Sprintf("%.2f", x.Tau), fmt.Sprintf("%.0f", x.Speed.Mean))
		per := x.Label()
		low, high := 0.0, 0.0
		for n, s := range sets {
			y, err := r.Of(x, s)
			if err != nil {
				return "", err
			}
			v := y.EndToEnd.Value
			per = append(per, y.EndToEnd.String())
			if n == 0 || v < low {
				low = v
			}
			high = max(high, v)
		}
		if x.Spec == "ar" {
			all = append(all, append(cells, "1.00", "1.00", "", "", r.OfFastest(x)))
			continue
		}
		all = append(all, append(cells, x.EndToEnd.String(), x.Decoding.String(), fmt.Sprintf("%.2f to %.2f", low, high), fmt.Sprintf("%.2f", x.Slowest), r.OfFastest(x)))
		by = append(by, per)
	}
	return tables.Wrap(fmt.Sprintf("%d prompts of the reporting part of six sets, after one of each to warm up, up to %d tokens, greedy, f32, %d times in turn. All outputs equal those of plain decoding. "+
		"Speed-ups are ratios of totals with 95%% intervals over prompts; \"of the fastest\" is a method's speed end to end over that of the fastest, on the same prompts. %s\n%s%s\n", r.Prompts, r.MaxTokens, r.Repeat, coldAuto, how, fastest)) +
		tables.Markdown([]string{"method", "asks", "τ", "tokens/s", "end to end", "decoding", "by set, end to end", "slowest prompt, decoding", "of the fastest"}, all) +
		"\n" + tables.Markdown(append([]string{"end to end, by set", "asks"}, sets...), by), nil
}

func runDepth(ctx context.Context, l *lab) (string, error) {
	var rows [][]string
	prompts, tokens := 0, 0
	for _, dtype := range []string{"f32", "q8"} {
		r, err := l.bench(ctx, "depth-"+dtype, slices.Concat([]string{"--layers", "148", "--dtype", dtype}, l.drafts(),
			[]string{
				"--prompts", "problems=" + l.path("prompts", "problems.jsonl"), "--prompts", "stories=" + l.path("prompts", "stories.jsonl"),
				"--split", "report", "--limit", "9", "--warmup", "1", "--max-tokens", "64", "--repeat", "2",
			},
			methods("salf", "salf:N=8,B=4,th=0.3", "static:chain-4", "auto"))...)
		if err != nil {
			return "", err
		}
		prompts, tokens = r.Prompts, r.MaxTokens
		for i := range r.Rows {
			if x := &r.Rows[i]; x.Set == "" && x.Spec != "ar" {
				label := x.Label()
				rows = append(rows, append([]string{label[0], label[1] + ", " + dtype}, fmt.Sprintf("%.2f", x.Tau), x.EndToEnd.String(), x.Decoding.String()))
			}
		}
	}
	return tables.Wrap(fmt.Sprintf("gsm10m deepened to 148 layers by layers that change nothing, so that the head costs about 1%% of a pass: a model of what a larger target "+
		"costs, not a larger target. %d prompts of the reporting part, problems and stories, up to %d tokens, greedy, twice in turn. All outputs equal those of plain decoding. %s\n\n", prompts, tokens, coldAuto)) +
		tables.Markdown([]string{"method", "asks, weights", "τ", "end to end", "decoding"}, rows), nil
}

func runPasses(ctx context.Context, l *lab) (string, error) {
	var d struct {
		Passes []struct {
			Model string
			Rows  int
			Best  float64 `json:"best_ms"`
			Ratio float64
		}
	}
	sizes := []int{1, 2, 4, 8, 16, 32, 64}
	// Products with fewer bits of the activations are another configuration of the device, and so another
	// command.
	var names []string
	for _, of := range []struct {
		flags []string
		name  func(dtype string) string
	}{
		{[]string{"--dtype", "f32,bf16,q8"}, func(dtype string) string { return dtype }},
		{[]string{"--dtype", "q8,q4", "--act-bits", "8"}, func(dtype string) string { return dtype + ", `--act-bits 8`" }},
	} {
		had := len(d.Passes)
		all := d.Passes
		d.Passes = nil
		if err := l.json(ctx, &d, "lab", l.scaled(slices.Concat([]string{"decode", "--rows", "1,2,4,8,16,32,64", "--reps", "20"}, of.flags, []string{"--json"}))...); err != nil {
			return "", err
		}
		d.Passes = append(all, d.Passes...)
		for _, p := range d.Passes[had:] {
			names = append(names, of.name(strings.ToLower(p.Model)))
		}
	}
	head := []string{"weights"}
	for _, n := range sizes {
		head = append(head, fmt.Sprint(n))
	}
	var rows [][]string
	for i, p := range d.Passes {
		if len(rows) == 0 || rows[len(rows)-1][0] != names[i] {
			rows = append(rows, []string{names[i]})
		}
		text := fmt.Sprintf("%.1f", p.Best)
		if p.Rows > 1 {
			text += fmt.Sprintf(" (%.2f)", p.Ratio)
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], text)
	}
	for _, r := range rows {
		if len(r) != len(head) {
			return "", fmt.Errorf("decode: %d sizes of %s, want %d", len(r)-1, r[0], len(sizes))
		}
	}
	return tables.Wrap("A pass of a 110M Llama with random weights over trees of 1 to 64 rows after 256 tokens, with logits of all rows: the best of 20, in ms; "+
		"in brackets the cost relative to one row. Rows of one command took turns; `--act-bits 8` multiplies the weights by activations of 8 bits.\n\n") + tables.Markdown(head, rows), nil
}

func runQuickstart(ctx context.Context, l *lab) (string, error) {
	type line struct {
		Method string
		Head   string
		Tau    float64
		Speed  float64 `json:"tokens_per_second"`
		Up     float64 `json:"speed_up"`
		Low    float64 `json:"speed_up_low"`
		High   float64 `json:"speed_up_high"`
		Dec    float64 `json:"speed_up_decoding"`
	}
	var q struct {
		Rows []line
		Deep []line `json:"deep_rows"`
	}
	dir := l.path("quickstart")
	if err := os.RemoveAll(filepath.Join(l.root, dir)); err != nil { // it would resume
		return "", err
	}
	if err := l.json(ctx, &q, "talf", "quickstart", "--dir", dir, "--json"); err != nil {
		return "", err
	}
	show := func(lines []line, what string) string {
		var rows [][]string
		for _, x := range lines {
			head, up, dec := x.Head, results.Interval{Value: x.Up, Low: x.Low, High: x.High}.String(), fmt.Sprintf("%.2f", x.Dec)
			if head == "" {
				head, up, dec = "–", "1.00", "1.00"
			}
			rows = append(rows, []string{"`" + x.Method + "`", head, fmt.Sprintf("%.2f", x.Tau), fmt.Sprintf("%.0f", x.Speed), up, dec})
		}
		return tables.Markdown([]string{what, "head", "τ", "tokens/s", "end to end", "decoding"}, rows)
	}
	return "The embedded Llama of 2.0M parameters as it is, then deepened to 100 layers of which the new ones change nothing.\n\n" +
		show(q.Rows, "2.0M") + "\n" + show(q.Deep, "deepened"), nil
}
