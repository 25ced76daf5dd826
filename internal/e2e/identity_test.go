package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/data"
	"talf/internal/e2e/talftest"
	"talf/model/arch"
	"talf/model/modeltest"
)

// inProcess runs a command in this process, which is faster than a process of its own.
func inProcess(args ...string) talftest.Result {
	var out, errs bytes.Buffer
	code := command.Run(args, strings.NewReader(""), &out, &errs)
	return talftest.Result{Code: code, Out: out.String(), Err: errs.String()}
}

// done runs a command that must succeed.
func done(t *testing.T, args ...string) talftest.Result {
	t.Helper()
	r := inProcess(args...)
	if r.Code != 0 {
		t.Fatalf("talf %s: exit %d\n%s", strings.Join(args, " "), r.Code, r.Err)
	}
	return r
}

// A beginning is the files of runs that were interrupted, with what it takes to continue them.
type beginning struct{ model, text, prompts, labels, part, run, answers, log string }

// begin makes the files with the model in dir.
func begin(t *testing.T, dir string) *beginning {
	t.Helper()
	tmp := t.TempDir()
	b := &beginning{
		model: dir, text: talftest.TextFile(t, 6), prompts: talftest.PromptFile(t, 3), labels: filepath.Join(tmp, "labels"),
		part: filepath.Join(tmp, "part"), run: filepath.Join(tmp, "run"), answers: filepath.Join(tmp, "answers"), log: filepath.Join(tmp, "log"),
	}
	done(t, b.preprocess(dir, b.labels)...)
	copyTo(t, b.labels, b.part)
	cutSet(t, b.part, 1)
	done(t, b.train(dir, b.run)...)
	if err := os.RemoveAll(filepath.Join(b.run, "step-00000002")); err != nil {
		t.Fatal(err)
	}
	done(t, b.generate(dir, b.answers)...)
	cutLines(t, b.answers, 1)
	done(t, b.bench(dir, b.log)...)
	cutLines(t, b.log, 2)
	return b
}

func (b *beginning) preprocess(model, out string) []string {
	return []string{"preprocess", "--model", model, "--data", b.text, "--out", out, "--shard", "3", "--max-len", "24", "--k", "2", "--depth", "2", "--label-k", "2", "--features", "none"}
}

func (b *beginning) train(model, out string) []string {
	return []string{
		"train", "--model", model, "--data", b.labels, "--loss", "talf", "--features", "recompute", "--steps", "2", "--rows", "32",
		"--save-every", "1", "--eval-every", "0", "--warmup", "1", "--held-out", "0", "--out", out,
	}
}

func (b *beginning) generate(model, out string) []string {
	return []string{"generate", "--model", model, "--prompts", b.prompts, "--out", out, "--max-tokens", "2"}
}

func (b *beginning) bench(model, log string) []string {
	return []string{"bench", "--model", model, "--prompts", b.prompts, "--method", "pld", "--max-tokens", "2", "--prompt-tokens", "4", "--threads", "1", "--log", log}
}

// continuations are the commands that go on from the files, or use a head, with another model
// directory. Each works on a copy.
func (b *beginning) continuations(t *testing.T, model string) map[string][]string {
	t.Helper()
	tmp := t.TempDir()
	part, run, answers, log := filepath.Join(tmp, "part"), filepath.Join(tmp, "run"), filepath.Join(tmp, "answers"), filepath.Join(tmp, "log")
	copyTo(t, b.part, part)
	copyTo(t, b.run, run)
	for from, to := range map[string]string{b.answers: answers, b.log: log} {
		raw, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		talftest.Write(t, to, string(raw))
	}
	return map[string][]string{
		"preprocess": b.preprocess(model, part),
		"train":      append(b.train(model, run), "--resume", "--force"), // force takes the labels, not the run
		"labels":     b.train(model, filepath.Join(tmp, "new")),
		"generate":   b.generate(model, answers),
		"bench":      b.bench(model, log),
		"head":       {"generate", "--model", model, "--head", run, "--prompt", "Once", "--max-tokens", "1"},
	}
}

func copyTo(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// cutSet leaves the first shards of a set, as an interruption does.
func cutSet(t *testing.T, dir string, shards int) {
	t.Helper()
	path := filepath.Join(dir, data.ManifestName)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := data.ParseManifest(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range m.Shards[shards:] {
		if err := os.Remove(filepath.Join(dir, s.File)); err != nil {
			t.Fatal(err)
		}
	}
	m.Shards, m.Complete = m.Shards[:shards], false
	if raw, err = json.MarshalIndent(m, "", " "); err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, path, string(raw)+"\n")
}

// cutLines leaves the first n lines of a file.
func cutLines(t *testing.T, path string, n int) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(string(raw)))
	if len(lines) <= n {
		t.Fatalf("%s has %d lines, want more than %d", path, len(lines), n)
	}
	talftest.Write(t, path, strings.Join(lines[:n], ""))
}

// small is a model of few weights.
func small(arch string) modeltest.Config {
	c := modeltest.Of(arch)
	c.Vocab, c.MaxPos, c.EOS = talftest.TinyConfig().Vocab, 256, 1
	return c
}

// edited returns a copy of a model directory with fields of its config.json changed; nil removes
// one.
func edited(t *testing.T, dir string, fields map[string]any) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "model")
	copyTo(t, dir, to)
	path := filepath.Join(to, "config.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var conf map[string]any
	if err := json.Unmarshal(raw, &conf); err != nil {
		t.Fatal(err)
	}
	for name, v := range fields {
		if v == nil {
			delete(conf, name)
		} else {
			conf[name] = v
		}
	}
	if raw, err = json.Marshal(conf); err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, path, string(raw))
	return to
}

// A variant changes fields of config.json; want are the canonical names that refusals give.
type variant struct {
	fields map[string]any
	want   []string
}

// A family is a model and its variants.
type family struct {
	arch     string
	fields   map[string]any // of the model
	variants []variant
}

func one(name string, value any) variant {
	return variant{map[string]any{name: value}, []string{name}}
}

func families() []family {
	rope := func(kind string, change string, value any) map[string]any {
		r := map[string]any{"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": 64}
		switch kind {
		case "yarn":
			r["beta_fast"], r["beta_slow"], r["attention_factor"], r["truncate"] = 32.0, 1.0, 1.5, true
		case "llama3":
			r["low_freq_factor"], r["high_freq_factor"] = 1.0, 4.0
		}
		if change != "" {
			r[change] = value
		}
		return map[string]any{"rope_scaling": r}
	}
	scaled := func(kind, field string, value any) variant {
		return variant{rope(kind, field, value), []string{"rope_scaling." + field}}
	}
	return []family{
		{"mistral", nil, []variant{
			one("rope_theta", 500000.0), one("rms_norm_eps", 1e-6), one("sliding_window", 24), one("max_position_embeddings", 255),
			one("eos_token_id", 3), one("bos_token_id", 2), one("tie_word_embeddings", true),
			{map[string]any{"model_type": "llama"}, []string{"model_type", "sliding_window"}},
			{map[string]any{"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 20}, []string{"num_attention_heads", "num_key_value_heads", "head_dim"}},
			{rope("linear", "", nil), []string{"rope_scaling.rope_type", "rope_scaling.factor"}},
		}},
		{"llama", rope("llama3", "", nil), []variant{
			scaled("llama3", "factor", 8.0), scaled("llama3", "low_freq_factor", 2.0), scaled("llama3", "high_freq_factor", 5.0),
			scaled("llama3", "original_max_position_embeddings", 32),
		}},
		{"llama", rope("yarn", "", nil), []variant{
			scaled("yarn", "factor", 2.0), scaled("yarn", "beta_fast", 16.0), scaled("yarn", "beta_slow", 2.0), scaled("yarn", "attention_factor", 1.25),
			scaled("yarn", "truncate", false), scaled("yarn", "original_max_position_embeddings", 32),
		}},
		{"gpt_neox", nil, []variant{
			one("layer_norm_eps", 1e-6), one("use_parallel_residual", false),
			{map[string]any{"rotary_emb_base": 500000.0}, []string{"rope_theta"}},
			{map[string]any{"rotary_pct": 0.8}, []string{"rotary_dim"}},
		}},
	}
}

// byTensors are the canonical names whose values a file's tensors decide: with another value the
// model does not load.
var byTensors = []string{"vocab_size", "hidden_size", "intermediate_size", "attention_bias", "attention_output_bias", "mlp_bias", "layer_norm", "hidden_act", "num_hidden_layers"}

// Whatever config.json says is part of what files belong to: a run that would continue them with
// another value is refused, and so is a head. With equal values, in another directory, it goes on.
func TestAModelWithAnotherConfigurationIsAnother(t *testing.T) {
	told := map[string]bool{}
	for i, f := range families() {
		if i > 0 && testing.Short() {
			break
		}
		dir := edited(t, talftest.TinyModel(t, small(f.arch), 1), f.fields)
		spec, err := arch.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		b := begin(t, dir)
		for what, args := range b.continuations(t, edited(t, dir, nil)) {
			if r := inProcess(args...); r.Code != 0 {
				t.Errorf("%s: %s with an equal model: exit %d\n%s", f.arch, what, r.Code, r.Err)
			}
		}
		for _, v := range f.variants {
			other := edited(t, dir, v.fields)
			now, err := arch.Load(other)
			if err != nil {
				t.Fatalf("%v: %v", v.want, err)
			}
			was, is := spec.Canonical(), now.Canonical()
			for what, args := range b.continuations(t, other) {
				r := inProcess(args...)
				if r.Code == 0 || !strings.Contains(r.Err, " with ") || !slices.ContainsFunc(v.want, func(name string) bool { return strings.Contains(r.Err, name+" is ") }) {
					t.Errorf("%s, %v: %s: exit %d, want a refusal that names one\n%s", f.arch, v.want, what, r.Code, r.Err)
				}
			}
			for _, name := range v.want {
				if told[name] = true; bytes.Equal(was[name], is[name]) {
					t.Errorf("%s, %v: %s is %s in both", f.arch, v.fields, name, was[name])
				}
			}
		}
		if testing.Short() {
			continue
		}
		for name := range spec.Canonical() {
			told[name] = told[name] || slices.Contains(byTensors, name)
		}
	}
	if testing.Short() {
		return
	}
	for _, f := range families() {
		for name := range f.spec(t).Canonical() {
			if !told[name] {
				t.Errorf("no variant changes %s", name)
			}
		}
	}
}

func (f *family) spec(t *testing.T) *arch.Spec {
	t.Helper()
	s, err := arch.Load(edited(t, modeltest.Random(t, small(f.arch), 1), f.fields))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The types in which a model is kept decide its bits, too: labels, answers and measurements of two
// do not mix. A head may be used with any of them.
func TestAModelKeptInOtherTypesIsAnotherFunction(t *testing.T) {
	dir := talftest.TinyModel(t, small("llama"), 1)
	b := begin(t, dir)
	q8 := filepath.Join(t.TempDir(), "q8")
	done(t, "quantize", "--model", dir, "--out", q8)
	const weights, kv = "the type of weights is ", "the type of keys and values is "
	for _, c := range []struct {
		what, model string
		flags       []string
		refused     map[string]string // by command; others go on
	}{
		{"a quantised copy", q8, nil, map[string]string{
			"preprocess": weights + "q8", "generate": weights + "q8", "bench": weights + "q8",
		}},
		{"--dtype q8", dir, []string{"--dtype", "q8"}, map[string]string{"preprocess": weights + "q8", "generate": weights + "q8", "bench": weights + "q8"}},
		{"--dtype bf16", dir, []string{"--dtype", "bf16"}, map[string]string{"preprocess": weights + "bf16", "generate": weights + "bf16", "bench": weights + "bf16"}},
		{"--dtype bf16dp", dir, []string{"--dtype", "bf16dp"}, map[string]string{"preprocess": weights + "bf16dp", "generate": weights + "bf16dp", "bench": weights + "bf16dp"}},
		{"--kv-dtype bf16", dir, []string{"--kv-dtype", "bf16"}, map[string]string{"generate": kv + "bf16", "bench": kv + "bf16"}},
	} {
		for what, args := range b.continuations(t, c.model) {
			if args[0] == "train" || c.refused[what] == "" && what == "preprocess" {
				continue // it does not take such weights, or has no such flag
			}
			r := inProcess(append(args, c.flags...)...)
			switch want := c.refused[what]; {
			case want == "" && r.Code != 0:
				t.Errorf("%s: %s: exit %d\n%s", c.what, what, r.Code, r.Err)
			case want != "" && (r.Code == 0 || !strings.Contains(r.Err, want)):
				t.Errorf("%s: %s: exit %d, want a refusal with %q\n%s", c.what, what, r.Code, want, r.Err)
			}
		}
	}
	out := filepath.Join(t.TempDir(), "answers")
	done(t, b.generate(q8, out)...)
	cutLines(t, out, 1)
	r := inProcess(append(b.generate(q8, out), "--act-bits", "8")...)
	if want := "the type of activations in products is int8, the answers were made with int16"; r.Code == 0 || !strings.Contains(r.Err, want) {
		t.Errorf("8 bits of activations: exit %d, want %q\n%s", r.Code, want, r.Err)
	}
}

// Files of a draft method are known by their contents if answers depend on them.
func TestAnswersAreTiedToTheContentsOfTheDraft(t *testing.T) {
	dir := talftest.TinyModel(t, small("llama"), 1)
	head := talftest.TinyHead(t, dir, 1)
	prompts, out := talftest.PromptFile(t, 2), filepath.Join(t.TempDir(), "answers")
	args := func(verify string) []string {
		return []string{
			"generate", "--model", dir, "--head", head, "--prompts", prompts, "--out", out, "--max-tokens", "2",
			"--temperature", "1", "--seed", "1", "--method", "linear:draw=distinct", "--verify", verify,
		}
	}
	retrain := func(seed uint64) {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(talftest.TinyHead(t, dir, seed), "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		talftest.Write(t, filepath.Join(head, "model.safetensors"), string(raw))
	}
	done(t, args("rrsw")...)
	cutLines(t, out, 1)
	retrain(2)
	if r := inProcess(args("rrsw")...); r.Code == 0 || !strings.Contains(r.Err, "the draft model is talf-fn-1:") {
		t.Errorf("another head at the same path: exit %d\n%s", r.Code, r.Err)
	}
	retrain(1)
	done(t, args("rrsw")...)

	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	done(t, args("target")...)
	cutLines(t, out, 1)
	retrain(2)
	done(t, args("target")...) // the answers do not depend on it
}

// A datastore holds a text: it may be used with every model of its tokenizer.
func TestADatastoreBelongsToATokenizer(t *testing.T) {
	dir := talftest.TinyModel(t, small("llama"), 1)
	store := filepath.Join(t.TempDir(), "text.idx")
	done(t, "datastore", "build", "--model", dir, "--data", talftest.TextFile(t, 6), "--out", store)
	use := func(model string) talftest.Result {
		return inProcess("generate", "--model", model, "--method", "rest:file="+store, "--prompt", "Once", "--max-tokens", "2")
	}
	for what, model := range map[string]string{"the same": dir, "another rope_theta": edited(t, dir, map[string]any{"rope_theta": 500000.0})} {
		if r := use(model); r.Code != 0 {
			t.Errorf("%s: exit %d\n%s", what, r.Code, r.Err)
		}
	}
	other := edited(t, dir, nil)
	raw, err := os.ReadFile(filepath.Join(other, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, filepath.Join(other, "tokenizer.json"), string(raw)+"\n")
	if r := use(other); r.Code == 0 || !strings.Contains(r.Err, "tokenizer") {
		t.Errorf("another tokenizer: exit %d\n%s", r.Code, r.Err)
	}
}
