package tokenizer

import "encoding/json"

// An Infill has the tokens with which a model is asked for what stands between two texts: Prefix, the text
// before, Suffix, the text after, Middle, and then the model writes (Bavarian et al., "Efficient Training of Language
// Models to Fill in the Middle", 2022, section 3: PSM). Where the model learnt texts of repositories, Repository
// stands before the name of one, and File before the name of a file; otherwise they are −1.
type Infill struct{ Prefix, Suffix, Middle, Repository, File int32 }

// infills are the texts of these tokens by family: Qwen and CodeGemma, StarCoder and Granite, SantaCoder, DeepSeek, CodeLlama twice, GLM.
var infills = [][3]string{
	{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
	{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
	{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
	{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
	{"▁<PRE>", "▁<SUF>", "▁<MID>"},
	{"<PRE>", "<SUF>", "<MID>"},
	{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
}

// Infill returns the tokens of fill-in-the-middle: those that tokenizer_config.json names prefix_token, suffix_token and
// middle_token, as a GGUF file's keys do, or else those of a known family. ok is false if there are none.
func (t *Tokenizer) Infill() (i Infill, ok bool) {
	if t.infill != nil {
		return *t.infill, true
	}
	for _, texts := range infills {
		if i := t.infillOf(texts); i != nil {
			return *i, true
		}
	}
	return i, false
}

// findInfill reads the tokens that a configuration names; nil if it does not name all three.
func (t *Tokenizer) findInfill(config map[string]json.RawMessage) *Infill {
	var texts [3]string
	for i, key := range []string{"prefix_token", "suffix_token", "middle_token"} {
		var ok bool
		if texts[i], ok = content(config[key]); !ok || texts[i] == "" {
			return nil
		}
	}
	return t.infillOf(texts)
}

// infillOf returns tokens by their texts; nil if one of the three is missing. What names repositories and files has the
// texts of Qwen or of StarCoder.
func (t *Tokenizer) infillOf(texts [3]string) *Infill {
	var ids [3]int32
	for i, text := range texts {
		var ok bool
		if ids[i], ok = t.TokenID(text); !ok {
			return nil
		}
	}
	x := &Infill{Prefix: ids[0], Suffix: ids[1], Middle: ids[2], Repository: -1, File: -1}
	for _, names := range [][2]string{{"<|repo_name|>", "<|file_sep|>"}, {"<repo_name>", "<file_sep>"}} {
		repository, ok := t.TokenID(names[0])
		if file, both := t.TokenID(names[1]); ok && both {
			x.Repository, x.File = repository, file
			break
		}
	}
	return x
}
