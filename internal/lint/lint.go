// Package lint checks the repository against rules that no compiler checks: which package may
// import which, that generated files match their generator, that every dependency has a stated
// reason, and that no file names a path of the machine it was written on.
package lint

import (
	"fmt"
	"slices"
	"strings"
)

// Module is this module's path.
const Module = "talf"

// A Package is what `go list -json` says about one.
type Package struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// A Rule lists what the packages under From may import from this module, in addition to packages
// under From itself. A name that ends in "/..." covers the packages below it too.
type Rule struct {
	From string
	May  []string
}

// Rules are the import arrows of the architecture; data flows along them one
// way. The longest matching From decides.
var Rules = []Rule{
	{".", []string{
		"checkpoints", "data/corpus", "infer", "infer/decode", "infer/loop", "internal/mapped", "model", "model/identity", "model/sample",
		"preprocess", "serve", "serve/metrics", "text/chat", "train", "train/plan",
	}},
	{"tree/...", nil},
	{"compute", nil},
	{"compute/cpu/...", []string{"compute", "internal/detmath", "internal/slab"}},
	{"compute/cuda/...", []string{"compute", "internal/mapped"}},
	{"compute/computetest/...", []string{"compute"}},
	{"compute/devices", []string{"compute", "compute/cpu/...", "compute/cuda"}},
	{"model/...", []string{"compute", "internal/detmath", "internal/mapped", "internal/slab", "internal/splitmix", "internal/texts", "internal/units", "tree"}},
	{"model/gguf/write", []string{"model/...", "text/tokenizer"}}, // an exported head carries its target's tokenizer
	{"text/...", []string{"model/gguf"}},
	{"text/tokenizer/...", []string{"internal/mapped", "internal/slab", "internal/texts", "model/gguf"}},
	{"text/grammar/...", nil},
	{"text/toolcall", []string{"text/chat", "text/grammar/..."}},
	{"text/transcode", []string{"text/chat", "text/tokenizer"}},
	{"data", []string{"data/internal/...", "model/identity", "tree"}},
	{"data/internal/...", nil},
	{"data/corpus", []string{"text/chat"}},
	{"model/head", []string{"compute", "model/..."}},
	{"model/internal/probs", []string{"compute/cpu/kern"}}, // its assembly is of the kernels' classes
	{"model/quantize", []string{"compute", "compute/cpu/kern", "model/..."}},
	{"checkpoints/medusa", []string{"checkpoints/internal/torchfile", "model/..."}},
	{"checkpoints/...", []string{"compute", "internal/spec", "internal/units", "model/..."}},
	{"preprocess/...", []string{"compute", "data/...", "internal/slab", "internal/spec", "internal/splitmix", "model/...", "tree/...", "text/chat", "text/tokenizer"}},
	{"preprocess/regenerate", []string{"infer", "infer/decode", "infer/loop", "model", "model/sample", "preprocess"}},
	{"preprocess/remote", []string{"data", "internal/jsonl", "model/sample", "preprocess", "preprocess/regenerate"}},
	{"train/...", []string{"checkpoints", "compute", "data/...", "internal/detmath", "internal/jsonl", "internal/launch", "internal/slab", "internal/spec", "internal/units", "model/...", "tree", "text/tokenizer"}},
	{"train/plan", []string{"compute", "compute/devices", "data", "internal/launch", "train", "train/dist", "train/mix"}},
	{"train/history", []string{"internal/plot", "train"}},
	{"train/tensorboard", []string{"train"}},
	{"infer/...", []string{"compute", "internal/mapped", "internal/slab", "internal/spec", "internal/splitmix", "model/...", "tree/...", "text/tokenizer"}},
	{"infer/constrain", []string{"infer", "text/grammar/...", "model/sample", "text/tokenizer", "tree"}},
	{"infer/draft/auto", []string{"infer", "tree"}},
	{"infer/loop", []string{"infer", "infer/draft/auto", "internal/slab", "model", "model/sample"}},
	{"infer/draft/papers/lookahead", []string{"infer", "tree"}},
	{"infer/draft/papers", []string{"infer", "infer/draft/memory", "infer/draft/method", "infer/draft/papers/lookahead", "infer/draft/search", "infer/draft/shape", "infer/lookup/...", "internal/spec", "tree"}},
	{"infer/draft/method", []string{"infer", "infer/draft/memory", "infer/draft/search", "infer/draft/shape", "infer/lookup/...", "internal/spec", "model/sample", "tree"}},
	{"infer/lookup/suffixtree", []string{"internal/splitmix"}},
	{"infer/draft/suffix", []string{"infer", "infer/lookup/suffixtree"}},
	{"infer/draft/predict", []string{"infer", "infer/lookup", "tree"}},
	{"infer/draft/search", []string{"tree"}},
	{"infer/draft/shape", []string{"tree"}},
	{"infer/prefix", []string{"model"}},
	{"infer/score", []string{"model/...", "tree"}},
	{"serve", []string{"infer", "infer/constrain", "infer/decode", "infer/draft", "infer/draft/predict", "infer/loop", "infer/prefix", "serve/...", "infer/source", "infer/trace", "infer/verify", "internal/version", "model/...", "text/..."}},
	{"serve/metrics", []string{"infer", "infer/loop", "internal/version"}},
	{"serve/playground", nil},
	{"serve/spans", []string{"internal/version"}},
	{"serve/wire", []string{"serve/wire/refuse", "model/sample"}},
	{"serve/wire/refuse", nil},
	{"infer/decode", []string{"checkpoints", "checkpoints/medusa", "compute", "compute/devices", "infer/...", "internal/jsonl", "internal/splitmix", "model/...", "text/..."}},
	{"infer/prompts", []string{"data/corpus", "infer/decode", "text/chat"}},
	{"infer/bench", []string{"infer", "infer/loop", "infer/bench/rounds", "infer/constrain", "infer/decode", "infer/draft/...", "infer/verify", "internal/jsonl", "internal/plot", "internal/slab", "internal/table", "model/identity", "model/sample"}},
	{"infer/bench/benchtest", []string{"compute/cpu", "infer", "infer/bench", "infer/draft/drafttest"}},
	{"infer/bench/diagnose", []string{"checkpoints", "compute", "infer/bench/heads", "model/..."}},
	{"infer/bench/perplexity", []string{"compute/cpu/topology", "internal/table", "internal/version", "model/...", "text/tokenizer"}},
	{"infer/bench/rig", []string{"infer", "infer/bench", "infer/bench/heads", "infer/constrain", "infer/decode", "infer/prompts", "infer/source", "internal/plot", "internal/table", "model/...", "text/..."}},
	{"infer/bench/heads", []string{"infer", "infer/bench", "internal/plot", "internal/spec", "internal/table", "model/...", "tree"}},
	{"infer/bench/rounds", []string{"infer", "model", "tree"}},
	{"internal/await", nil},
	{"internal/cli", []string{"internal/mapped"}},
	{"internal/demo", nil},
	{"internal/doctor", []string{"compute/cpu/...", "compute/devices", "internal/units", "internal/version"}},
	{"internal/durable", nil},
	{"internal/hint", nil},
	{"internal/vfs/...", nil},
	{"internal/e2e/...", []string{"cmd/talf/command", "compute/...", "data/...", "infer/...", "internal/...", "model/...", "preprocess", "train/...", "tree", "serve/...", "text/..."}},
	{"internal/golden", nil},
	{"internal/inspect", []string{"checkpoints", "checkpoints/medusa", "compute", "compute/devices", "data", "infer/lookup/datastore", "internal/units", "model/...", "train/mix"}},
	{"internal/ijson", nil},
	{"internal/jsonl", nil},
	{"internal/launch", nil},
	{"internal/leak", nil},
	{"internal/guide", nil},
	{"internal/limits/...", nil},
	{"internal/lint", nil},
	{"internal/manpages", []string{"cmd/talf/command"}},
	{"internal/mapped", nil},
	{"internal/detmath", nil},
	{"internal/slab", nil},
	{"internal/splitmix", nil},
	{"internal/texts", nil},
	{"internal/plot", nil},
	{"internal/quickstart", []string{"infer/...", "internal/demo", "internal/plot", "internal/stages", "model/...", "preprocess", "train", "text/..."}},
	{"internal/makehead", []string{"data", "infer/...", "internal/stages", "internal/units", "model/...", "preprocess", "train", "train/mix", "train/net", "text/..."}},
	{"internal/stages", nil},
	{"internal/wire", nil},
	{"internal/report", []string{
		"checkpoints", "infer", "infer/bench", "infer/bench/heads", "infer/bench/rig", "infer/trace", "internal/cli", "internal/plot", "internal/table", "internal/version",
		"model/identity", "train",
	}},
	{"cmd/talf/...", []string{
		"checkpoints",
		"compute/...",
		"data/...",
		"infer/...",
		"internal/cli",
		"internal/demo",
		"internal/doctor",
		"internal/inspect",
		"internal/jsonl",
		"internal/launch",
		"internal/makehead",
		"internal/plot",
		"internal/quickstart",
		"internal/report",
		"internal/spec",
		"internal/table",
		"internal/units",
		"internal/version",
		"model/...",
		"preprocess/...",
		"train/...",
		"tree/...",
		"serve/...",
		"text/...",
	}},
	{"internal/spec", nil},
	{"internal/stats", nil},
	{"internal/table", nil},
	{"internal/units", nil},
	{"internal/version", nil},
	{"internal/zoo", nil},
}

// Common are packages that every package may import; they import only each other.
var Common = []string{"internal/durable", "internal/hint", "internal/ijson", "internal/limits", "internal/stats", "internal/vfs"}

// Owners lists the only packages that may import a module from elsewhere, tests included, so
// that it can be replaced in one place.
var Owners = map[string][]string{
	"github.com/nlpodyssey/gopickle":    {"checkpoints/internal/torchfile"},
	"gorgonia.org/gorgonia":             {"train/internal/gg/..."},
	"gorgonia.org/tensor":               {"train/internal/gg/..."},
	"github.com/parquet-go/parquet-go":  {"data/..."},
	"github.com/sugarme/tokenizer":      {"text/tokenizer/..."},
	"github.com/spf13/cobra":            {"cmd/talf/...", "internal/cli", "internal/manpages"},
	"github.com/schollz/progressbar/v3": {"internal/cli"},
	"gorgonia.org/cu":                   {"compute/cuda/..."},
	"golang.org/x/image":                {"internal/plot"},
}

// Separate packages never import each other, not even in tests: what one learns reaches the other only
// through a checkpoint.
var Separate = [][2]string{{"train/...", "infer/..."}}

// Violations returns one sentence for each import that breaks a rule.
func Violations(pkgs []Package) []string {
	var bad []string
	for _, p := range pkgs {
		name, ok := local(p.ImportPath)
		if !ok {
			continue
		}
		rule := ruleFor(name)
		if rule == nil {
			bad = append(bad, fmt.Sprintf("%s has no import rule: add one to internal/lint", name))
			continue
		}
		for _, imp := range p.Imports {
			to, ok := local(imp)
			if ok && !matches(rule.From, to) && !slices.Contains(Common, to) && !slices.ContainsFunc(rule.May, func(pat string) bool { return matches(pat, to) }) {
				bad = append(bad, fmt.Sprintf("%s imports %s", name, to))
			}
		}
		all := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		slices.Sort(all)
		for _, imp := range slices.Compact(all) {
			for module, owners := range Owners {
				if (imp == module || strings.HasPrefix(imp, module+"/")) &&
					!slices.ContainsFunc(owners, func(pat string) bool { return matches(pat, name) }) {
					bad = append(bad, fmt.Sprintf("%s imports %s, which belongs to %s", name, imp, strings.Join(owners, ", ")))
				}
			}
			to, ok := local(imp)
			if ok && matches("lab/...", to) {
				bad = append(bad, fmt.Sprintf("%s imports %s: the laboratory uses the product, never the other way round", name, to))
			}
			for _, s := range Separate {
				if ok && (matches(s[0], name) && matches(s[1], to) || matches(s[1], name) && matches(s[0], to)) {
					bad = append(bad, fmt.Sprintf("%s imports %s: they must not know each other", name, to))
				}
			}
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

// local returns the path of one of this module's packages in it, "." for the root's.
func local(path string) (string, bool) {
	if path == Module {
		return ".", true
	}
	return strings.CutPrefix(path, Module+"/")
}

// ruleFor returns the rule with the longest From that covers name.
func ruleFor(name string) *Rule {
	var best *Rule
	for i, r := range Rules {
		if matches(r.From, name) && (best == nil || len(r.From) > len(best.From)) {
			best = &Rules[i]
		}
	}
	return best
}

// matches reports whether a pattern covers a package of this module.
func matches(pattern, name string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == base || strings.HasPrefix(name, base+"/")
	}
	return name == pattern
}
