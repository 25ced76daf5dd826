package measurements

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"talf/lab/measurements/results"
	"talf/lab/measurements/tables"
)

// The models of the table of answers in a schema: a target that reads orders and writes them as JSON, a
// small language model of the same text, and a head for the target.
const (
	orderLayers  = 6 // of the target, in the shape of gsm10m otherwise
	orderSteps   = 300
	orderLMSteps = 500
	orderLabels  = 240
	orderEagle   = 120
	orderTalf    = 40
)

// trainLM trains a language model on the orders, with the configuration and the tokenizer of a directory.
func trainLM(ctx context.Context, l *lab, config, name string, steps, warmup int, lr string) error {
	for _, dir := range []string{name, name + "-run"} {
		if err := os.RemoveAll(filepath.Join(l.root, l.path(dir))); err != nil {
			return err
		}
	}
	_, err := l.run(ctx, "train", "--kind", "lm", "--model", l.path(config), "--data", l.path("orders", "training.jsonl"),
		"--template", "{prompt}", "--answer-field", "text", "--out", l.path(name+"-run"), "--steps", fmt.Sprint(l.amount(steps)), "--rows", "1024",
		"--lr", lr, "--min-lr", "0.05", "--warmup", fmt.Sprint(warmup), "--held-out", "0.02", "--seed", "1", "--eval-every", "0", "--export", l.path(name))
	return err
}

var ordersModel = &step{
	name: "orders-model", of: fmt.Sprint(orderLayers, orderSteps), code: []string{"compute", "internal/demo", "model", "train"},
	run: func(ctx context.Context, l *lab) error {
		from, to := filepath.Join(l.root, l.path("gsm10m")), filepath.Join(l.root, l.path("orders-config"))
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		for _, name := range []string{"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
			b, err := os.ReadFile(filepath.Join(from, name))
			if err != nil {
				return err
			}
			if name == "config.json" {
				var c map[string]any
				if err := json.Unmarshal(b, &c); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				c["num_hidden_layers"] = orderLayers
				if b, err = json.MarshalIndent(c, "", "  "); err != nil {
					return err
				}
			}
			if err := os.WriteFile(filepath.Join(to, name), b, 0o644); err != nil {
				return err
			}
		}
		return trainLM(ctx, l, "orders-config", "orders-model", orderSteps, 40, "3e-3")
	},
}

var ordersLM = &step{
	name: "orders-lm", of: fmt.Sprint(orderLMSteps), code: []string{"compute", "internal/demo", "model", "train"},
	run: func(ctx context.Context, l *lab) error {
		return trainLM(ctx, l, "gsm10m-lm", "orders-lm", orderLMSteps, 60, "4e-3")
	},
}

var ordersHead = &step{
	name: "orders-head", of: fmt.Sprint(orderLabels, orderEagle, orderTalf), code: []string{"compute", "data", "model", "preprocess", "train", "tree"},
	after: []*step{ordersModel},
	run: func(ctx context.Context, l *lab) error {
		for _, dir := range []string{"orders-labels", "orders-head"} {
			if err := os.RemoveAll(filepath.Join(l.root, l.path(dir))); err != nil {
				return err
			}
		}
		if _, err := l.run(ctx, "preprocess", "--model", l.path("orders-model"), "--data", l.path("orders", "training.jsonl"), "--limit", fmt.Sprint(max(l.amount(orderLabels), 8)),
			"--template", "{prompt}", "--answer-field", "text", "--loss-only", "--max-len", "320", "--out", l.path("orders-labels")); err != nil {
			return err
		}
		_, err := l.run(ctx, "train", "--model", l.path("orders-model"), "--data", l.path("orders-labels"), "--out", l.path("orders-head"),
			"--stage", fmt.Sprintf("eagle:%d:lr=3e-3", l.amount(orderEagle)), "--stage", fmt.Sprintf("talf:%d:lr=1.5e-3", l.amount(orderTalf)),
			"--rows", "1024", "--min-lr", "0.05", "--seed", "1", "--eval-every", "0")
		return err
	},
}

// What the rows of answers in a format are called, behind the method.
const (
	inFormat = ", in the format"
	unforced = ", unforced"
)

func runStructured(ctx context.Context, l *lab) (string, error) {
	schema := l.path("orders", "schema.json")
	prompts, drafts := l.path("orders", "test.jsonl"), []string{"--head", "talf=" + l.path("orders-head"), "--draft", "lm=" + l.path("orders-lm")}
	r, err := l.benchOn(ctx, "orders-model", "structured", slices.Concat(drafts,
		[]string{"--prompts", prompts, "--limit", "11", "--warmup", "1", "--max-tokens", "128", "--json-schema", schema},
		methods("pld", "recycle", "beam:N=16,k=4,depth=4", "salf:N=8,B=4,th=0.3", "auto"))...)
	if err != nil {
		return "", err
	}
	table, err := structured(r)
	if err != nil {
		return "", err
	}
	verdicts, err := l.validated(ctx, prompts, schema, drafts[:2])
	if err != nil {
		return "", err
	}
	return tables.Wrap(fmt.Sprintf("The target has %d layers in the shape of gsm10m and was trained for %d steps on orders and what they are as JSON; the small language model (LM) and the head on the same. "+
		"%d prompts, up to %d tokens, greedy, f32, repetitions: %d, free and held to the schema; each speed-up is over plain decoding of the same kind, with 95%% intervals over prompts. "+
		"Unforced: what the schema alone allows is in no tree that the method does not draft it for. All outputs equal those of plain decoding of their kind. %s\n\n",
		orderLayers, orderSteps, r.Prompts, r.MaxTokens, r.Repeat, verdicts)) + table, nil
}

// structured shows, for every method, its three kinds of rows.
func structured(r *results.Report) (string, error) {
	var rows [][]string
	for i := range r.Rows {
		free := &r.Rows[i]
		if free.Spec == "ar" || strings.Contains(free.Method, inFormat) {
			continue
		}
		cells := append(free.Label(), fmt.Sprintf("%.2f", free.Tau), free.EndToEnd.String())
		for _, kind := range []string{inFormat, inFormat + unforced} {
			at := slices.IndexFunc(r.Rows, func(x results.Row) bool { return x.Source == free.Source && x.Method == heldAs(free.Method, kind) })
			if at < 0 {
				return "", fmt.Errorf("%s: no figures of %q", free.Method, heldAs(free.Method, kind))
			}
			cells = append(cells, fmt.Sprintf("%.2f", r.Rows[at].Tau), r.Rows[at].EndToEnd.String())
		}
		rows = append(rows, cells)
	}
	return tables.Markdown([]string{"method", "asks", "free: τ", "end to end", "in the schema: τ", "end to end", "unforced: τ", "end to end"}, rows), nil
}

// heldAs is what a method's row of a kind is called: "cold" comes last.
func heldAs(method, kind string) string {
	if m, cold := strings.CutSuffix(method, ", cold"); cold {
		return m + kind + ", cold"
	}
	return method + kind
}

// validated says how many answers, with the schema and without, are complete and valid.
func (l *lab) validated(ctx context.Context, prompts, schema string, drafts []string) (string, error) {
	b, err := os.ReadFile(filepath.Join(l.root, schema))
	if err != nil {
		return "", err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return "", fmt.Errorf("%s: %w", schema, err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("orders.json", doc); err != nil {
		return "", err
	}
	s, err := c.Compile("orders.json")
	if err != nil {
		return "", err
	}
	var said []string
	for name, held := range map[string][]string{"free": nil, "held": {"--json-schema", schema}} {
		out := l.path("orders-" + name + ".jsonl")
		if err := os.RemoveAll(filepath.Join(l.root, out)); err != nil {
			return "", err
		}
		if _, err := l.run(ctx, slices.Concat([]string{"generate", "--model", l.path("orders-model")}, []string{"--head", strings.TrimPrefix(drafts[1], "talf=")},
			held, []string{"--prompts", prompts, "--max-tokens", "128", "--method", "salf", "--out", out})...); err != nil {
			return "", err
		}
		b, err := os.ReadFile(filepath.Join(l.root, out))
		if err != nil {
			return "", err
		}
		ended, valid, all := 0, 0, 0
		for line := range bytes.Lines(b) {
			var a struct{ Text, Stop string }
			if err := json.Unmarshal(line, &a); err != nil {
				return "", fmt.Errorf("%s: %w", out, err)
			}
			if all++; a.Stop == "length" {
				continue
			}
			ended++
			if v, err := jsonschema.UnmarshalJSON(strings.NewReader(a.Text)); err == nil && s.Validate(v) == nil {
				valid++
			}
		}
		if held != nil && valid != ended {
			return "", fmt.Errorf("%s: %d of %d answers that ended are valid", out, valid, ended)
		}
		said = append(said, fmt.Sprintf("of %d %s answers %d ended, and %d of these are valid", all, name, ended, valid))
	}
	slices.Sort(said)
	return strings.ToUpper(said[0][:1]) + said[0][1:] + "; " + said[1] + " (santhosh-tekuri/jsonschema).", nil
}
