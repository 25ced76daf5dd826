package gguf

// A splitter is how a byte-level tokenizer cuts a text before it merges.
type splitter struct {
	Patterns []string // applied in turn, each to the pieces of the one before
	// IgnoreMerges: a piece that is a token is one, whatever the merges make of it.
	IgnoreMerges bool
	NFC          bool // texts are normalised first; llama.cpp does not
	BOS          bool // unless add_bos_token says otherwise
}

// splitters are what tokenizer.ggml.pre names, as the tokenizer.json of the models has it: llama.cpp
// itself takes tekken's and gpt-4o's cases for those of ASCII, and leaves out marks.
var splitters = map[string]splitter{
	"llama-bpe":        {Patterns: []string{splitLlama3}, IgnoreMerges: true, BOS: true},
	"llama3":           {Patterns: []string{splitLlama3}, IgnoreMerges: true, BOS: true},
	"llama-v3":         {Patterns: []string{splitLlama3}, IgnoreMerges: true, BOS: true},
	"falcon3":          {Patterns: []string{splitLlama3}, IgnoreMerges: true, BOS: true},
	"smaug-bpe":        {Patterns: []string{splitLlama3}},
	"qwen2":            {Patterns: []string{splitQwen2}, NFC: true},
	"deepseek-r1-qwen": {Patterns: []string{splitQwen2}},
	"qwen35":           {Patterns: []string{splitQwen35}},
	"gpt-2":            {Patterns: []string{splitGPT2}},
	"phi-2":            {Patterns: []string{splitGPT2}},
	"olmo":             {Patterns: []string{splitGPT2}},
	"smollm":           {Patterns: []string{`\p{N}`, splitGPT2}},
	"starcoder":        {Patterns: []string{`\p{N}`, splitGPT2}},
	"refact":           {Patterns: []string{`\p{N}`, splitGPT2}},
	"command-r":        {Patterns: []string{`\p{N}`, splitGPT2}},
	"tekken":           {Patterns: []string{splitTekken}, IgnoreMerges: true, BOS: true},
	"gpt-4o":           {Patterns: []string{splitGPT4o}},
	"deepseek-v3":      {Patterns: []string{`\p{N}{1,3}`, "[一-龥\u3040-ゟ゠-ヿ]+", splitDeepSeek3}},
	"deepseek-coder":   {Patterns: []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, "[一-龥ࠀ-一가-\ud7ff]+", `\p{N}`}},
}

const (
	splitGPT2      = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	splitLlama3    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitQwen2     = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitQwen35    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	splitDeepSeek3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

	upper       = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lower       = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	ending      = `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
	splitTekken = `[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+|[^\r\n\p{L}\p{N}]?` + upper + `+` + lower + `*|\p{N}` + rest
	splitGPT4o  = `[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+` + ending + `|[^\r\n\p{L}\p{N}]?` + upper + `+` + lower + `*` + ending + `|\p{N}{1,3}` + rest
	rest        = `| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)
