package inspect_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/checkpoints"
	"talf/data"
	"talf/infer/lookup/datastore"
	"talf/internal/inspect"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// describe returns the text and the JSON that describe path.
func describe(t *testing.T, path string) (text string, fields map[string]any) {
	t.Helper()
	d, err := inspect.Path(path)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(d.String(), path, "PATH"), fields
}

// A model of a family with windows that has none is told of, and one that has them is not.
func TestMissingWindowsAreWarnedOf(t *testing.T) {
	conf := modeltest.Of("starcoder2")
	conf.MaxPos = 16384
	dir := modeltest.Random(t, conf, 1)
	if text, fields := describe(t, dir); strings.Contains(text, "warning") || fields["window_missing"] != nil {
		t.Errorf("with windows: %s", text)
	}
	path := filepath.Join(dir, "config.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	without := strings.Replace(string(raw), `"sliding_window": 20`, `"sliding_window": null`, 1)
	if err := os.WriteFile(path, []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "warning       config.json sets no sliding window, but published models of this shape have one of 4096 positions: after longer texts, talf computes something else than they do\n"
	if text, fields := describe(t, dir); !strings.Contains(text, want) || fields["window_missing"] != 4096.0 {
		t.Errorf("without windows: %s", text)
	}
}

func TestTheSwitchOfLongropeIsShown(t *testing.T) {
	conf := modeltest.Of("phi3")
	conf.Original = 40
	text, fields := describe(t, modeltest.Random(t, conf, 1))
	if !strings.Contains(text, "positions     512, rope longrope (a text is read again beyond 40 tokens), theta 10000\n") || fields["rope_switch"] != 40.0 {
		t.Error(text)
	}
}

func TestAModelIsDescribed(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 1)
	text, fields := describe(t, dir)
	const want = `model         PATH
architecture  llama
parameters    34840 in 21 tensors, 136.1 KiB (F32)
shape         hidden 40, layers 2, heads 4 (2 for keys) of 10, ffn 72
vocabulary    97, tied embeddings: no, tokenizer.json: no
memory        186.0 KiB of weights as auto, on the CPU; keys and values 672 B a token
positions     512, rope default, theta 10000
tokens        bos 1, eos [2]
`
	if d := cmp.Diff(want, text); d != "" {
		t.Error(d)
	}
	if fields["kind"] != "model" || fields["hidden_size"] != 40.0 || fields["tokenizer"] != false {
		t.Errorf("JSON %v", fields)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if text, _ := describe(t, dir); !strings.Contains(text, "tokenizer.json: yes") {
		t.Errorf("with a tokenizer\n%s", text)
	}
	text, _ = describe(t, filepath.Join(dir, "model.safetensors"))
	if !strings.HasPrefix(text, "tensors       21 in PATH\n") || !strings.Contains(text, "F32   [97 40]          lm_head.weight\n") {
		t.Errorf("tensors\n%s", text)
	}
}

// What latent attention holds of a position is said in full: it is what memory is planned with.
func TestLatentAttentionIsDescribed(t *testing.T) {
	text, fields := describe(t, modeltest.Random(t, modeltest.Of("deepseek_v3"), 1))
	if want := "latent        keys and values from 18 numbers, 44 numbers in memory for a position in a layer\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	if fields["kv_latent"] != 18.0 || fields["kv_elements"] != 44.0 {
		t.Errorf("JSON %v", fields)
	}
	if _, fields = describe(t, modeltest.Random(t, modeltest.Default(), 1)); fields["kv_latent"] != nil || fields["kv_elements"] != 40.0 {
		t.Errorf("without latents: JSON %v", fields)
	}
}

// So is the state of recurrent layers, which do not hold positions.
func TestRecurrentLayersAreDescribed(t *testing.T) {
	text, fields := describe(t, modeltest.Random(t, modeltest.Of("qwen3_next"), 1))
	// 4 heads of 6 x 7, and two tokens of 2*2*6 + 4*7 channels
	if want := "recurrent     1 of 2 layers: 272 numbers in memory for a sequence, none for a position\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	if fields["recurrent_layers"] != 1.0 || fields["state_elements"] != 272.0 {
		t.Errorf("JSON %v", fields)
	}
}

func TestADraftHeadIsDescribedInEveryLayout(t *testing.T) {
	c := modeltest.Default()
	spec := c.Spec().DraftFor(true)
	dir := filepath.Join(t.TempDir(), "head")
	if err := head.Write(t.Context(), dir, spec, identity.To(&identity.Model{Spec: identity.Spec{}, Tensors: strings.Repeat("ab", 32)}), head.Random(spec, 1)...); err != nil {
		t.Fatal(err)
	}
	text, fields := describe(t, dir)
	if !strings.HasPrefix(text, "head          PATH\n") || fields["kind"] != "head" || fields["layers"] != 1.0 {
		t.Errorf("%s%v", text, fields)
	}
	d, err := checkpoints.OpenDraft(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out := filepath.Join(t.TempDir(), "speculators")
	e := checkpoints.DefaultExport()
	embed := safetensors.F32(spec.Weight(arch.Embed, 0), make([]float32, spec.Vocab*spec.Hidden), spec.Vocab, spec.Hidden)
	e.Format, e.Target, e.TargetName, e.Embed = "speculators", c.Spec(), "org/model", &embed
	if _, err := d.Export(t.Context(), out, e); err != nil {
		t.Fatal(err)
	}
	text, fields = describe(t, out)
	if !strings.Contains(text, "algorithm     EAGLE, in the layout of speculators: talf import takes it over\n") || fields["decodes"] != true || fields["layout"] != "speculators" {
		t.Errorf("%s%v", text, fields)
	}
}

func TestTrainingDataAreDescribed(t *testing.T) {
	dir := t.TempDir()
	made := &identity.Function{Weights: "q8", KV: "f32", Activations: "int16", Arithmetic: "cpu"}
	w, err := data.Create(dir, data.Meta{
		Schema: data.SchemaVersion, Function: made, Hidden: 2, Vocab: 10, Branch: 1, Depth: 1, Labels: data.TopK, K: 2, Features: data.BF16,
		Tokenizer: strings.Repeat("34", 32),
	}, data.Whole(), data.DefaultWriter())
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(40) {
		if err := w.Append(&data.Record{
			Tokens: []int32{i % 4}, LossMask: []bool{true}, TreeTokens: []int32{i % 4}, TreeParents: []int32{-1},
			LabelIDs: []int32{4, 5}, LabelProbs: []float32{0.5, 0.25}, Tail: []float32{0.25},
			Features: data.AppendBF16(nil, []float32{1, -2}),
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, fields := describe(t, dir)
	for _, want := range []string{
		"data          PATH\nrows          40 in 1 shards, ", "tokens        40, 40 of them to learn, ",
		"labels        the 2 most likely tokens and the rest; mass 30, tails 10\n", "target        " + identity.Short(made.Hash()) + ", hidden 2, vocabulary 10\nmade with     weights q8, keys and values f32, activations int16, arithmetic cpu\n", "tokenizer     343434343434\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if fields["complete"] != true || fields["draft_vocab"] != nil {
		t.Errorf("JSON %v", fields)
	}
	shard, fields := describe(t, filepath.Join(dir, "shard-00000.parquet"))
	if _, known := fields["complete"]; known || !strings.Contains(shard, "40 in 1 shards") {
		t.Errorf("a shard: %v\n%s", fields, shard)
	}
	d, err := inspect.OpenData(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Cover("4", 0.3); err != nil {
		t.Fatal(err)
	}
	if text := d.String(); !strings.Contains(text, "vocab         4 tokens are 100.00% of the ") || !strings.Contains(text, ", held out; labels of level 0: ") {
		t.Errorf("coverage\n%s", text)
	}
	if err := d.Cover("11", 0.3); err == nil || !strings.Contains(err.Error(), "want 1 to the target's 10") {
		t.Errorf("a vocabulary larger than the target's: %v", err)
	}
}

func TestADatastoreIsCheckedAndDescribed(t *testing.T) {
	b, err := datastore.NewBuilder(10, strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Add([]int32{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "store.idx")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := inspect.OpenDatastore(path)
	if err != nil {
		t.Fatal(err)
	}
	d.Path, d.Dropped, d.Seconds = "PATH", map[string]int{"empty": 2, "a reason": 1}, 1.25
	const want = `datastore     PATH
tokens        6 in 2 documents
vocabulary    10, tokenizer abababababab
left out      1: a reason
left out      2: empty
built in      1.2 s
`
	if diff := cmp.Diff(want, d.String()); diff != "" {
		t.Error(diff)
	}
	// The suffix array is the end of the file: swapping two of its entries breaks its order.
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := len(raw)
	copy(raw[n-8:], append(append([]byte(nil), raw[n-4:]...), raw[n-8:n-4]...))
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := inspect.OpenDatastore(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged datastore: %v", err)
	}
}

func TestOtherPathsAreRefusedWithWhatIsWanted(t *testing.T) {
	dir := t.TempDir()
	gguf := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(gguf, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		gguf:                       "truncated",
		filepath.Dir(gguf):         "such as " + gguf,
		filepath.Join(dir, "none"): "does not exist",
		dir:                        "want a directory with config.json or manifest.json",
	} {
		if _, err := inspect.Path(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
