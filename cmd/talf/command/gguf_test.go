package command

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/internal/e2e/talftest"
	"talf/internal/inspect"
	"talf/model/gguf/gguftest"
)

// With --dtype q4, a draft model that is not stored in 4 bits keeps its own type of weights.
func TestADraftOfOtherWeightsServesAFourBitModel(t *testing.T) {
	c := talftest.TinyConfig()
	c.Hidden, c.HeadDim, c.FFN = 64, 16, 96 // rows of whole blocks
	target := filepath.Join(t.TempDir(), "q4")
	talftest.OK(t, "", "quantize", "--model", talftest.TinyModel(t, c, 4), "--dtype", "q4", "--out", target)
	args := []string{"generate", "--model", target, "--dtype", "q4", "--prompt", "the", "--max-tokens", "24", "--ignore-eos"}
	want := talftest.OK(t, "", append(args, "--method", "ar")...)
	for _, draft := range []string{talftest.TinyModel(t, talftest.TinyConfig(), 5), target} {
		if got := talftest.OK(t, "", append(args, "--draft", draft, "--method", "fixed")...); got != want || want == "" {
			t.Errorf("with the draft model %s: %q, want %q", draft, got, want)
		}
	}
}

// A GGUF file stands wherever a model directory does.
func TestPipelineOfAGGUFFile(t *testing.T) {
	f := gguftest.Tiny(3)
	f.Set("tokenizer.chat_template", "{% for m in messages %}<|x|>{{ m['content'] }}<|eot_id|>{% endfor %}")
	file, tmp := f.Write(t, "tiny Q8_0.gguf"), t.TempDir()
	in := talftest.Write(t, filepath.Join(tmp, "text.txt"), strings.Repeat("the cat in the hat and the other one\n\n", 8))
	labels, heads := filepath.Join(tmp, "labels"), filepath.Join(tmp, "head")
	talftest.OK(t, "", "preprocess", "--model", file, "--data", in, "--out", labels, "--max-len", "40", "--threads", "2")
	talftest.OK(t, "", "train", "--model", file, "--data", labels, "--out", heads, "--steps", "4", "--rows", "64", "--warmup", "1", "--eval-every", "0", "--threads", "2")

	args := []string{"generate", "--model", file, "--prompt", "the", "--max-tokens", "24", "--ignore-eos"}
	want := talftest.OK(t, "", append(args, "--method", "ar")...)
	if want == "" {
		t.Fatal("plain decoding wrote nothing")
	}
	for _, more := range [][]string{{"--head", heads, "--method", "salf"}, {"--head", heads, "--method", "beam"}, {"--method", "goose"}, {"--draft", file, "--method", "fixed"}} {
		if got := talftest.OK(t, "", append(args, more...)...); got != want {
			t.Errorf("%v: %q, want %q", more, got, want)
		}
	}

	// The directory that quantize writes has the same function.
	out := filepath.Join(tmp, "q8")
	talftest.OK(t, "", "quantize", "--model", file, "--out", out)
	got, logits := lastLogits(t, out, compute.Q8), lastLogits(t, file, compute.Q8)
	for i := range logits {
		if math.Float32bits(got[i]) != math.Float32bits(logits[i]) {
			t.Fatalf("logit %d is %v, from the file %v", i, got[i], logits[i])
		}
	}
	args[2] = out
	r := talftest.Run(t, "", append(args, "--head", heads, "--method", "salf")...)
	if r.Code != 0 || r.Out != want || r.Err != "" {
		t.Errorf("a head of the file with what quantize made of it: %d, %q, want %q\n%s", r.Code, r.Out, want, r.Err)
	}

	// Tokens, templates, descriptions, exports.
	for _, dir := range []string{file, out} {
		ids := talftest.OK(t, `{"text":"the cat"}`+"\n", "tokenize", "--model", dir)
		if !strings.Contains(ids, "262") { // <|begin_of_text|>
			t.Errorf("%s: %s", dir, ids)
		}
		chat := talftest.OK(t, `{"messages":[{"role":"user","content":"the"}]}`+"\n", "tokenize", "--model", dir, "--messages")
		if !strings.Contains(chat, "265") || !strings.Contains(chat, "264") {
			t.Errorf("%s: %s", dir, chat)
		}
	}
	var m inspect.Model
	if err := json.Unmarshal([]byte(talftest.OK(t, "", "inspect", file, "--json")), &m); err != nil {
		t.Fatal(err)
	}
	if !m.GGUF || !m.Tokenizer || m.Types != "F32 Q8_0" || m.Rounded != nil || m.Vocab != 288 || len(m.EOS) != 2 {
		t.Errorf("%+v", m)
	}
	talftest.OK(t, "", "inspect", "data", in, "--model", file)
	talftest.OK(t, "", "export", "--head", heads, "--model", file, "--format", "eagle", "--out", filepath.Join(tmp, "exported"))
	talftest.OK(t, "", "bench", "perplexity", "--model", file, "--text", in)
}

// A head of other weights is refused by a directory and taken by a GGUF file, which cannot say what
// it was made from, with a warning.
func TestAGGUFFileTakesHeadsOfOtherWeights(t *testing.T) {
	one, other := gguftest.Tiny(1).Write(t, "one.gguf"), gguftest.Tiny(2).Write(t, "other.gguf")
	head := talftest.TinyHead(t, one, 1)
	args := []string{"generate", "--head", head, "--method", "beam", "--prompt", "the", "--max-tokens", "8", "--ignore-eos", "--model"}
	if r := talftest.Run(t, "", append(args, one)...); r.Code != 0 || r.Err != "" {
		t.Errorf("its own file: %d\n%s", r.Code, r.Err)
	}
	r := talftest.Run(t, "", append(args, other)...)
	if r.Code != 0 || !strings.Contains(r.Err, "the hash of the weights is") || !strings.Contains(r.Err, "GGUF") {
		t.Errorf("another file: %d, want a warning\n%s", r.Code, r.Err)
	}
	plain := talftest.OK(t, "", "generate", "--prompt", "the", "--max-tokens", "8", "--ignore-eos", "--model", other)
	if r.Out != plain {
		t.Errorf("%q, want %q", r.Out, plain)
	}
	dir := filepath.Join(t.TempDir(), "q8")
	talftest.OK(t, "", "quantize", "--model", other, "--out", dir)
	talftest.Run(t, "", append(args, dir)...).Refuses(t, 1, "another target")
}

// A file that does not say how its tokenizer splits texts is warned of by whatever loads it, and --pre says it.
func TestPre(t *testing.T) {
	f := gguftest.Tiny(3)
	whole := f.Write(t, "whole.gguf")
	f.Drop("tokenizer.ggml.pre")
	file := f.Write(t, "x.gguf")
	text := talftest.Write(t, filepath.Join(t.TempDir(), "text.txt"), "the cat\n\nin the hat\n")
	const line = `{"text": "the 1234 cats\n\n  in"}`
	want := talftest.OK(t, line, "tokenize", "--model", whole)
	for _, args := range [][]string{
		{"tokenize"},
		{"generate", "--prompt", "the", "--max-tokens", "2"},
		{"preprocess", "--data", text, "--out", filepath.Join(t.TempDir(), "a")},
		{"datastore", "build", "--data", text, "--out", filepath.Join(t.TempDir(), "b")},
		{"bench", "perplexity", "--text", text, "--dtype", "f32"},
		{"inspect", "data", text},
		{"quantize", "--out", filepath.Join(t.TempDir(), "c")},
	} {
		args = append(args, "--model", file)
		guessed := talftest.Run(t, line, args...)
		if guessed.Code != 0 || !strings.Contains(guessed.Err, "tokenizer.ggml.pre") || !strings.Contains(guessed.Err, "the option pre names") {
			t.Errorf("%v: %+v, want a warning", args, guessed)
		}
		if i := slices.Index(args, "--out"); i >= 0 {
			args[i+1] += "2"
		}
		named := talftest.Run(t, line, append(args, "--pre", "llama-bpe")...)
		if named.Code != 0 || strings.Contains(named.Err, "the option pre names") {
			t.Errorf("%v: %+v, want no warning", args, named)
		}
		if args[0] == "quantize" {
			named.Out, guessed.Out = talftest.OK(t, line, "tokenize", args[2]), talftest.OK(t, line, "tokenize", strings.TrimSuffix(args[2], "2"))
		}
		if (args[0] == "tokenize" || args[0] == "quantize") && (named.Out != want || guessed.Out == want) {
			t.Errorf("ids %s, as named %s, want %s", guessed.Out, named.Out, want)
		}
	}
	if out := talftest.OK(t, "", "inspect", file); !strings.Contains(out, "warning       "+file) {
		t.Errorf("inspect writes no warning:\n%s", out)
	}
	talftest.Run(t, line, "tokenize", "--model", file, "--pre", "none").Refuses(t, 1, "none", "--pre", "llama-bpe")
	talftest.Run(t, line, "quantize", "--model", file, "--pre", "none", "--out", filepath.Join(t.TempDir(), "d")).Refuses(t, 1, "none", "--pre", "llama-bpe")
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 4)
	talftest.Run(t, line, "quantize", "--model", dir, "--pre", "qwen2", "--out", filepath.Join(t.TempDir(), "e")).Refuses(t, 1, dir, "GGUF files alone")

	// A draft model's own way to split texts is never used, but the file has to be readable.
	f.Set("tokenizer.ggml.pre", "nobody-knows-it")
	draft := f.Write(t, "draft.gguf")
	args := []string{"generate", whole, "the", "--max-tokens", "4", "--draft", draft, "--method", "fixed"}
	talftest.Run(t, "", args...).Refuses(t, 1, draft, "nobody-knows-it", "--pre")
	talftest.OK(t, "", append(args, "--pre", "llama-bpe")...)
}

// What is no model is told by its path and what is wrong with it, whatever asks for it first.
func TestWhatIsNoModelIsNamed(t *testing.T) {
	dir := t.TempDir()
	whole := gguftest.Tiny(3).Write(t, "tiny.gguf")
	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	cut := talftest.Write(t, filepath.Join(dir, "cut.gguf"), string(b[:len(b)-100]))
	note := talftest.Write(t, filepath.Join(dir, "note.gguf"), "hello, world, this is a text")
	text := talftest.Write(t, filepath.Join(dir, "note.txt"), "hello")
	for path, want := range map[string]string{
		cut: "truncated?", note: "not a GGUF file", text: "a file and not GGUF: want a model (directory or .gguf)",
		dir: "has no config.json", filepath.Join(dir, "none"): "does not exist: want a model (directory or .gguf)",
	} {
		for _, command := range []string{"chat", "generate", "quantize", "serve"} {
			args := []string{command, path}
			switch command {
			case "quantize":
				args = append(args, "--out", filepath.Join(t.TempDir(), "out"))
			case "serve":
				args = append(args, "--listen", "127.0.0.1:0")
			}
			talftest.Run(t, "x", args...).Refuses(t, ExitFailure, path, want)
		}
	}
}
