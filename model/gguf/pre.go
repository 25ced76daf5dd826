package gguf

import (
	"maps"
	"slices"
	"strings"
)

// A splitter is how a byte-level tokenizer cuts a text before it merges.
type splitter struct {
	Names    string   // in tokenizer.ggml.pre, the first one that files are written with
	Patterns []string // applied in turn, each to the pieces of the one before
	// IgnoreMerges: a piece that is a token is one, whatever the merges make of it.
	IgnoreMerges bool
	NFC          bool // texts are normalised first; llama.cpp does not
	BOS          bool // unless add_bos_token says otherwise
}

// splitters are all names of tokenizer.ggml.pre that llama.cpp knows, but for rawNames. The patterns are those in
// tokenizer.json of the models: where they tell cases apart, llama.cpp does so in ASCII alone or not at all, and some of its
// patterns leave out marks.
var splitters = []splitter{
	{Names: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", Patterns: []string{splitLlama3}, IgnoreMerges: true, BOS: true},
	{Names: "glm4 glm5", Patterns: []string{splitLlama3}, IgnoreMerges: true},
	{Names: "smaug-bpe dbrx chatglm-bpe", Patterns: []string{splitLlama3}},
	{Names: "minicpm5", Patterns: []string{`\p{N}{1,3}`, contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+` + others}, IgnoreMerges: true},
	{Names: "jais-2", Patterns: []string{contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|` + halvings}},
	{Names: "qwen2", Patterns: []string{splitQwen2}, NFC: true},
	{Names: "deepseek-r1-qwen megrez kormo f2llmv2 stablelm2 hunyuan solar-open grok-2", Patterns: []string{splitQwen2}},
	{Names: "qwen35", Patterns: []string{splitQwen35}},
	{Names: "laguna", Patterns: []string{`[^\n]+|[\n]+`, splitQwen2}},
	{Names: "ufakzeka", Patterns: []string{`[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + others}},
	{Names: "bailingmoe bailingmoe2 llada-moe", Patterns: []string{contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|` + blanks}},
	{Names: "seed-coder", Patterns: []string{contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|` + blanks}},
	{Names: "exaone-moe", Patterns: []string{contractions + `|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|` + blanks}},
	{Names: "gpt-2 phi-2 olmo mpt jais trillion gigachat mellum exaone4 a.x-4.0 granite-docling modern-bert roberta-bpe " +
		"jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code", Patterns: []string{splitGPT2}},
	{Names: "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", Patterns: []string{`\p{N}`, splitGPT2}},
	{Names: "falcon", Patterns: []string{"[\\p{P}$+<=>^~|`]+", splitGPT2, `[0-9][0-9][0-9]`}},
	{Names: "default", Patterns: []string{`[\p{P}$+<=>^~|]+`, splitGPT2, `\p{N}+`, `[0-9][0-9][0-9]`}},
	{Names: "chameleon", Patterns: []string{
		`<sentinel:[0-9]+>`, `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`, `([\t\n]|    |  )`, `\p{N}`, "[\\p{P}!-/:-@\\[-`{-~]", splitGPT2,
	}, BOS: true},
	{Names: "bloom gpt3-finnish poro-chat", Patterns: []string{splitBloom}},
	{Names: "viking", Patterns: []string{splitBloom, `\p{N}`}},
	{Names: "superbpe", Patterns: []string{`\p{N}+`, `(?=(\d{3})+(?!\d))`}},
	{Names: "tekken", Patterns: []string{splitTekken}, IgnoreMerges: true, BOS: true},
	{Names: "gpt-4o llama4 kanana2 talkie minimax-m2", Patterns: []string{splitGPT4o}},
	{Names: "granite-embed-multi-97m", Patterns: []string{splitGPT4o}, IgnoreMerges: true},
	{Names: "tiny_aya cohere2moe", Patterns: []string{`\d{1,3}(?=(?:\d{3})*\b)`, splitGPT4o}},
	{Names: "youtu", Patterns: []string{
		`[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|` + hanKana,
		`[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+` + ending + `|[^\r\n\p{L}\p{N}]?` + upper + `+` + lower + `*` + ending + `|\p{N}` + rest,
	}, IgnoreMerges: true},
	{Names: "kimi-k2", Patterns: []string{
		`\p{Han}+|[^\r\n\p{L}\p{N}]?` + noHan + upper + `)*` + noHan + lower + `)+` + ending +
			`|[^\r\n\p{L}\p{N}]?` + noHan + upper + `)+` + noHan + lower + `)*` + ending + `|\p{N}{1,3}` + others,
	}},
	{Names: "deepseek-llm", Patterns: []string{
		`[\r\n]`, `\s?(?:(?!` + uncased + `)[\p{Lu}\p{Ll}\p{Lt}])+`, `\s?[!-/:-~！-／：-～‘-‟\x{3000}-。]+`, `\s+$`, hanHangul, `\p{N}+`,
	}},
	{Names: "deepseek-coder", Patterns: []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, hanHangul, `\p{N}`}},
	{Names: "deepseek-v3 hunyuan-dense joyai-llm hy_v4", Patterns: []string{`\p{N}{1,3}`, hanKana, words + `| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|` + blanks}},
	{Names: "spark2_5", Patterns: []string{`\p{N}{1,3}`, hanKana, words + `| ?[\p{P}\p{S}]+|[\r\n]|` + blanks, `\p{N}`}},
	{Names: "afmoe", Patterns: []string{`\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))`, scripts, words + `| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|` + blanks}},
}

// rawNames are names of tokenizers that merge texts as they stand, without the byte-level alphabet, of architectures
// that are not read.
var rawNames = []string{"gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace"}

// byName are the splitters by each of their names.
var byName = func() map[string]*splitter {
	m := make(map[string]*splitter)
	for i := range splitters {
		for _, name := range strings.Fields(splitters[i].Names) {
			m[name] = &splitters[i]
		}
	}
	return m
}()

// Splitters returns the names of ways to cut texts, as tokenizer.ggml.pre has them, by the alphabet.
func Splitters() []string { return slices.Sorted(maps.Keys(byName)) }

// Splitter returns the name in tokenizer.ggml.pre of a byte-level tokenizer that cuts texts by the
// patterns, each applied to the pieces of the one before, and reports whether there is one.
func Splitter(patterns []string, ignoreMerges, nfc bool) (name string, ok bool) {
	for _, s := range splitters {
		if slices.Equal(s.Patterns, patterns) && s.IgnoreMerges == ignoreMerges && s.NFC == nfc {
			return strings.Fields(s.Names)[0], true
		}
	}
	return "", false
}

// GPT2Pattern is what ByteLevel cuts texts by if it is asked to.
const GPT2Pattern = splitGPT2

const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	blanks       = `\s+(?!\S)|\s+`
	others       = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|` + blanks

	splitGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|` + blanks
	splitLlama3 = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}` + others
	splitQwen2  = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + others
	splitQwen35 = contractions + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|` + blanks
	splitBloom  = ` ?[^(\s|.,!?…。，、।۔،)]+`
	halvings    = `\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`

	words     = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
	hanKana   = "[一-龥\u3040-ゟ゠-ヿ]+"
	hanHangul = "[一-龥ࠀ-一가-\ud7ff]+"
	scripts   = `[一-鿿㐀-䶿\x{8C48}-\x{FAFF}\x{3040}-ゟ゠-ヿ･-ﾟ⼀-\x{2FDF}\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}ក-\x{17FF}က-႟ꩠ-ꩿꧠ-\x{A9FF}가-\x{D7AF}ᄀ-ᇿ]+`
	// uncased are blocks of cased letters that deepseek-llm does not take for such.
	uncased = `[\x{560}-\x{588}\x{10C7}-\x{10FF}\x{1C80}-\x{1C8F}\x{2D00}-\x{2D2F}\x{A790}-\x{A7FF}\x{AB30}-\x{AB6F}\x{10570}-\x{105BF}\x{10D50}-\x{10D8F}\x{16E40}-\x{1DFFF}]`

	noHan       = `(?:(?!\p{Han})`
	upper       = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lower       = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	ending      = `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
	splitTekken = `[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+|[^\r\n\p{L}\p{N}]?` + upper + `+` + lower + `*|\p{N}` + rest
	splitGPT4o  = `[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+` + ending + `|[^\r\n\p{L}\p{N}]?` + upper + `+` + lower + `*` + ending + `|\p{N}{1,3}` + rest
	rest        = `| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|` + blanks
)
