package tokenizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"

	"talf/internal/limits"
	"talf/internal/limits/costtest"
)

// variant is small with some of its members replaced, given as "name": value pairs.
func variant(t testing.TB, members ...string) []byte {
	t.Helper()
	text := small
	for i := 0; i < len(members); i += 2 {
		old := fmt.Sprintf(`"%s":null`, members[i])
		if members[i] == "added_tokens" {
			old = `"added_tokens":[]`
		}
		if !strings.Contains(text, old) {
			t.Fatalf("%s is not in the file", old)
		}
		text = strings.Replace(text, old, fmt.Sprintf(`"%s":%s`, members[i], members[i+1]), 1)
	}
	return []byte(text)
}

func nested(kind, member, inner string, depth int) string {
	return strings.Repeat(fmt.Sprintf(`{"type":"%s","%s":[`, kind, member), depth) + inner + strings.Repeat("]}", depth)
}

func inSequence(member, part string, n int) string {
	return `{"type":"Sequence","` + member + `":[` + strings.Repeat(part+",", n-1) + part + "]}"
}

const (
	doubling = `{"type":"Replace","pattern":{"String":"a"},"content":"aa"}`
	bomb     = `{"type":"Replace","pattern":{"Regex":"(a+)+c"},"content":"c"}`
	chars    = `{"type":"Split","pattern":{"Regex":"."},"behavior":"Isolated","invert":false}`
)

// Files that ask for more than their size justifies are refused, and the error says where.
func TestCostlyFilesAreRefused(t *testing.T) {
	long := strings.Repeat("a", 400_000)
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"a decoder that doubles", variant(t, "decoder", inSequence("decoders", doubling, 31)), "decoder.decoders["},
		{"a decoder with a long text", variant(t, "decoder", `{"type":"Replace","pattern":{"String":"a"},"content":"`+long+`"}`), `token "a`},
		{"a decoder with a longer text", variant(t, "decoder", `{"type":"Replace","pattern":{"String":"a"},"content":"`+long[:100]+`"}`), "100 bytes of text for token \"a\", expected at most 80"},
		{"normalizers, nested", variant(t, "normalizer", nested("Sequence", "normalizers", `{"type":"NFC"}`, 4900)), "more than 32 components"},
		{"normalizers", variant(t, "normalizer", inSequence("normalizers", `{"type":"NFC"}`, 5000)), "more than 32 components"},
		{"pre-tokenizers, nested", variant(t, "pre_tokenizer", nested("Sequence", "pretokenizers", chars, 4900)), "more than 32 components"},
		{"decoders, nested", variant(t, "decoder", nested("Sequence", "decoders", `{"type":"Fuse"}`, 4900)), "more than 32 components"},
		{"post-processors, nested", variant(t, "post_processor", nested("Sequence", "processors", `{"type":"ByteLevel"}`, 4900)), "more than 32 components"},
		{"an added token", variant(t, "added_tokens", `[{"id":4,"content":"`+long+`"}]`), "of 400000 bytes, expected at most 512"},
		{"an added token, normalized", variant(t, "added_tokens", `[{"id":4,"content":"aaaa","normalized":true}]`, "normalizer", `{"type":"Replace","pattern":{"String":"a"},"content":"`+long+`"}`), "at most 512"},
		{"added tokens that a normalizer doubles", variant(t, "added_tokens", `[{"id":4,"content":"aaaa","normalized":true}]`, "normalizer", inSequence("normalizers", doubling, 31)), "normalizer.normalizers["},
		{"all added tokens", variant(t, "added_tokens", addedTokens(3000, 500)), "more than 1048576 bytes together"},
		{"a token", []byte(strings.Replace(small, `"ab":3`, `"ab":3,"`+long+`":4`, 1)), "has 400000 bytes, expected at most 8192"},
		{"an id", []byte(strings.Replace(small, `"ab":3`, `"ab":4000000`, 1)), "id 4000000, expected 0 to 65543"},
		{"a prefix", []byte(strings.Replace(small, `"continuing_subword_prefix":null`, `"continuing_subword_prefix":"`+long+`"`, 1)), "continuing_subword_prefix"},
		{"ids around a text", variant(t, "post_processor", `{"type":"TemplateProcessing","single":[`+strings.Repeat(`{"SpecialToken":{"id":"s"}},`, 1000)+`{"Sequence":{"id":"A"}}],"special_tokens":{"s":{"ids":[1`+strings.Repeat(",1", 1000)+`]}}}`), "more than 256 special tokens"},
		{"a pattern", variant(t, "normalizer", `{"type":"Replace","pattern":{"Regex":"`+long+`"},"content":""}`), "normalizer.pattern: regex"},
		{"repetitions", variant(t, "normalizer", `{"type":"Replace","pattern":{"Regex":"((a{900}){900}){900}"},"content":""}`), "written out"},
	} {
		costtest.Check(t, c.name, costtest.Default, func(context.Context) {
			if _, err := Parse(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %.300v, want an error with %q", c.name, err, c.want)
			}
		})
	}
}

func addedTokens(n, length int) string {
	var b strings.Builder
	for i := range n {
		sep := ","
		if i == 0 {
			sep = "["
		}
		fmt.Fprintf(&b, `%s{"id":%d,"content":"%s%06d"}`, sep, 4+i, strings.Repeat("x", length-6), i)
	}
	return b.String() + "]"
}

// A text costs what its length allows, whatever the file says.
func TestCostlyTextsAreBounded(t *testing.T) {
	mb := strings.Repeat("b", 1_000_000)
	as, spaces := strings.Repeat("a", 50_000), strings.Repeat(" ", 50_000)
	for _, c := range []struct {
		name string
		file []byte
		text string
		want string // part of the error; "": there is none
	}{
		{"a regex that backtracks", variant(t, "pre_tokenizer", `{"type":"Split","pattern":{"Regex":"(a+)+c"},"behavior":"Isolated","invert":false}`), as, ""},
		{"a regex in a normalizer", variant(t, "normalizer", bomb), as, ""},
		{"a regex that looks ahead everywhere", variant(t, "pre_tokenizer", `{"type":"Split","pattern":{"Regex":"(?=\\s*x)\\s|\\s+$"},"behavior":"Isolated","invert":false}`), spaces + "x", ""},
		{"a regex of many alternatives", variant(t, "pre_tokenizer", inSequence("pretokenizers", `{"type":"Split","pattern":{"Regex":"`+strings.Repeat("(a|a)", 400)+`c"},"behavior":"Isolated","invert":false}`, 31)), as, "tokenizer.json: pre_tokenizer.pretokenizers["},
		{"a normalizer that doubles", variant(t, "normalizer", inSequence("normalizers", doubling, 31)), "a", "tokenizer.json: normalizer.normalizers["},
		{"a normalizer with a long text", variant(t, "normalizer", `{"type":"Replace","pattern":{"String":"a"},"content":"`+mb+`"}`), as[:8000], "tokenizer.json: normalizer: more than"},
		{"a regex with a long text", variant(t, "normalizer", `{"type":"Replace","pattern":{"Regex":"a"},"content":"`+mb+`"}`), as[:8000], "tokenizer.json: normalizer: more than"},
		{"a long prefix", variant(t, "normalizer", `{"type":"Prepend","prepend":"`+mb+`"}`, "added_tokens", `[{"id":4,"content":"-","normalized":false}]`), strings.Repeat("a-", 4000), "tokenizer.json: normalizer: more than"},
		{"marks", variant(t, "normalizer", `{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"`+mb+`"},{"type":"Replace","pattern":{"String":" "},"content":"`+mb+`"}]}`), strings.Repeat("a ", 4000), "tokenizer.json: normalizer.normalizers["},
		{"marks before every character", variant(t, "pre_tokenizer", `{"type":"Sequence","pretokenizers":[`+chars+strings.Repeat(`,{"type":"Metaspace","replacement":"_","prepend_scheme":"always"},{"type":"Metaspace","replacement":"\ud800\udf48","prepend_scheme":"always"}`, 15)+`]}`), as, "tokenizer.json: pre_tokenizer.pretokenizers["},
		{"a token that strips before it", variant(t, "added_tokens", `[{"id":4,"content":" ","lstrip":true}]`), spaces, ""},
		{"a token that strips after it", variant(t, "added_tokens", `[{"id":4,"content":" ","rstrip":true}]`), spaces, ""},
		{"tokens with a common beginning", variant(t, "added_tokens", addedTokens(1000, 500)), strings.Repeat("x", 50_000), ""},
	} {
		check := func(err error) {
			if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, limits.ErrTooLarge) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %.300v, want an error with %q", c.name, err, c.want)
			}
		}
		costtest.Check(t, c.name, costtest.Default, func(context.Context) {
			tok, err := Parse(c.file)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				return
			}
			_, err = tok.Encode(c.text, true)
			check(err)
		})
		costtest.Check(t, c.name+", with offsets", costtest.Default, func(context.Context) {
			tok, err := Parse(c.file)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				return
			}
			_, _, err = tok.EncodeOffsets(c.text, true)
			check(err)
		})
	}
}

// A decoder with such a pattern is tried on every token when the file is loaded.
func TestDecodersWithCostlyPatternsLoad(t *testing.T) {
	file := strings.Replace(string(variant(t, "decoder", bomb)), `"ab":3`, `"ab":3,"`+strings.Repeat("a", 5000)+`":4`, 1)
	costtest.Check(t, "load", costtest.Default, func(context.Context) {
		if _, err := Parse([]byte(file)); err != nil {
			t.Error(err)
		}
	})
}

// Texts at the limits of what is legitimate still encode.
func TestLongTextsEncode(t *testing.T) {
	for _, c := range []struct{ normalizer, text string }{
		{`{"type":"NFKC"}`, strings.Repeat("\ufdfa", 100_000)},
		{inSequence("normalizers", `{"type":"NFD"}`, 6), strings.Repeat("\u1f82e\u0301\u0323", 50_000)},
		{`{"type":"Replace","pattern":{"String":" "},"content":"\u2581\u2581"}`, strings.Repeat(" ", 500_000)},
	} {
		tok, err := Parse(variant(t, "normalizer", c.normalizer))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tok.Encode(c.text, true); err != nil {
			t.Errorf("%s: %v", c.normalizer, err)
		}
		if _, _, err := tok.EncodeOffsets(c.text, true); err != nil {
			t.Errorf("%s with offsets: %v", c.normalizer, err)
		}
	}
}

func corpus(t testing.TB) [][]byte {
	t.Helper()
	return costtest.Files(t, "testdata/cost/*.json", func(_ string, b []byte) error {
		_, err := Parse(b)
		return err
	})
}

// inputs are encoded with every file that loads.
var inputs = []string{
	strings.Repeat("a", 3000), strings.Repeat("ab ", 1000), strings.Repeat(" \n", 1000) + "x", "Hello,  wörld's <s>\u0301\u0301 \ufdfa中文 12345 a-b <x>",
	strings.Repeat("\u0301\u0323", 1000), strings.Repeat("\ufdfa", 500), strings.Repeat("1234567", 300), "\xff\xfe" + strings.Repeat("\xe4\xb8", 500),
}

// exercise reads a file and does with it what talf does. It reports whether the file loads.
func exercise(file []byte) bool {
	tok, err := Parse(file)
	if err != nil {
		return false
	}
	for _, text := range inputs {
		ids, err := tok.Encode(text, true)
		if err != nil {
			continue
		}
		tok.Decode(ids, true)
		_, _, _ = tok.EncodeOffsets(text, false) // only the cost matters
	}
	return true
}

// drawPattern draws a regular expression whose repetitions and lookarounds nest.
func drawPattern(r *rand.Rand, depth int) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	if depth == 0 {
		return pick("a", "b", "ab", ".", `\s`, `\S+`, `\p{L}`, "[^ab]", "x", `\b`, "$", "é", `\d`)
	}
	part := drawPattern(r, depth-1)
	switch r.IntN(6) {
	case 0:
		return part + drawPattern(r, depth-1)
	case 1:
		return "(" + strings.Repeat(part+"|", 1+r.IntN(1<<r.IntN(6))) + drawPattern(r, depth-1) + ")"
	case 2, 3:
		return "(" + part + ")" + pick("*", "+", "?", "*?", "+?", "{2,}", "{1,40}")
	case 4:
		return pick("(?=", "(?!", "(?<=", "(?<!", "(?i:") + part + ")" + drawPattern(r, depth-1)
	}
	return part
}

// drawTokenizer draws a file whose parts are combined at random: most load, and many cost more
// than is allowed.
func drawTokenizer(t testing.TB, r *rand.Rand) []byte {
	word := func() string {
		s := []string{"a", "b", " ", "aa", "\u2581", "c", "\ufdfa", "ab "}[r.IntN(8)]
		return strings.Repeat(s, 1<<r.IntN(1+r.IntN(14)))
	}
	type part = map[string]any
	replace := func() part {
		if r.IntN(2) == 0 {
			return part{"type": "Replace", "pattern": part{"String": []string{"a", "b", " ", "", "ab"}[r.IntN(5)]}, "content": word()}
		}
		return part{"type": "Replace", "pattern": part{"Regex": drawPattern(r, r.IntN(5))}, "content": word()}
	}
	sequence := func(member string, draw func() part) any {
		list := make([]any, r.IntN(1+r.IntN(12)))
		for i := range list {
			if list[i] = draw(); i > 0 && r.IntN(2) == 0 {
				list[i] = list[0] // the same again
			}
		}
		return part{"type": "Sequence", member: list}
	}
	var d part
	if err := json.Unmarshal([]byte(small), &d); err != nil {
		t.Fatal(err)
	}
	d["normalizer"] = sequence("normalizers", func() part {
		switch r.IntN(5) {
		case 0:
			return part{"type": []string{"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip"}[r.IntN(6)]}
		case 1:
			return part{"type": "Prepend", "prepend": word()}
		}
		return replace()
	})
	d["pre_tokenizer"] = sequence("pretokenizers", func() part {
		switch r.IntN(4) {
		case 0:
			return part{"type": "Digits", "individual_digits": r.IntN(2) == 0}
		case 1:
			return part{"type": "Metaspace", "replacement": []string{"\u2581", "_", " "}[r.IntN(3)], "prepend_scheme": []string{"first", "always", "never"}[r.IntN(3)]}
		}
		return part{
			"type": "Split", "pattern": part{"Regex": drawPattern(r, r.IntN(5))}, "invert": r.IntN(2) == 0,
			"behavior": []string{removed, isolated, contiguous, withPrevious, withNext}[r.IntN(5)],
		}
	})
	d["decoder"] = sequence("decoders", replace)
	var added []any
	for i := range r.IntN(4) {
		added = append(added, part{
			"id": 4 + i, "content": fmt.Sprint(word(), i), "normalized": r.IntN(2) == 0, "lstrip": r.IntN(2) == 0,
			"rstrip": r.IntN(2) == 0, "single_word": r.IntN(2) == 0,
		})
	}
	d["added_tokens"] = added
	return marshal(t, d)
}

func TestMutatedTokenizersAreCheap(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 500
	}
	i, loads := 0, 0
	next, stop := iter.Pull(costtest.Mutations(1, corpus(t), n))
	defer stop()
	r := rand.New(rand.NewPCG(1, 2))
	for i < n {
		file, _ := next()
		if i%2 == 1 {
			file = drawTokenizer(t, r)
		}
		costtest.Check(t, fmt.Sprint("mutation ", i), costtest.Default, func(context.Context) {
			if exercise(file) {
				loads++
			}
		})
		i++
	}
	t.Logf("%d files, of which %d load", i, loads)
	if loads < n/20 {
		t.Errorf("%d of %d files load: the mutations say little about encoding", loads, n)
	}
}

func FuzzTokenizerCost(f *testing.F) {
	for _, file := range corpus(f) {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		costtest.Check(t, "file", costtest.Default, func(context.Context) { exercise(file) })
	})
}
