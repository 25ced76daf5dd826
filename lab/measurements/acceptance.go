package measurements

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talf/lab/measurements/results"
	"talf/lab/measurements/tables"
)

// learning says what the rows of methods that learn are.
const learning = "Methods that learn go on with what they learnt from the earlier prompts of all sets in the same repetition, never from the prompt itself; *cold* begins every answer anew. " +
	"With `table=keep` a method is warm, without it cold."

func runMethods(ctx context.Context, l *lab) (string, error) {
	r, err := l.paper(ctx, "methods", slices.Concat(l.drafts(), l.promptFlags(),
		[]string{"--datastore", l.path("answers.idx"), "--split", "report", "--limit", "4", "--warmup", "0", "--max-tokens", "64", "--temperature", "0,1", "--repeat", "2", "--paper", "talf:methods"})...)
	if err != nil {
		return "", err
	}
	return acceptance(r, "The head is that of [speed](speed.md); `rest` copies from the answers that it was trained on. "+learning)
}

// runCopies compares what drafts from the text alone: prompt lookup, suffix trees, and GOOSE.
func runCopies(ctx context.Context, l *lab) (string, error) {
	r, err := l.bench(ctx, "copies", slices.Concat(l.promptFlags(),
		[]string{"--split", "report", "--limit", "12", "--warmup", "0", "--max-tokens", "64", "--temperature", "0,1", "--repeat", "2"},
		methods("pld", "suffix", "suffix:table=keep", "goose", "goose:N=8"))...)
	if err != nil {
		return "", err
	}
	return acceptance(r, learning)
}

// acceptance is what was measured as two tables for each temperature: τ by set, and speed-ups.
func acceptance(r *results.Report, about string) (string, error) {
	temperatures := []float64{0, 1}
	var b strings.Builder
	text := fmt.Sprintf("%d prompts of the reporting part of six sets, up to %d tokens, f32, one seed, %d times in turn. Greedy outputs equal those of plain decoding. %s "+
		"\"all\" has a 95%% interval over prompts. Speed-ups are ratios of totals with 95%% intervals over prompts, and beside them means over prompts; "+
		"\"of the fastest\" is a method's speed end to end over that of the fastest, on the same prompts.\n", r.Prompts, r.MaxTokens, r.Repeat, about)
	for _, t := range temperatures {
		fastest, err := r.Fastest(t)
		if err != nil {
			return "", err
		}
		text += fastest
	}
	b.WriteString(tables.Wrap(text))
	for _, t := range temperatures {
		var taus, speeds [][]string
		for i := range r.Rows {
			x := &r.Rows[i]
			if x.Set != "" || x.Spec == "ar" || x.Temperature != t {
				continue
			}
			cells := x.Label()
			for _, s := range sets {
				y, err := r.Of(x, s)
				if err != nil {
					return "", err
				}
				cells = append(cells, fmt.Sprintf("%.2f", y.Tau))
			}
			taus = append(taus, append(cells, x.TauOf.String()))
			speeds = append(speeds, append(x.Label(), x.EndToEnd.String(), x.EndMean.String(), x.Decoding.String(), x.DecodeMean.String(), fmt.Sprintf("%.2f", x.Slowest), r.OfFastest(x)))
		}
		b.WriteString("\n" + tables.Markdown(slices.Concat([]string{fmt.Sprintf("τ, temperature %g", t), "asks"}, sets, []string{"all"}), taus))
		b.WriteString("\n" + tables.Markdown([]string{
			fmt.Sprintf("speed-up, temperature %g", t), "asks", "end to end", "by prompt", "decoding", "decoding by prompt", "slowest prompt, decoding", "of the fastest",
		}, speeds))
	}
	return b.String(), nil
}
