package measurements

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"talf/lab/measurements/tables"
)

// A quote is a cell of a summary whose figures come from a block: of the row of file whose cells
// hold what and on, the cell after them. In text, {table|row|column} stands for a cell of
// that table.
type quote struct{ file, what, on, text string }

var quotes = []quote{
	{"README.md", "`talf quickstart`: a head trained in a minute, where a pass costs more", "2M Llama deepened to 100 layers", "{quickstart|salf, talf|end to end} times"},
	{"README.md", "`auto` with a head trained for minutes, over plain decoding", "10M Llama, six prompt sets", "{speed|auto, head|end to end} times; {speed|auto, head|by set, end to end} by set"},
	{"README.md", "`salf` where the head costs 1% of a pass, as with large models, f32 / q8", "10M Llama deepened to 148 layers", "{depth|salf, head, f32|end to end} / {depth|salf, head, q8|end to end} times"},
	{"docs/performance.md", "quickstart: `salf`, head trained with `eagle` / then `talf`", "2.0M Llama deepened to 100 layers, generated text", "τ {quickstart|salf, eagle|τ} / {quickstart|salf, talf|τ}, speed-up end to end {quickstart|salf, eagle|end to end} / {quickstart|salf, talf|end to end}"},
	{"docs/performance.md", "the same heads with `salf`, on the small model itself", "2.0M Llama, generated text", "τ {quickstart|salf:N=12,B=4,th=0.2, eagle|τ} / {quickstart|salf:N=12,B=4,th=0.2, talf|τ}, speed-up end to end {quickstart|salf:N=12,B=4,th=0.2, eagle|end to end} / {quickstart|salf:N=12,B=4,th=0.2, talf|end to end}: a pass costs less than drafting"},
	{"docs/performance.md", "`auto` with a head / a small language model", "gsm10m, six own sets", "speed-up end to end {speed|auto, head|end to end} / {speed|auto, LM|end to end}"},
	{"docs/performance.md", "`auto` on the prompt that suits it least, with a head / a small language model, and plain decoding against itself", "gsm10m, six own sets, f32, greedy", "speed-up of decoding {auto|f32, 0, auto, head|slowest prompt, decoding} / {auto|f32, 0, auto, LM|slowest prompt, decoding}, {auto|f32, 0, plain decoding again, –|slowest prompt, decoding}"},
	{"docs/performance.md", "`auto` against the best other method of each prompt, with a head / a small language model", "gsm10m, six own sets, f32, greedy", "speed end to end {auto|f32, 0, auto, head|of the best of each prompt} / {auto|f32, 0, auto, LM|of the best of each prompt} of its"},
	{"docs/performance.md", "`goose:N=8`, no draft model", "gsm10m, six own sets", "τ {speed|goose:N=8, –|τ}, speed-up end to end {speed|goose:N=8, –|end to end}"},
	{"docs/performance.md", "`eagle` / `hass` / `talf` / `eal`, as much time", "gsm10m, own prompts", "τ of `optimal:paper`, greedy, three seeds {losses|eagle|optimal:paper, T=0} / {losses|hass|optimal:paper, T=0} / {losses|talf|optimal:paper, T=0} / {losses|eal|optimal:paper, T=0}"},
	{"docs/performance.md", "`eagle` / `hass` / `talf` / `eal`, as much time, with quickstart's text", "2.0M Llama, generated text", "τ of `optimal:paper`, greedy, three seeds {losses-quickstart|eagle|optimal:paper, T=0} / {losses-quickstart|hass|optimal:paper, T=0} / {losses-quickstart|talf|optimal:paper, T=0} / {losses-quickstart|eal|optimal:paper, T=0}"},
	{"docs/performance.md", "`salf` where the head costs 1% of a pass, f32 / q8", "gsm10m deepened to 148 layers, own prompts", "speed-up end to end {depth|salf, head, f32|end to end} / {depth|salf, head, q8|end to end}"},
}

var reference = regexp.MustCompile(`\{[^{}]+\}`)

// fill replaces the references in q by the cells that they name.
func (q *quote) fill(root string) (string, error) {
	var failed error
	out := reference.ReplaceAllStringFunc(q.text, func(s string) string {
		part := strings.Split(strings.Trim(s, "{}"), "|")
		text, err := quoteCell(root, part)
		failed = errors.Join(failed, err)
		return text
	})
	return out, failed
}

func quoteCell(root string, part []string) (string, error) {
	if len(part) != 3 {
		return "", fmt.Errorf("%q: want a table, a row and a column", part)
	}
	x := find(part[0])
	if x == nil {
		return "", fmt.Errorf("%q: no such table", part)
	}
	page, err := os.ReadFile(filepath.Join(root, x.page))
	if err != nil {
		return "", err
	}
	body, err := tables.Block(string(page), x.name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", x.page, err)
	}
	text, err := tables.Cell(body, part[1], part[2])
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", x.page, x.name, err)
	}
	return text, nil
}

// write puts the quote into its file's text.
func (q *quote) write(text, figures string) (string, error) {
	prefix := fmt.Sprintf("| %s | %s | ", q.what, q.on)
	i := strings.Index(text, "\n"+prefix)
	if i < 0 {
		return "", fmt.Errorf("%s: no row that begins %q", q.file, prefix)
	}
	i += 1 + len(prefix)
	n := strings.Index(text[i:], " |")
	if n < 0 {
		return "", fmt.Errorf("%s: the row that begins %q does not end", q.file, prefix)
	}
	return text[:i] + figures + text[i+n:], nil
}

func quoteAll(root string) error {
	for i := range quotes {
		q := &quotes[i]
		figures, err := q.fill(root)
		if err != nil {
			return err
		}
		if err := rewrite(filepath.Join(root, q.file), func(s string) (string, error) { return q.write(s, figures) }); err != nil {
			return err
		}
	}
	return nil
}
