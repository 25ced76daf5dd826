package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// specials returns the texts of the special tokens, without the unknown token.
func specials(tok *Tokenizer) (all []string) {
	for _, a := range tok.order {
		if a.special && a.id != tok.model.unk {
			all = append(all, a.Content)
		}
	}
	return all
}

// Whatever a message says, next to whatever a template writes, special tokens are those that the
// template wrote, each where it stands. The other ids spell the message.
func TestTextNeverBecomesASpecialToken(t *testing.T) {
	withEach(t, families, func(t *testing.T, tok *Tokenizer, name string) {
		all := specials(tok)
		if len(all) == 0 {
			t.Skip("it has no special token")
		}
		found := 0
		rapid.Check(t, func(t *rapid.T) {
			special := rapid.SampledFrom(all)
			part := rapid.Custom(func(t *rapid.T) string {
				s := special.Draw(t, "token")
				i := rapid.IntRange(0, len(s)).Draw(t, "from")
				return s[i:rapid.IntRange(i, len(s)).Draw(t, "to")]
			})
			plain := rapid.StringOf(rapid.RuneFrom([]rune("ab <|>/sé\n 中")))
			message := rapid.Custom(func(t *rapid.T) string {
				return strings.Join(rapid.SliceOfN(rapid.OneOf(special, part, plain), 0, 4).Draw(t, "message"), "")
			})
			var text strings.Builder
			var literal, written []int
			for range rapid.IntRange(1, 5).Draw(t, "parts") {
				if rapid.Bool().Draw(t, "template") {
					written = append(written, text.Len())
					text.WriteString(special.Draw(t, "written"))
					text.WriteString("\n")
					continue
				}
				m := message.Draw(t, "said")
				at, err := tok.Controls(m)
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range at {
					literal = append(literal, text.Len()+i)
				}
				// Between two messages a template writes something, if only a line break: two
				// words that make one token are its own doing.
				text.WriteString(m + "\n")
			}
			found += len(literal)
			ids, spans, err := tok.EncodeLiteralOffsets(text.String(), literal, false)
			if err != nil {
				t.Fatal(err)
			}
			// A special token that stands where the template wrote one, with white space around it.
			ofTemplate := func(id int32, s Span) bool {
				return tok.Special(id) && slices.ContainsFunc(written, func(at int) bool { return s.Start <= at && at < s.End })
			}
			for i, id := range ids {
				if tok.Special(id) && id != tok.model.unk && !ofTemplate(id, spans[i]) {
					t.Errorf("%q, said at %v, written at %v: %q at %d", text.String(), literal, written, tok.tokens.At(id), spans[i].Start)
				}
			}
			// The template's own are what they are without the rule: some tokenizers do not
			// recognise a special token everywhere.
			count := func(ids []int32, spans []Span) (n int) {
				for i, id := range ids {
					if ofTemplate(id, spans[i]) {
						n++
					}
				}
				return n
			}
			free, at, err := tok.EncodeOffsets(text.String(), false)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := count(ids, spans), count(free, at); got != want {
				t.Errorf("%q: %d special tokens of the template, %d without the rule", text.String(), got, want)
			}
			same, err := tok.EncodeLiteral(text.String(), literal, false)
			if err != nil || !slices.Equal(same, ids) {
				t.Errorf("%q: %v, %v without offsets, %v with them", text.String(), same, err, ids)
			}
		})
		if found == 0 {
			t.Error("no message held a part of a special token")
		}
	})
}

// Text with no place for a special token is encoded as ever, and so is all text between two.
func TestLiteralPlacesChangeNothingElse(t *testing.T) {
	withEach(t, families, func(t *testing.T, tok *Tokenizer, name string) {
		for _, c := range readCases(t, name) {
			want := encode(t, tok, c.Text, true)
			got, err := tok.EncodeLiteral(c.Text, nil, true)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%+q: %v, %v, want %v", c.Text, got, err, want)
			}
			at, err := tok.Controls(c.Text)
			if err != nil {
				t.Fatal(err)
			}
			ids := encode(t, tok, c.Text, false)
			// Text that the vocabulary does not know has the unknown token, too.
			if len(at) == 0 && slices.ContainsFunc(ids, func(id int32) bool { return tok.Special(id) && id != tok.model.unk }) {
				t.Errorf("%+q has a special token that Controls does not find", c.Text)
			}
			if slices.ContainsFunc(ids, tok.Special) {
				continue
			}
			if got, err = tok.EncodeLiteral(c.Text, at, true); err != nil || !slices.Equal(got, want) {
				t.Errorf("%+q, text at %v: %v, %v, want %v", c.Text, at, got, err, want)
			}
		}
	})
}

func TestControlsAreFoundWholeAndInParts(t *testing.T) {
	tok, err := Parse([]byte(`{"model":{"type":"BPE","vocab":{"<":0,"|":1,"a":2,">":3,"/":4,"s":5},"merges":[]},
		"normalizer":{"type":"Lowercase"},"added_tokens":[
		{"id":6,"content":"<|a|>","special":true,"normalized":false},{"id":7,"content":"|>s","special":true,"normalized":false},
		{"id":8,"content":"</s>","special":true,"normalized":true},{"id":9,"content":"<s/>","special":false,"normalized":false}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int{
		"":             nil,
		"a s":          nil,
		"a":            nil,    // a part of a token, but a word
		"<|a|>":        {0, 3}, // and the first part of |>s at its end
		"s<|a|>s":      {1, 4}, // |>s overlaps
		"s<s/>":        nil,
		"a</S>a":       {1}, // found after normalization
		"s <":          {2},
		"s <|a":        {2},
		"|> s":         {0},
		"|a":           {0},
		"a|>":          {0, 1}, // the end of one, and the beginning of another
		"/s> and text": {0},
		"<a>":          nil,
	} {
		got, err := tok.Controls(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}

// Keys of tokenizer_config.json match letter for letter and occur once.
func TestNamesOfSpecialTokensAreReadStrictly(t *testing.T) {
	tok, err := Parse([]byte(`{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"added_tokens":[{"id":1,"content":"<s>","special":true,"normalized":false}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string]string{
		`{"bos_token":{"content":"<s>","Content":"a"}}`:   "",
		`{"bos_token":{"Content":"<s>"}}`:                 "bos_token is neither",
		`{"bos_token":"<s>","bos_token":"a"}`:             `field "bos_token": it occurs twice`,
		`{"bos_token":{"content":"<s>","content":"<s>"}}`: `field "bos_token.content": it occurs twice`,
	} {
		err := tok.name([]byte(config))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}
