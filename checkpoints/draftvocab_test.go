package checkpoints

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/model"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

var someTokens = []int32{0, 2, 3, 40, 41, 96}

// narrowHead writes a random head of m that predicts someTokens.
func narrowHead(t testing.TB, m *model.Model) string {
	t.Helper()
	return writeHead(t, m, func(s *arch.Spec) { s.DraftVocab = len(someTokens) },
		append(draftvocab.Tensors(someTokens, m.Spec().Vocab), embedOf(t, m))...)
}

// A draft vocabulary is exported to SGLang as a token map and imported again as the
// same head. For readers without draft vocabularies there is an error; if forced, they
// get the head without it.
func TestADraftVocabularyIsExported(t *testing.T) {
	_, m := target(t, modeltest.Default())
	dir := narrowHead(t, m)
	d := openDraft(t, dir)
	if !slices.Equal(d.Vocab, someTokens) || d.Spec.DraftVocab != len(someTokens) {
		t.Fatalf("vocabulary %v of %d, want %v", d.Vocab, d.Spec.DraftVocab, someTokens)
	}
	c := DefaultExport()
	c.Format = "sglang"
	for _, torch := range []bool{false, true} {
		c.Torch = torch
		out, r := export(t, d, c)
		if !slices.Contains(r.Files, tokenMapFile) {
			t.Errorf("files %v, want %s among them", r.Files, tokenMapFile)
		}
		if torch {
			if err := os.Remove(filepath.Join(out, WeightsFile)); err != nil {
				t.Fatal(err)
			}
		}
		conf := config(t, out)
		for _, key := range []string{"draft_vocab_size", "hot_vocab_size"} {
			if _, ok := conf[key]; ok {
				t.Errorf("config.json has %s, which SGLang reads from the token map", key)
			}
		}
		back := openDraft(t, out)
		for _, x := range back.Tensors {
			if x.Name == "d2t" || x.Name == "t2d" {
				t.Errorf("tensor %s, which SGLang does not know", x.Name)
			}
		}
		if !slices.Equal(back.Vocab, someTokens) {
			t.Errorf("imported with %v, want %v", back.Vocab, someTokens)
		}
		// Loaded without import, it would draft from all tokens.
		if _, err := LoadHead(out, m, head.Default()); !errors.Is(err, ErrForeign) {
			t.Errorf("loaded without import: %v", err)
		}
		again := filepath.Join(t.TempDir(), "again")
		if err := back.SaveHead(t.Context(), again, identity.Tie{}); err != nil {
			t.Fatal(err)
		}
		h, err := LoadHead(again, m, head.Default())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(h.DraftVocab(), someTokens) {
			t.Errorf("imported with %v", h.DraftVocab())
		}
		whole := openDraft(t, again)
		if diff := cmp.Diff(names(d.Tensors), slices.DeleteFunc(names(whole.Tensors), func(n string) bool { return n == "fc.bias" })); diff != "" {
			t.Errorf("tensors (-before +after):\n%s", diff)
		}
	}
	for _, f := range []string{"eagle", "vllm", "speculators"} {
		c := DefaultExport()
		c.Format, c.TargetName, c.Target = f, "x/y", m.Spec()
		if _, err := d.Export(t.Context(), filepath.Join(t.TempDir(), "o"), c); err == nil || !strings.Contains(err.Error(), "no draft vocabularies") || !strings.Contains(err.Error(), "all 97 tokens, of which this head knows 6") {
			t.Errorf("%s: %v", f, err)
		}
		c.Force = true
		out, r := export(t, d, c)
		if slices.Contains(r.Files, tokenMapFile) {
			t.Errorf("%s: a token map, which it does not read", f)
		}
		if back := openDraft(t, out); back.Vocab != nil {
			t.Errorf("%s: forced with the vocabulary %v", f, back.Vocab)
		}
	}
}

func TestDraftVocabulariesAreReadFromFiles(t *testing.T) {
	_, m := target(t, modeltest.Default())
	dir := narrowHead(t, m)
	c := DefaultExport()
	c.Format = "sglang"
	out, _ := export(t, openDraft(t, dir), c)
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, path := range []string{
		dir, filepath.Join(dir, WeightsFile), out, filepath.Join(out, tokenMapFile),
		file("ids.txt", "96 0\n3 2 40\n\t41\n"), file("ids.json", " [96, 41, 40, 3, 2, 0]\n"),
	} {
		if ids, _, err := ReadDraftVocab(path, 97); err != nil || !slices.Equal(ids, someTokens) {
			t.Errorf("%s: %v, %v", filepath.Base(path), ids, err)
		}
	}
	plain := writeHead(t, m, nil)
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file", plain: `no tensor "d2t"`,
		file("a.txt", "1 2 97"): "want 0 to 96", file("b.txt", "1 2 2"): "occurs twice", file("c.txt", "1 -2"): "want 0 to",
		file("d.txt", "one"): `"one", want a token id`, file("e.json", "[1,"): "array of token ids", file("f.txt", " "): "no token ids",
		file("g.pt", "1 2"): "zip archive", file("h.safetensors", "1 2"): "h.safetensors", t.TempDir(): "neither",
	} {
		if _, _, err := ReadDraftVocab(path, 97); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", filepath.Base(path), err, want)
		}
	}
	// The vocabulary of a larger target is refused for this one.
	if _, _, err := ReadDraftVocab(dir, 50); err == nil || !strings.Contains(err.Error(), "want 0 to 49") {
		t.Errorf("of a larger target: %v", err)
	}
}

func TestAnLMHeadOverADraftVocabularyIsRefused(t *testing.T) {
	_, m := target(t, modeltest.Default())
	own := safetensors.F32("lm_head.weight", make([]float32, 6*40), 6, 40)
	dir := writeHead(t, m, func(s *arch.Spec) { s.DraftVocab = len(someTokens) }, append(draftvocab.Tensors(someTokens, 97), own)...)
	if _, err := OpenDraft(dir); err == nil || !strings.Contains(err.Error(), "LM head of its own") {
		t.Errorf("%v", err)
	}
}
