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

// The ablation of EAGLE-3 heads: rows that each change one thing. Those of the first groups are new heads, with few
// steps of training-time test; those of the last continue one with more of them along trees. One seed.
const (
	partAnswers = 120
	partFresh   = 60
	partStart   = 120 // steps of the head that others continue
	partMore    = 20
	partLimit   = 4 // prompts of each set
)

// A part is one of these heads.
type part struct {
	group, value string // what is changed, and to what
	network      string
	loss         string
	labels       *step
	vocab        int  // --draft-vocab; 0: all tokens
	more         bool // it continues
}

// threeTaps are the default of a target of 12 layers. The data hold one more, so they are named.
const threeTaps = "eagle3:taps=2+6+9"

// parts are the heads; the first of both kinds is what the others of its kind are compared with.
var parts = []part{
	{group: "steps", value: "7", network: threeTaps, loss: "eagle3", labels: partLabels},
	{group: "steps", value: "1", network: threeTaps, loss: "eagle3:steps=1", labels: partLabels},
	{group: "steps", value: "3", network: threeTaps, loss: "eagle3:steps=3", labels: partLabels},
	{group: "draft vocabulary", value: "1/4", network: threeTaps, loss: "eagle3", labels: partLabels, vocab: 1024},
	{group: "draft vocabulary", value: "1/8", network: threeTaps, loss: "eagle3", labels: partLabels, vocab: 512},
	{group: "taps", value: "low, 2", network: "eagle3:taps=2", loss: "eagle3", labels: partLabels},
	{group: "taps", value: "middle, 6", network: "eagle3:taps=6", loss: "eagle3", labels: partLabels},
	{group: "taps", value: "high, 9", network: "eagle3:taps=9", loss: "eagle3", labels: partLabels},
	{group: "taps", value: "last, 12", network: "eagle3:taps=12", loss: "eagle3", labels: partLabels},
	{group: "trees", value: "k 4, depth 3", loss: "talf", labels: partLabels, more: true},
	{group: "trees", value: "k 4, depth 2", loss: "talf:levels=2", labels: partLabels, more: true},
	{group: "trees", value: "k 4, depth 1", loss: "talf:levels=1", labels: partLabels, more: true},
	{group: "trees", value: "k 2, depth 3", loss: "talf", labels: partK2, more: true},
	{group: "trees", value: "k 1, depth 3", loss: "talf", labels: partK1, more: true},
}

// base is the index of the part that it is compared with.
func (p *part) base() int {
	return slices.IndexFunc(parts, func(q part) bool { return q.more == p.more })
}

// partName names the head of a part.
func partName(i int) string { return fmt.Sprintf("part%d", i+1) }

// Labels of the same answers, by the nodes that a tree has on a level.
var (
	partText   = answersTo("parts-", partAnswers)
	partLabels = partSet("parts-labels")
	partK2     = partSet("parts-k2", "--k", "2")
	partK1     = partSet("parts-k1", "--k", "1")
)

// partSet labels with the states of the taps that are default, and of the last layer.
func partSet(name string, flags ...string) *step {
	return &step{
		name: name, of: partText.of, code: labels.code, after: []*step{partText},
		run: func(ctx context.Context, l *lab) error {
			args, err := tttLabel(l, "parts-answers.jsonl", name, append([]string{"--features", "taps:2+6+9+12"}, flags...)...)
			if err != nil {
				return err
			}
			return l.pair(ctx, args)
		},
	}
}

func partDir(l *lab, elem ...string) string {
	return l.path(append([]string{"eagle3-parts"}, elem...)...)
}

// partBegun trains the head that others continue.
var partBegun = &step{
	name: "parts-start", of: fmt.Sprint(partStart, tttRows, tttRates[0]), code: head.code, after: []*step{partLabels},
	run: func(ctx context.Context, l *lab) error {
		to := partDir(l, "start")
		if err := os.RemoveAll(filepath.Join(l.root, to)); err != nil {
			return err
		}
		return l.pair(ctx, tttArgs(l, partLabels.name, threeTaps, "eagle3", "", to, tttRates[0], l.amount(partStart), 1))
	},
}

// partsOf says what the heads are.
func partsOf() string {
	of := fmt.Sprint(partFresh, partMore, tttRows, tttRates)
	for _, p := range parts {
		of += fmt.Sprint("; ", p.network, p.loss, p.labels.name, p.vocab)
	}
	return of
}

// partHeads trains all.
var partHeads = &step{
	name: "parts-heads", of: partsOf(), code: head.code, after: []*step{partBegun, partK2, partK1},
	run: func(ctx context.Context, l *lab) error {
		var all [][]string
		for i := range parts {
			p := &parts[i]
			to, from, lr, steps := partDir(l, partName(i)), "", tttRates[0], partFresh
			if p.more {
				from, lr, steps = partDir(l, "start"), tttRates[1], partMore
			}
			if err := os.RemoveAll(filepath.Join(l.root, to)); err != nil {
				return err
			}
			args := tttArgs(l, p.labels.name, p.network, p.loss, from, to, lr, l.amount(steps), 1)
			if p.vocab > 0 {
				args = append(args, "--draft-vocab", fmt.Sprint(p.vocab))
			}
			all = append(all, args)
		}
		return l.pair(ctx, all...)
	},
}

// partEnd answers prompts with all.
var partEnd = &step{
	name: "parts-end", of: fmt.Sprint(tttSets, partLimit, tttMethods), code: tttEnd(1).code, after: []*step{partHeads},
	run: func(ctx context.Context, l *lab) error {
		var heads []string
		for i := range parts {
			heads = append(heads, partName(i)+"="+partDir(l, partName(i)))
		}
		return l.halves(ctx, partDir(l), heads, partLimit)
	},
}

// runParts is the exhibit. It shows the commands of labels, of some heads and of the answers.
func runParts(_ context.Context, l *lab) (string, error) {
	if err := l.noted(func(string) bool { return true }, partText, partLabels, partK2, partK1, partBegun); err != nil {
		return "", err
	}
	if err := l.noted(shownPart(l), partHeads, partEnd); err != nil {
		return "", err
	}
	p := &results.Pool{}
	tokens, err := l.join(p, partDir(l))
	if err != nil {
		return "", err
	}
	return partTables(p, tokens)
}

// shownPart says which commands are shown: those of the first row of both kinds. What the others vary is in the table.
func shownPart(l *lab) func(command string) bool {
	return func(c string) bool {
		c = strings.Join(strings.Fields(c), " ")
		for i := range parts {
			if parts[i].base() == i && strings.Contains(c, "--out "+partDir(l, partName(i))+" ") {
				return true
			}
		}
		return strings.Contains(c, "--log "+partDir(l, "1.jsonl"))
	}
}

// partTables writes the section.
func partTables(p *results.Pool, tokens int) (string, error) {
	var b strings.Builder
	b.WriteString(tables.Wrap(fmt.Sprintf("One seed. Heads of the first groups are new and have %d steps of training-time test at lr %s: all tokens, 7 steps and the taps 2, 6 and 9, but for what the row says; "+
		"a draft vocabulary counts with `mask`. Those of the last group continue a head of %d such steps with %d steps of `talf` at lr %s, on trees of k tokens a level and as deep as the row says. "+
		"%d positions a step, on the target's greedy answers to %d training prompts. As many steps, so unequal time. The commands are those of the first row of both kinds.\n\n"+
		"%d prompts of the reporting part (%s), up to %d tokens, `%s`. Differences are from the first row of the same kind, with 95%% intervals of a bootstrap over prompts. Greedy outputs equal those of plain decoding.\n\n",
		partFresh, tttRates[0], partStart, partMore, tttRates[1], tttRows, partAnswers, len(p.Prompts), strings.Join(tttSets, ", "), tokens, tttMethods[0])))
	var rows [][]string
	for i := range parts {
		x := &parts[i]
		row := []string{x.group + ": " + x.value}
		for _, t := range []float64{0, 1} {
			of := func(i int) (results.Shares, error) {
				return results.Found(p.Tau, results.Drafted{Spec: tttMethods[0], Temperature: t, Loss: partName(i)})
			}
			own, err := of(i)
			if err != nil {
				return "", err
			}
			row = append(row, own.Pooled().String())
			if x.base() == i {
				row = append(row, "")
				continue
			}
			from, err := of(x.base())
			if err != nil {
				return "", err
			}
			row = append(row, difference(own.Minus(from)))
		}
		rows = append(rows, row)
	}
	b.WriteString(tables.Markdown([]string{"τ", "T=0", "difference", "T=1", "difference"}, rows))
	return b.String(), nil
}
