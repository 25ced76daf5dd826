package checkpoints

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/durable"
	"talf/internal/golden"
	"talf/model/gguf"
	"talf/model/gguf/gguftest"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// writeTokenizer gives a target a byte-level tokenizer of n tokens.
func writeTokenizer(t testing.TB, dir string, n int) {
	t.Helper()
	vocab := make(map[string]int, n)
	for i := range n {
		vocab[fmt.Sprintf("t%d", i)] = i
	}
	raw, err := json.Marshal(map[string]any{
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false},
	})
	if err == nil {
		err = durable.WriteFile(filepath.Join(dir, "tokenizer.json"), raw)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A file takes the tokenizer of a target that is a GGUF file itself as it is, and the card says how
// llama.cpp serves both.
func TestAHeadTakesTheTokenizerOfAGGUFTarget(t *testing.T) {
	tiny := gguftest.Tiny(3)
	tokens, types := tiny.Get("tokenizer.ggml.tokens").([]string), tiny.Get("tokenizer.ggml.token_type").([]int32)
	for i := len(tokens); i < 288; i++ { // as many as the embedding has, which llama.cpp wants
		tokens, types = append(tokens, fmt.Sprintf("[PAD%d]", i)), append(types, 5)
	}
	tiny.Set("tokenizer.ggml.tokens", tokens)
	tiny.Set("tokenizer.ggml.token_type", types)
	path := tiny.Write(t, "tiny.gguf")
	tgt, err := OpenTarget(path)
	if err != nil {
		t.Fatal(err)
	}
	defer tgt.Close()
	s := tgt.Spec.Eagle3For([]int{0, 1, 2}, 0)
	var ts []safetensors.Tensor
	for _, x := range s.Tensors() {
		if n := x.Name; n != "embed_tokens.weight" {
			size := safetensors.Tensor{DType: "BF16", Shape: x.Shape()}
			ts = append(ts, safetensors.Tensor{Name: n, DType: "BF16", Shape: x.Shape(), Data: make([]byte, size.Size())})
		}
	}
	dir := filepath.Join(t.TempDir(), "head")
	tie := identity.To(identityOf(t, tgt))
	if err := head.Write(t.Context(), dir, s, tie, ts...); err != nil {
		t.Fatal(err)
	}
	d := openDraft(t, dir)
	c := DefaultExport()
	c.Format, c.DraftTokens = formatGGUF, 5
	if err := c.For(t.Context(), d, tgt); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Export(t.Context(), filepath.Join(t.TempDir(), "out"), c); err == nil || !strings.Contains(err.Error(), "ids has 2, the state after the last layer") {
		t.Errorf("the last state of a llama: %v", err)
	}
	c.Force = true
	out, r := export(t, d, c)
	if want := []string{cardFile, "eagle3-BF16.gguf"}; !slices.Equal(r.Files, want) || r.Tensors != len(ts) {
		t.Errorf("wrote %v, %d tensors, want %v, %d", r.Files, r.Tensors, want, len(ts))
	}
	of, err := gguf.Tokenizer(path)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(out, "eagle3-BF16.gguf")
	if _, err := FindDraft(t.Context(), out); err == nil || !strings.Contains(err.Error(), "a GGUF file, such as "+file) {
		t.Errorf("the file's directory: %v, want an error that names the file", err)
	}
	got, err := gguf.Tokenizer(file)
	if diff := cmp.Diff(of, got); err != nil || diff != "" || len(of) < 6 {
		t.Errorf("%v (-target's +head's)\n%s", err, diff)
	}
	back := openDraft(t, file)
	if diff := cmp.Diff(tie, back.Target); diff != "" || back.Layout != LayoutGGUF || back.File != "eagle3-BF16.gguf" {
		t.Errorf("layout %s, file %s (-tie +read)\n%s", back.Layout, back.File, diff)
	}
	card, err := os.ReadFile(filepath.Join(out, cardFile))
	for _, want := range []string{
		"llama-server --model " + path + " --model-draft DIR/eagle3-BF16.gguf --spec-type draft-eagle3 --spec-draft-n-max 5\n",
		"--head DIR/eagle3-BF16.gguf --prompt", "drafts chains, not trees",
	} {
		if err != nil || !strings.Contains(string(card), want) {
			t.Errorf("%v: %q is not in\n%s", err, want, card)
		}
	}
}

func TestWhatAFileOfLlamaCppCannotHoldIsNamed(t *testing.T) {
	_, m := target(t, modeltest.Default())
	first := openDraft(t, writeHead(t, m, nil))
	dir := golden.File(t, "eagle3/norms/eagle")
	d := openDraft(t, dir)
	tgt, err := OpenTarget(golden.File(t, "eagle3/targets/qwen3"))
	if err != nil {
		t.Fatal(err)
	}
	defer tgt.Close()
	for what, c := range map[string]struct {
		d      *Draft
		target *Target
		want   string
	}{
		"EAGLE-1":      {first, nil, "a head of EAGLE-1 or EAGLE-2"},
		"no target":    {d, nil, "the target's tokenizer"},
		"no tokenizer": {d, tgt, "tokenizer.json: there is no such file"},
	} {
		conf := DefaultExport()
		conf.Format = formatGGUF
		if c.target != nil {
			if err := conf.For(t.Context(), c.d, c.target); err != nil {
				t.Fatal(err)
			}
		}
		problems, err := c.d.Problems(conf)
		if err != nil || !slices.ContainsFunc(problems, func(p Problem) bool { return p.Grade == Refuses && strings.Contains(p.What, c.want) }) {
			t.Errorf("%s: predicted %v (%v), want %q", what, problems, err, c.want)
		}
		for _, conf.Force = range []bool{false, true} {
			out := filepath.Join(t.TempDir(), "out")
			if _, err := c.d.Export(t.Context(), out, conf); err == nil || !strings.Contains(err.Error(), "as gguf") {
				t.Errorf("%s, forced %t: %v", what, conf.Force, err)
			}
			if _, err := os.Stat(out); err == nil {
				t.Errorf("%s: something was written", what)
			}
		}
	}
	conf := DefaultExport()
	conf.Format, conf.Torch = formatGGUF, true
	if err := conf.Validate(); err == nil || !strings.Contains(err.Error(), torchFile) {
		t.Errorf("with a torch file: %v", err)
	}
}
