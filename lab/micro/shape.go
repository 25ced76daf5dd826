package micro

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"

	"talf/internal/spec"
	"talf/model/arch"
	"talf/model/safetensors"
	"talf/model/synth"
)

// A Shape is the architecture of a model with random weights. The cost of a pass does not depend
// on the values of the weights, but for which experts a router chooses.
type Shape struct {
	spec.Line
	make func(v spec.Values) (*arch.Spec, error)
}

// Shapes is the table of shapes, smallest first.
var Shapes = spec.Table[Shape]{Kind: "shape", Lines: []Shape{
	llama("10m", "hidden 256, 12 layers, 8 heads, vocabulary 4096", 4096, 256, 12, 8, 8, 688),
	llama("110m", "hidden 768, 12 layers, 12 heads, vocabulary 32000", 32000, 768, 12, 12, 12, 2048),
	{
		spec.Line{
			Name: "moe-225m", Doc: "hidden 512, 8 layers, 8 heads of which 4 for keys, vocabulary 32000, experts as in Qwen3-MoE",
			Params: []spec.Param{
				spec.Int("experts", 32, 2, 256, "experts of each layer, of 0.8 million parameters"),
				spec.Int("top", 4, 1, 32, "experts that each token reads"),
				spec.Float("spread", 1, spec.Closed(0.01, 100), "factor of the embedding: the larger, the more do tokens differ and the experts that they choose; at 1 they agree in part"),
			},
		},
		mixture,
	},
	llama("1b", "hidden 2048, 16 layers, 32 heads of which 8 for keys, vocabulary 128256, as Llama 3.2 1B", 128256, 2048, 16, 32, 8, 8192),
}}

func llama(name, doc string, vocab, hidden, layers, heads, kvHeads, ffn int) Shape {
	return Shape{spec.Line{Name: name, Doc: doc}, func(spec.Values) (*arch.Spec, error) {
		s := arch.Llama()
		s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads = vocab, hidden, layers, heads, kvHeads
		s.HeadDim, s.FFN, s.MaxPos, s.Tied = hidden/heads, ffn, 4096, true
		return s, nil
	}}
}

func mixture(v spec.Values) (*arch.Spec, error) {
	raw, err := json.Marshal(map[string]any{
		"model_type": "qwen3_moe", "hidden_act": "silu", "vocab_size": 32000, "hidden_size": 512, "num_hidden_layers": 8,
		"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 2048,
		"max_position_embeddings": 4096, "tie_word_embeddings": true, "num_experts": v.Int("experts"),
		"num_experts_per_tok": v.Int("top"), "moe_intermediate_size": 512, "norm_topk_prob": true,
	})
	if err != nil {
		return nil, err
	}
	return arch.Parse("shape", raw, nil)
}

// OpenShape returns the architecture of a shape, such as "110m" or "moe-225m:spread=16", and random weights
// of it.
func OpenShape(shape string) (*arch.Spec, *safetensors.Set, error) {
	x, v, err := Shapes.Parse(shape)
	if err != nil {
		return nil, nil, err
	}
	s, err := x.make(v)
	if err != nil {
		return nil, nil, err
	}
	set := synth.RandomWeights(s, 1)
	if s.Mixture.Experts > 0 {
		spread(s, set, v.Float("spread"))
	}
	return s, set, nil
}

// spread multiplies the embedding.
func spread(s *arch.Spec, set *safetensors.Set, by float64) {
	for _, t := range s.Tensors() {
		if t.Role != arch.Embed {
			continue
		}
		x, _ := set.Tensor(t.Name)
		for i := 0; i < len(x.Data); i += 2 {
			y := math.Float32frombits(uint32(binary.LittleEndian.Uint16(x.Data[i:])) << 16)
			binary.LittleEndian.PutUint16(x.Data[i:], uint16(math.Float32bits(float32(by*float64(y)))>>16))
		}
	}
}

// ShapeNames lists the shapes with what they are, for help.
func ShapeNames() string {
	var names []string
	for _, s := range Shapes.Lines {
		doc := s.Doc
		for i, p := range s.Params {
			doc += []string{"; parameters ", ", "}[min(i, 1)] + p.Name + "=" + p.Default
		}
		names = append(names, s.Name+" ("+doc+")")
	}
	return strings.Join(names, "; ")
}
