package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// small is a tokenizer.json that loads. The tests change a part of it.
const small = `{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,"pre_tokenizer":null,
"post_processor":null,"decoder":null,"model":{"type":"BPE","dropout":null,"unk_token":"u","continuing_subword_prefix":null,
"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"vocab":{"u":0,"a":1,"b":2,"ab":3},"merges":["a b"]}}`

func TestUnsupportedPartsAreRefusedByName(t *testing.T) {
	if _, err := Parse([]byte(small)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"padding":null`, `"padding":{"strategy":"BatchLongest"}`, "padding"},
		{`"truncation":null`, `"truncation":{"max_length":5}`, "truncation"},
		{`"version"`, `"surprise":1,"version"`, "surprise"},
		{`"type":"BPE"`, `"type":"Unigram"`, "Unigram"},
		{`"dropout":null`, `"dropout":0.1`, "dropout"},
		{`"fuse_unk"`, `"novel":true,"fuse_unk"`, "novel"},
		{`"unk_token":"u"`, `"unk_token":"x"`, "unk_token"},
		{`"ab":3`, `"ab":2`, "the same id 2"},
		{`"ab":3`, `"ab":-1`, "id -1"},
		{`"ab":3`, `"ab":99999999`, "id 99999999"},
		{`"a b"`, `"a c"`, "merges[0]"},
		{`"a b"`, `"a b b"`, "merges[0]"},
		{`["a b"]`, `[["a","b","c"]]`, "merges[0]"},
		{`["a b"]`, `{}`, "merges"},
		{`"merges":["a b"]`, `"merges":null`, "merges is missing"},
		{`"normalizer":null`, `"normalizer":{"type":"BertNormalizer"}`, "BertNormalizer"},
		{`"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":""}`, "Precompiled"},
		{`"normalizer":null`, `"normalizer":{"type":"NFC","extra":1}`, "extra"},
		{`"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Nmt"}]}`, "normalizers[1]"},
		{`"pre_tokenizer":null`, `"pre_tokenizer":{"type":"UnicodeScripts"}`, "UnicodeScripts"},
		{`"pre_tokenizer":null`, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"Sometimes","invert":false}`, "Sometimes"},
		{`"pre_tokenizer":null`, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a++"},"behavior":"Isolated","invert":false}`, "a++"},
		{`"pre_tokenizer":null`, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a&&b]"},"behavior":"Isolated","invert":false}`, "&&"},
		{`"pre_tokenizer":null`, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a[bc]]"},"behavior":"Isolated","invert":false}`, "set within a set"},
		{`"pre_tokenizer":null`, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\h"},"behavior":"Isolated","invert":false}`, `\h`},
		{`"pre_tokenizer":null`, `"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?m:.)"},"behavior":"Isolated","invert":false}`, `(?m:`},
		{`"pre_tokenizer":null`, `"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]}`, "after ByteLevel"},
		{`"post_processor":null`, `"post_processor":{"type":"BertProcessing","sep":["a",1],"cls":["b",2]}`, "BertProcessing"},
		{`"post_processor":null`, `"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}]}`, "single[0]"},
		{`"post_processor":null`, `"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"S"}},{"Sequence":{"id":"A"}}]}`, `"S"`},
		{`"post_processor":null`, `"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"S"}},{"Sequence":{"id":"A"}}],"special_tokens":{"S":{"ids":[9]}}}`, "id 9"},
		{`"decoder":null`, `"decoder":{"type":"CTC"}`, "CTC"},
		{`"decoder":null`, `"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]}`, "decoders[1]"},
		{`"decoder":null`, `"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":" ","start":0,"stop":1}]}`, "Strip"},
		{`"added_tokens":[]`, `"added_tokens":[{"id":7,"content":"z"}]`, "id 7"},
		{`"added_tokens":[]`, `"added_tokens":[{"id":4,"content":"z","extra":1}]`, "extra"},
		{`"added_tokens":[]`, `"added_tokens":[{"id":4,"content":"z"},{"id":4,"content":"z"}]`, "twice"},
		{`"added_tokens":[],"normalizer":null`, `"added_tokens":[{"id":4,"content":" ","normalized":true}],"normalizer":{"type":"Strip"}`, "after normalization"},
	} {
		text := strings.Replace(small, c.old, c.new, 1)
		if text == small {
			t.Errorf("%q is not in the file", c.old)
		}
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want it to name %q", c.new, err, c.want)
		}
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("empty folder: %v", err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.json", `{"model":`)
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("broken file: %v", err)
	}
	write("tokenizer.json", small)
	write("tokenizer_config.json", `{"eos_token":"nowhere"}`)
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "tokenizer_config.json") || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("unknown special token: %v", err)
	}
	write("tokenizer_config.json", `{"eos_token":{"content":"b"},"bos_token":null,"pad_token":"<pad>"}`)
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := tok.EOS(); id != 2 || !ok {
		t.Errorf("eos %d %v", id, ok)
	}
	if _, ok := tok.BOS(); ok {
		t.Error("the beginning-of-sequence token is missing")
	}
	if _, ok := tok.Pad(); ok {
		t.Error("the padding token is not in the vocabulary")
	}
	other, err := Parse([]byte(small + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if tok.Hash() == other.Hash() {
		t.Error("two files have the same hash")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small), "abba")
	var c componentFile
	b, err := os.ReadFile("testdata/components.json")
	if err != nil {
		f.Fatal(err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		f.Fatal(err)
	}
	// Small models with every component of the test data.
	for _, k := range c.Configs {
		var d map[string]json.RawMessage
		if err := json.Unmarshal([]byte(small), &d); err != nil {
			f.Fatal(err)
		}
		for _, part := range []string{"normalizer", "pre_tokenizer", "decoder"} {
			if raw, ok := k.Set[part]; ok {
				d[part] = raw
			}
		}
		f.Add(marshal(f, d), k.Cases[0].Text)
	}
	f.Fuzz(func(t *testing.T, b []byte, text string) {
		tok, err := Parse(b)
		if err != nil {
			return
		}
		ids, err := tok.Encode(text, true)
		if err != nil {
			t.Fatal(err)
		}
		same, spans, err := tok.EncodeOffsets(text, true)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(same, ids) || len(spans) != len(ids) {
			t.Fatalf("ids %v, with offsets %v %v", ids, same, spans)
		}
		st := tok.NewStream(false)
		got := ""
		for _, id := range ids {
			if !tok.Known(id) {
				t.Fatalf("id %d is not in the vocabulary", id)
			}
			got += st.Push(id)
		}
		if got += st.Flush(); got != tok.Decode(ids, false) {
			t.Fatalf("streamed %q, whole %q", got, tok.Decode(ids, false))
		}
	})
}
