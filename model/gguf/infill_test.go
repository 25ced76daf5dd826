package gguf_test

import (
	"slices"
	"testing"

	"talf/model/gguf/gguftest"
	"talf/text/tokenizer"
)

// The tokens of fill-in-the-middle are those that the keys name, old or new, or else those with the texts of a family.
func TestTokensOfFillInTheMiddle(t *testing.T) {
	for name, c := range map[string]struct {
		more []string
		keys map[string]uint32
		want tokenizer.Infill
		ok   bool
	}{
		"none":               {ok: false},
		"two of three":       {more: []string{"<|fim_prefix|>", "<|fim_suffix|>"}},
		"by their texts":     {more: []string{"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"}, want: tokenizer.Infill{Prefix: 266, Middle: 267, Suffix: 268}, ok: true},
		"with files":         {more: []string{"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>", "<|file_sep|>"}, want: tokenizer.Infill{Prefix: 266, Middle: 267, Suffix: 268, Repository: 269, File: 270}, ok: true},
		"of one family":      {more: []string{"<fim_prefix>", "<fim_suffix>", "<MID>", "<fim_middle>"}, want: tokenizer.Infill{Prefix: 266, Suffix: 267, Middle: 269}, ok: true},
		"by keys":            {keys: map[string]uint32{"fim_pre": 70, "fim_suf": 71, "fim_mid": 72}, want: tokenizer.Infill{Prefix: 70, Suffix: 71, Middle: 72}, ok: true},
		"by older keys":      {keys: map[string]uint32{"prefix": 70, "suffix": 71, "middle": 72}, want: tokenizer.Infill{Prefix: 70, Suffix: 71, Middle: 72}, ok: true},
		"the newer win":      {keys: map[string]uint32{"fim_pre": 70, "prefix": 75, "fim_suf": 71, "fim_mid": 72, "middle": 76}, want: tokenizer.Infill{Prefix: 70, Suffix: 71, Middle: 72}, ok: true},
		"keys before texts":  {more: []string{"<PRE>", "<SUF>", "<MID>"}, keys: map[string]uint32{"fim_pre": 70, "fim_suf": 71, "fim_mid": 72}, want: tokenizer.Infill{Prefix: 70, Suffix: 71, Middle: 72}, ok: true},
		"too few keys":       {more: []string{"<PRE>", "<SUF>", "<MID>"}, keys: map[string]uint32{"fim_pre": 70}, want: tokenizer.Infill{Prefix: 266, Suffix: 267, Middle: 268}, ok: true},
		"a key out of range": {keys: map[string]uint32{"fim_pre": 7000, "fim_suf": 71, "fim_mid": 72}},
	} {
		t.Run(name, func(t *testing.T) {
			f := gguftest.Tiny(1)
			f.Set("tokenizer.ggml.tokens", append(f.Get("tokenizer.ggml.tokens").([]string), c.more...))
			f.Set("tokenizer.ggml.token_type", append(f.Get("tokenizer.ggml.token_type").([]int32), slices.Repeat([]int32{3}, len(c.more))...))
			for key, id := range c.keys {
				f.Set("tokenizer.ggml."+key+"_token_id", id)
			}
			tok, err := tokenizer.Load(f.Write(t, "x.gguf"))
			if err != nil {
				t.Fatal(err)
			}
			if c.ok && c.want.File == 0 {
				c.want.Repository, c.want.File = -1, -1
			}
			if got, ok := tok.Infill(); got != c.want || ok != c.ok {
				t.Errorf("%+v, %v, want %+v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}
