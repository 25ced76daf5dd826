package arch

import (
	"encoding/json"
	"fmt"
)

// LlamaConfig returns the config.json of a Llama with s's sizes, as Hugging Face's loaders
// read it. dtype is float32 or bfloat16.
func (s *Spec) LlamaConfig(dtype string) ([]byte, error) {
	c := map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_act": "silu",
		"vocab_size": s.Vocab, "hidden_size": s.Hidden, "num_hidden_layers": s.Layers,
		"num_attention_heads": s.Heads, "num_key_value_heads": s.KVHeads, "head_dim": s.HeadDim,
		"intermediate_size": s.FFN, "max_position_embeddings": s.MaxPos,
		"rms_norm_eps": s.NormEps, "rope_theta": s.Rope.Theta, "rope_scaling": nil,
		"attention_bias": false, "mlp_bias": false, "tie_word_embeddings": s.Tied,
		"torch_dtype": dtype, "use_cache": true,
	}
	if s.Rope.Type != "default" {
		return nil, fmt.Errorf("model configuration: rope_type is %.100q, want \"default\" for a model trained here", s.Rope.Type)
	}
	s.SetSpecial(c)
	b, err := json.MarshalIndent(c, "", "  ")
	return append(b, '\n'), err
}
