// Package target is the recipe of the small model that talf carries: its configuration, its vocabulary, and the
// texts that it is trained on.
package target

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"talf/internal/demo"
	"talf/internal/durable"
	"talf/text/tokenizer"
)

// The recipe. Write writes everything but the weights; `talf train
// --kind lm` trains those from the folder's config.json and the two texts (see the Makefile's
// demo-target).
const (
	// VocabSeed and VocabDocs are the text that the vocabulary is trained on.
	VocabSeed = 1
	VocabDocs = 4000
	// TrainDocs are the documents that the weights are trained on.
	TrainDocs = 40000
	// ValidationDocs are held out.
	ValidationSeed = 3
	ValidationDocs = 300
)

// Special tokens of the demo vocabulary.
const (
	beginToken, endToken, padToken = "<|begin|>", "<|end|>", "<|pad|>"
)

// config is the target's shape: 1,976,960 parameters, 3.95 MB as bfloat16 and
// 7.9 MB as float32.
type config struct {
	Architectures         []string `json:"architectures"`
	AttentionBias         bool     `json:"attention_bias"`
	BOS                   int      `json:"bos_token_id"`
	DType                 string   `json:"torch_dtype"`
	EOS                   int      `json:"eos_token_id"`
	HeadDim               int      `json:"head_dim"`
	HiddenAct             string   `json:"hidden_act"`
	HiddenSize            int      `json:"hidden_size"`
	InitializerRange      float64  `json:"initializer_range"`
	IntermediateSize      int      `json:"intermediate_size"`
	MaxPositionEmbeddings int      `json:"max_position_embeddings"`
	MLPBias               bool     `json:"mlp_bias"`
	ModelType             string   `json:"model_type"`
	NumAttentionHeads     int      `json:"num_attention_heads"`
	NumHiddenLayers       int      `json:"num_hidden_layers"`
	NumKeyValueHeads      int      `json:"num_key_value_heads"`
	PadToken              int      `json:"pad_token_id"`
	RMSNormEps            float64  `json:"rms_norm_eps"`
	RopeTheta             float64  `json:"rope_theta"`
	TieWordEmbeddings     bool     `json:"tie_word_embeddings"`
	VocabSize             int      `json:"vocab_size"`
}

func shape() config {
	return config{
		Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama", HiddenAct: "silu", DType: "bfloat16",
		HiddenSize: 128, NumHiddenLayers: 10, NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 32, IntermediateSize: 352,
		MaxPositionEmbeddings: 512, RopeTheta: 10000, RMSNormEps: 1e-5, InitializerRange: 0.02,
		TieWordEmbeddings: true, VocabSize: demo.VocabSize, BOS: 0, EOS: 1, PadToken: 2,
	}
}

// Write writes to dir the files of the target model that follow from this package alone:
// config.json, generation_config.json, tokenizer.json and tokenizer_config.json.
func Write(dir string) error {
	docs := demo.Corpus(VocabSeed, VocabDocs)
	texts := make([]string, len(docs))
	for i, d := range docs {
		texts[i] = d.Text()
	}
	tok, err := trainTokenizer(texts, demo.VocabSize)
	if err != nil {
		return fmt.Errorf("demo target: %w", err)
	}
	if _, err := tokenizer.Parse(tok); err != nil {
		return fmt.Errorf("demo target: %w", err)
	}
	if err := durable.MakeDirs(dir); err != nil {
		return fmt.Errorf("demo target: %w", err)
	}
	c := shape()
	for name, v := range map[string]any{
		"config.json": c,
		"generation_config.json": map[string]any{
			"bos_token_id": c.BOS, "eos_token_id": c.EOS, "pad_token_id": c.PadToken,
		},
		"tokenizer_config.json": map[string]any{
			"bos_token": beginToken, "eos_token": endToken, "pad_token": padToken, "clean_up_tokenization_spaces": false,
			"model_max_length": c.MaxPositionEmbeddings, "tokenizer_class": "PreTrainedTokenizerFast",
		},
		"tokenizer.json": json.RawMessage(tok),
	} {
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			return fmt.Errorf("demo target: %s: %w", name, err)
		}
		if err := durable.WriteFile(filepath.Join(dir, name), append(b, '\n')); err != nil {
			return fmt.Errorf("demo target: %w", err)
		}
	}
	return nil
}

// WriteTexts writes train.jsonl and validation.jsonl to dir.
func WriteTexts(dir string) error {
	if err := durable.MakeDirs(dir); err != nil {
		return fmt.Errorf("demo texts: %w", err)
	}
	if err := demo.WriteJSONL(filepath.Join(dir, "train.jsonl"), demo.Corpus(demo.TrainSeed, TrainDocs)); err != nil {
		return err
	}
	return demo.WriteJSONL(filepath.Join(dir, "validation.jsonl"), demo.Validation(ValidationSeed, ValidationDocs))
}
