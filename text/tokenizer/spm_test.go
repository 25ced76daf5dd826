package tokenizer

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"talf/internal/golden"
)

// Llama 2's SentencePiece file and its tokenizer.json are the same tokenizer. This is
// checked on a megabyte of text, including decoding, and on the conformance cases
// without control tokens.
func TestSentencePieceFileAgreesWithTokenizerJSON(t *testing.T) {
	js := load(t, "tokenizers/llama2")
	b, err := os.ReadFile(golden.Shared(t, "data/tokenizers/llama2/tokenizer.model"))
	if err != nil {
		t.Fatal(err)
	}
	sp, err := ParseSentencePiece(b)
	if err != nil {
		t.Fatal(err)
	}
	same := func(text string) {
		t.Helper()
		a, b := encode(t, js, text, true), encode(t, sp, text, true)
		if !slices.Equal(a, b) {
			i := 0
			for i < len(a) && i < len(b) && a[i] == b[i] {
				i++
			}
			t.Errorf("%.60q: they differ from token %d of %d and %d", text, i, len(a), len(b))
			return
		}
		if x, y := js.Decode(a, true), sp.Decode(a, true); x != y {
			t.Errorf("%.60q: decoded %.60q and %.60q", text, x, y)
		}
	}
	total := 0
	for _, name := range []string{"wikitext2_valid.txt", "tinyshakespeare.txt", "tinystories_val_794k.txt"} {
		text, err := os.ReadFile(golden.Shared(t, "data/text/"+name))
		if err != nil {
			t.Fatal(err)
		}
		total += len(text)
		// WikiText writes <unk> for rare words.
		same(strings.ReplaceAll(string(text), "<unk>", "rare"))
	}
	if total < 1<<20 {
		t.Errorf("only %d bytes of text", total)
	}
	for _, c := range readCases(t, "tokenizers/llama2") {
		if !strings.Contains(c.Text, "<s>") && !strings.Contains(c.Text, "</s>") && !strings.Contains(c.Text, "<unk>") {
			same(c.Text)
		}
	}
	bos, _ := sp.BOS()
	eos, _ := sp.EOS()
	if bos != 1 || eos != 2 || !sp.Special(0) || sp.VocabSize() != 32000 {
		t.Errorf("bos %d, eos %d, %d pieces", bos, eos, sp.VocabSize())
	}
	if got := encode(t, sp, "a</s> b", false); !slices.Contains(got, 2) {
		t.Errorf("the control token is not found: %v", got)
	}
}

func TestSentencePieceFolder(t *testing.T) {
	b, err := os.ReadFile(golden.Shared(t, "data/tokenizers/llama2/tokenizer.model"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.model", string(b))
	write("tokenizer_config.json", `{"add_bos_token": false, "add_eos_token": true, "eos_token": {"content": "</s>"}}`)
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := encode(t, tok, "x", true); !slices.Equal(got, []int32{921, 2}) {
		t.Errorf("ids %v", got)
	}
	write("tokenizer.model", string(b[:1000]))
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "tokenizer.model") {
		t.Errorf("a truncated file loads: %v", err)
	}
}

// A unigram model, the other kind that SentencePiece trains, is refused by name.
func TestSentencePieceRefusals(t *testing.T) {
	// ModelProto{trainer_spec{model_type: UNIGRAM}}
	_, err := ParseSentencePiece([]byte{2<<3 | 2, 2, 3 << 3, 1})
	if err == nil || !strings.Contains(err.Error(), "model_type 1") {
		t.Errorf("%v", err)
	}
	// The defaults of normalizer_spec remove white space.
	_, err = ParseSentencePiece([]byte{2<<3 | 2, 2, 3 << 3, 2})
	if err == nil || !strings.Contains(err.Error(), "remove_extra_whitespaces") {
		t.Errorf("%v", err)
	}
}

func FuzzSentencePiece(f *testing.F) {
	f.Add([]byte{2<<3 | 2, 2, 3 << 3, 2, 3<<3 | 2, 2, 4 << 3, 0, 1<<3 | 2, 7, 1<<3 | 2, 3, 'u', 'n', 'k', 3 << 3, 2, 1<<3 | 2, 3, 1<<3 | 2, 1, 'a'}, "aa b")
	f.Fuzz(func(t *testing.T, b []byte, text string) {
		tok, err := ParseSentencePiece(b)
		if err != nil {
			return
		}
		ids, err := tok.Encode(text, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if !tok.Known(id) {
				t.Fatalf("id %d is not in the vocabulary", id)
			}
		}
		tok.Decode(ids, true)
	})
}

// spmFile is the file of a SentencePiece model of type BPE without a prefix.
func spmFile(pieces ...spmPiece) []byte {
	var b []byte
	for _, p := range pieces {
		m := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), p.text)
		m = protowire.AppendFixed32(protowire.AppendTag(m, 2, protowire.Fixed32Type), math.Float32bits(p.score))
		m = protowire.AppendVarint(protowire.AppendTag(m, 3, protowire.VarintType), p.kind)
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), m)
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), []byte{3 << 3, 2})
	return protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), []byte{3 << 3, 0, 4 << 3, 0})
}

// Gemma's files define runs of line feeds, tabs and spaces, down to one, which are found in a text
// before anything is merged, the longest first.
func TestPiecesOfOneCharacter(t *testing.T) {
	tok, err := ParseSentencePiece(spmFile(
		spmPiece{"<unk>", 0, pieceUnknown}, spmPiece{"@", 0, pieceControl},
		spmPiece{"\n", 0, pieceUser}, spmPiece{"\n\n", 0, pieceUser}, spmPiece{"\t", 0, pieceUser}, spmPiece{"  ", 0, pieceUser},
		spmPiece{"▁", -3, pieceNormal}, spmPiece{"a", -3, pieceNormal}, spmPiece{"▁a", -1, pieceNormal}, spmPiece{"a\n", -2, pieceNormal},
	))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int32{
		"a\na":       {7, 2, 7}, // "a\n" is never merged
		"\n\n\n a":   {3, 2, 8},
		"a   a\t\ta": {7, 5, 8, 4, 4, 7},
		"a@a":        {7, 1, 7},
	} {
		if got := encode(t, tok, text, false); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
		if got := tok.Decode(want, false); got != text {
			t.Errorf("%v decodes to %q, want %q", want, got, text)
		}
	}
	// As text, a control piece is what any other unknown character is.
	at, err := tok.Controls("a@a")
	if err != nil {
		t.Fatal(err)
	}
	got, err := tok.EncodeLiteral("a@a", at, false)
	if want := []int32{7, 0, 7}; err != nil || !slices.Equal(got, want) {
		t.Errorf("as text: %v, %v, want %v", got, err, want)
	}
	if tok.Special(2) || !tok.Special(1) || !tok.Known(1) {
		t.Error("a piece is special if it is of type control or unknown")
	}
}
