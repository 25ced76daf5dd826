package write_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/internal/durable"
	shared "talf/internal/golden"
	"talf/model/gguf"
	"talf/model/gguf/write"
	"talf/model/safetensors"
	"talf/text/tokenizer"
)

// asFile writes the keys of the tokenizer in dir as a file and opens it.
func asFile(t *testing.T, dir string, vocab int) *tokenizer.Tokenizer {
	t.Helper()
	keys, err := write.Tokenizer(dir, vocab)
	if err != nil {
		t.Fatal(err)
	}
	f := write.File{
		Keys:    append([]gguf.Raw{write.Text("general.architecture", "llama")}, keys...),
		Tensors: []safetensors.Tensor{safetensors.F32("output_norm.weight", []float32{1}, 1)},
	}
	var b bytes.Buffer
	if err := f.Write(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "t.gguf")
	if err := durable.WriteFile(path, b.Bytes()); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sampleTexts are the texts of a tokenizer's cases, if it has any, and pieces of prose with odd spaces.
func sampleTexts(t *testing.T, cases string) (all []string) {
	t.Helper()
	if f, err := os.Open(cases); err == nil {
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var x struct{ Text string }
			if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
				t.Fatal(err)
			}
			all = append(all, x.Text)
		}
	}
	prose := strings.ReplaceAll(string(readFile(t, shared.Shared(t, "data/text/wikitext2_valid.txt")))[:120_000], "<unk>", "unk")
	for i, line := range strings.SplitAfter(prose, "\n") {
		all = append(all, line, strings.Repeat(" ", i%19)+line)
		if i%3 == 0 {
			all = append(all, strings.ReplaceAll(line, " ", strings.Repeat(" ", 1+i%8)))
		}
	}
	return all
}

// A directory's tokenizer and that of a file with its keys give the same tokens, in the published forms: with scores, with merges
// alone, and with both. Texts with added tokens in them are left out, since files do not say what happens to spaces beside them.
func TestSentencePieceTokenizersKeepTheirTokens(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		vocab int
	}{
		{"tokenizers/llama2", []string{"tokenizer.json"}, 32000},
		{"tokenizers/llama2", []string{"tokenizer.model"}, 32000},
		{"tokenizers/llama2", []string{"tokenizer.json", "tokenizer.model"}, 32004},
		{"tokenizers/phi3", []string{"tokenizer.json"}, 32064},
		{"hf/stories260K", []string{"tokenizer.json", "tokenizer_config.json"}, 512},
	} {
		t.Run(c.name+" "+strings.Join(c.files, " "), func(t *testing.T) {
			files := map[string]string{"config.json": `{"bos_token_id":1,"eos_token_id":2}`}
			for _, name := range c.files {
				files[name] = string(readFile(t, shared.Shared(t, "data/"+c.name+"/"+name)))
			}
			dir := tokenizerDir(t, files)
			want, err := tokenizer.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			got := asFile(t, dir, c.vocab)
			wb, wa := want.Added()
			if gb, ga := got.Added(); !slices.Equal(gb, wb) || !slices.Equal(ga, wa) {
				t.Errorf("%v and %v go around a text, want %v and %v", gb, ga, wb, wa)
			}
			compared, left := 0, 0
			for _, text := range sampleTexts(t, shared.Shared(t, "data/tokenizers/llama2/cases.jsonl")) {
				if strings.Contains(text, "<") && (strings.Contains(text, "s>") || strings.Contains(text, "unk>") || strings.Contains(text, "|>")) {
					left++
					continue
				}
				a, err := want.Encode(text, false)
				if err != nil {
					t.Fatal(err)
				}
				b, err := got.Encode(text, false)
				if err != nil {
					t.Fatal(err)
				}
				if compared++; !slices.Equal(a, b) {
					t.Fatalf("%q: %v, want %v", text, b, a)
				}
			}
			if compared < 500 || left > 40 {
				t.Errorf("%d texts were compared, %d left out", compared, left)
			}
			t.Logf("%d texts, %d with added tokens left out", compared, left)
		})
	}
}

// converted is what llama.cpp's converter writes of a SentencePiece model, as a directory with tokenizer.model and one with tokenizer.json.
func converted(t *testing.T) (keys map[string]gguf.Raw, model, merged string, vocab int) {
	t.Helper()
	path := shared.File(t, "gguf/spm-Q8_0.gguf")
	all, err := gguf.Tokenizer(path)
	if err != nil {
		t.Fatal(err)
	}
	keys = map[string]gguf.Raw{}
	for _, k := range all {
		keys[k.Name] = k
	}
	raw, err := gguf.ReadFile(path, "tokenizer.model", 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	pieces, _, err := tokenizer.Pieces(raw)
	if err != nil {
		t.Fatal(err)
	}
	// As Hugging Face converts such a model: all ways to cut a token into two, the best score first.
	type merge struct {
		l, r  string
		score float32
	}
	ids, normal := map[string]int{}, map[string]bool{}
	var added []map[string]any
	for id, p := range pieces {
		if p.Kind == 5 { // rows of the model without a token
			continue
		}
		ids[p.Text], normal[p.Text] = id, p.Kind == 1
		if p.Kind == 2 || p.Kind == 3 || p.Kind == 4 {
			added = append(added, map[string]any{"id": id, "content": p.Text, "special": p.Kind != 4})
		}
	}
	var merges []merge
	unk := ""
	for _, p := range pieces {
		if p.Kind == 2 {
			unk = p.Text
		}
		for i := range p.Text {
			if l, r := p.Text[:i], p.Text[i:]; normal[p.Text] && i > 0 && normal[l] && normal[r] {
				merges = append(merges, merge{l, r, p.Score})
			}
		}
	}
	slices.SortStableFunc(merges, func(a, b merge) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	var pairs [][2]string
	for _, m := range merges {
		pairs = append(pairs, [2]string{m.l, m.r})
	}
	type object = map[string]any
	text, err := json.Marshal(object{
		"added_tokens": added,
		"normalizer": object{"type": "Sequence", "normalizers": []object{
			{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": object{"String": " "}, "content": "▁"},
		}},
		"post_processor": object{
			"type": "TemplateProcessing", "single": []object{{"SpecialToken": object{"id": pieces[1].Text}}, {"Sequence": object{"id": "A"}}},
			"special_tokens": object{pieces[1].Text: object{"id": pieces[1].Text, "ids": []int{1}}},
		},
		"model": object{"type": "BPE", "vocab": ids, "merges": pairs, "byte_fallback": true, "fuse_unk": true, "unk_token": unk},
	})
	if err != nil {
		t.Fatal(err)
	}
	conf := `{"bos_token_id":1,"eos_token_id":2}`
	if pieces[0].Kind != 2 || pieces[1].Kind != 3 {
		t.Fatalf("the first tokens are %+v", pieces[:2])
	}
	return keys, tokenizerDir(t, map[string]string{"tokenizer.model": string(raw), "config.json": conf}),
		tokenizerDir(t, map[string]string{"tokenizer.json": string(text), "config.json": conf}), len(pieces)
}

// Tokens, kinds and, if there is a tokenizer.model, scores are those that llama.cpp's converter writes. Scores of a
// tokenizer.json alone have their order.
func TestSentencePieceKeysAreTheConverters(t *testing.T) {
	want, model, merged, vocab := converted(t)
	for name, dir := range map[string]string{"tokenizer.model": model, "tokenizer.json": merged} {
		keys, err := write.Tokenizer(dir, vocab)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, k := range keys {
			w, ok := want[k.Name]
			switch k.Name {
			case "tokenizer.ggml.scores":
				if ok = name == "tokenizer.model"; !ok {
					continue
				}
			case "tokenizer.ggml.token_type":
				if name == "tokenizer.model" { // which calls token 0 unknown; the converter saw it in tokenizer_config.json, too
					k.Value = append([]byte(nil), k.Value...)
					k.Value[12] = 3
				}
			case "tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.unknown_token_id":
			default:
				continue
			}
			if seen++; !ok || w.Type != k.Type || !bytes.Equal(w.Value, k.Value) {
				at := 0
				for at < min(len(k.Value), len(w.Value)) && k.Value[at] == w.Value[at] {
					at++
				}
				t.Errorf("%s: %s differs from byte %d of %d on: %.20q, want %.20q", name, k.Name, at, len(w.Value), k.Value[at:], w.Value[at:])
			}
		}
		if seen < 3 {
			t.Errorf("%s: %d keys were compared", name, seen)
		}
		a, b := asFile(t, dir, vocab), asFile(t, model, vocab)
		for i := range 400 {
			text := fmt.Sprintf("%s the cat %s sat, %d tim%s es\n%c", strings.Repeat(" ", i%9), strings.Repeat("a", i%7), i, strings.Repeat("e ", i%5), rune(0x20+i*37))
			x, err := a.Encode(text, true)
			if err != nil {
				t.Fatal(err)
			}
			if y, err := b.Encode(text, true); err != nil || !slices.Equal(x, y) {
				t.Fatalf("%s: %q: %v, want %v, %v", name, text, x, y, err)
			}
		}
	}
}

func TestSentencePieceTokenizersThatNoScoresDescribeAreRefused(t *testing.T) {
	const plain = `{"added_tokens":[{"id":0,"content":"<unk>","special":true}],
		"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
		"model":{"type":"BPE","byte_fallback":true,"unk_token":"<unk>","vocab":{"<unk>":0,"a":1,"b":2,"ab":3,"aba":4,"ba":5},"merges":["a b","ab a","a ba","b a"]}}`
	if _, err := write.Tokenizer(tokenizerDir(t, map[string]string{"tokenizer.json": plain}), 6); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ old, new, want string }{
		"a merge is missing": {`"a ba",`, ``, `model.merges lacks "a" and "ba"`},
		"a merge of nothing": {`"a b"`, `"a a"`, "model.merges[0]"},
		"a merge of three":   {`"a b"`, `"a b a"`, "model.merges[0]"},
		"lower case":         {`{"type":"Prepend","prepend":"▁"}`, `{"type":"Lowercase"}`, `the step "Lowercase"`},
		"another prefix":     {`"prepend":"▁"`, `"prepend":"x"`, `the step "Prepend"`},
		"spaces stay":        {`,{"type":"Replace","pattern":{"String":" "},"content":"▁"}`, ``, "nothing replaces spaces"},
		"words apart":        {`"model"`, `"pre_tokenizer":{"type":"Metaspace","replacement":"▁","split":true},"model"`, `the step "Metaspace"`},
		"too many tokens":    {`"aba":4`, `"aba":7`, `token "aba" has the id 7`},
	} {
		dir := tokenizerDir(t, map[string]string{"tokenizer.json": strings.Replace(plain, c.old, c.new, 1)})
		if _, err := write.Tokenizer(dir, 6); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", what, err, c.want)
		}
	}
	_, model, merged, vocab := converted(t)
	other := strings.Replace(string(readFile(t, filepath.Join(model, "tokenizer.model"))), "the", "hte", 1)
	dir := tokenizerDir(t, map[string]string{"tokenizer.json": string(readFile(t, filepath.Join(merged, "tokenizer.json"))), "tokenizer.model": other})
	if _, err := write.Tokenizer(dir, vocab); err == nil || !strings.Contains(err.Error(), "beside tokenizer.model") {
		t.Errorf("another tokenizer.model: %v", err)
	}
	dir = tokenizerDir(t, map[string]string{"tokenizer.model": string(readFile(t, filepath.Join(model, "tokenizer.model"))), "added_tokens.json": `{"<extra>": 9}`})
	if _, err := write.Tokenizer(dir, vocab); err == nil || !strings.Contains(err.Error(), "want a tokenizer.json") {
		t.Errorf("added tokens beside a model: %v", err)
	}
}
