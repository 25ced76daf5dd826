package measurements

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talf/lab/measurements/results"
	"talf/lab/measurements/tables"
)

// singles are what auto is held against: methods that know before the first token what they draft with.
var singles = []string{"pld", "goose:N=8", "salf", "salf:N=8,B=4,th=0.3", "static:chain-4"}

// coldAuto says what the rows of auto are.
const coldAuto = "`auto` goes on with what it learnt from the earlier prompts of a repetition, never from the prompt itself; *cold* begins every answer anew."

// tolerated is the speed relative to plain decoding below which a prompt counts as slower.
const tolerated = 0.97

// runAuto holds auto against plain decoding and against single methods, prompt by prompt. Plain decoding takes
// a second turn, whose distance from the first is noise.
func runAuto(ctx context.Context, l *lab) (string, error) {
	var rows [][]string
	var first *results.Report
	shown := 0 // commands
	for _, dtype := range []string{"f32", "bf16", "q8"} {
		for _, t := range []struct{ temperature, again string }{{"0", "ar@greedy"}, {"1", "ar@target"}} {
			r, err := l.bench(ctx, "auto-"+dtype+"-"+t.temperature, slices.Concat([]string{"--dtype", dtype}, l.drafts(), l.promptFlags(),
				[]string{"--split", "report", "--limit", "5", "--warmup", "1", "--max-tokens", "64", "--repeat", "6", "--temperature", t.temperature},
				methods("ar"), methods(t.again), methods("auto"), methods(singles...))...)
			if err != nil {
				return "", err
			}
			if first == nil {
				first = r
			}
			if dtype == "f32" {
				shown = len(l.commands)
			}
			for i := range r.Rows {
				x := &r.Rows[i]
				if x.Set != "" || x.Spec != "auto" && x.Method == x.Spec || x.Spec != "auto" && x.Spec != "ar" {
					continue
				}
				cells, err := besides(x)
				if err != nil {
					return "", fmt.Errorf("%s, %s, temperature %s: %w", x.Method, dtype, t.temperature, err)
				}
				rows = append(rows, append([]string{dtype, t.temperature}, cells...))
			}
		}
	}
	l.commands = l.commands[:shown] // the others differ in --dtype
	var b strings.Builder
	b.WriteString(tables.Wrap(fmt.Sprintf("The same with `--dtype bf16` and `--dtype q8`. %d prompts of the reporting part of six sets, after %d of each to warm up, up to %d tokens, %d times in turn. "+
		"Outputs equal those of plain decoding. Speed-ups are ratios of totals, with 95%% intervals over prompts; a prompt's own is the ratio of the medians over its repetitions. %s\n", first.Prompts, first.Warmup, first.MaxTokens, first.Repeat, coldAuto)))
	b.WriteString(tables.Wrap(fmt.Sprintf("\"Of the best\" is the speed end to end relative to the fastest of plain decoding, `%s`, of which those that ask a draft model ask the same one: "+
		"of the one that was fastest on each prompt in the other repetitions, so that luck does not choose it, and of the one that is fastest over all prompts. "+
		"*Plain decoding again* is the same decoding a second time in every turn: its slowest prompt, and its prompts below %.2f, are the noise of this machine.\n", strings.Join(singles, "`, `"), tolerated)))
	b.WriteString(tables.Wrap(fmt.Sprintf("*Surely below* counts prompts by one-sided t-tests of the logarithms of their speeds over that of plain decoding in the same repetition: "+
		"at 95%% each for itself, which one in twenty is by chance where all are at %.2f (%.1f of %d), and at 95%% all together (Holm), which one such row in twenty has any of. "+
		"The slowest prompt in decoding has its 95%% interval over repetitions.\n\n", tolerated, 0.05*float64(first.Prompts), first.Prompts)))
	b.WriteString(tables.Markdown([]string{
		"weights", "temperature", "method", "asks", "τ", "end to end", "decoding", "slowest prompt, end to end", "slowest prompt, decoding",
		fmt.Sprintf("below %.2f, decoding", tolerated), "surely below: each, all", "of the best of each prompt", "of the best of all prompts",
	}, rows))
	return b.String(), nil
}

// besides are the cells of a row of auto, or of plain decoding's second turn.
func besides(r *results.Row) ([]string, error) {
	slow, err := r.Slow(tolerated)
	if err != nil {
		return nil, err
	}
	each, one := "", ""
	best := func() string { // as it was asked for; plain decoding is the same in both turns
		name, _, _ := strings.Cut(strings.TrimSuffix(r.Hindsight.Best, " "+r.Source), " @")
		return name
	}
	label := r.Label()
	switch {
	case r.Spec == "ar":
		label = []string{"plain decoding again", "–"}
	case r.Hindsight == nil:
		return nil, fmt.Errorf("nothing says which method is the best of each prompt")
	default:
		each, one = r.Hindsight.Each.String(), fmt.Sprintf("%s, `%s`", r.Hindsight.One, best())
	}
	return slices.Concat(label, []string{fmt.Sprintf("%.2f", r.Tau), r.EndToEnd.String(), r.Decoding.String()}, slow, []string{each, one}), nil
}
