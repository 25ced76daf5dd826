package arch

import (
	"fmt"

	"talf/internal/limits"
)

// A Mixture says how the feed-forward networks of layers with experts are made: a router scores
// the experts, each token reads those with the largest scores, and the factors of their outputs
// come from the scores. Its zero value is a model without experts.
type Mixture struct {
	Experts int    `config:"num_experts,omitzero"` // of each such layer
	Top     int    `config:"num_experts_per_tok,omitzero"`
	FFN     int    `config:"moe_intermediate_size,omitzero"`
	Shared  int    `config:"shared_expert_intermediate_size,omitzero"` // of an expert that all tokens read; 0: none
	Gated   bool   `config:"shared_expert_gate,omitzero"`              // the shared expert's output is multiplied by a sigmoid
	Dense   []bool `config:"mlp_only_layers,omitzero"`                 // [Layers]: layers without experts; nil: none

	Sigmoid bool    `config:"sigmoid_router,omitzero"`        // scores are sigmoids, not a softmax over all experts
	Renorm  bool    `config:"norm_topk_prob,omitzero"`        // scores of the chosen are divided by their sum
	Factor  float32 `config:"routed_scaling_factor,omitzero"` // multiplies them; 0: 1
	// Experts are in equal groups, of which only the best are chosen from: those with the largest
	// sums of their two best scores. 0: there is one group.
	Groups    int `config:"n_group,omitzero"`
	TopGroups int `config:"topk_group,omitzero"`
}

// Sparse reports whether a layer has experts.
func (m *Mixture) Sparse(layer int) bool {
	return m.Experts > 0 && (m.Dense == nil || layer >= 0 && layer < len(m.Dense) && !m.Dense[layer])
}

// maxExperts bounds lists with an entry per expert.
const maxExperts = 1 << 12

func (m *Mixture) validate(layers int) error {
	switch {
	case m.Experts == 0:
		return nil
	case m.Experts < 0 || m.Experts > maxExperts || m.Experts > limits.Tensors/(3*max(1, layers)):
		return fmt.Errorf("num_experts is %d in %d layers, want 1 to %d, and at most %d matrices in all", m.Experts, layers, maxExperts, limits.Tensors)
	case m.Top < 1 || m.Top > m.Experts:
		return fmt.Errorf("num_experts_per_tok is %d, want 1 to num_experts, %d", m.Top, m.Experts)
	case m.FFN < 1 || m.FFN > maxDim || m.Shared < 0 || m.Shared > maxDim:
		return fmt.Errorf("moe_intermediate_size is %d and the shared expert's %d, want up to %d", m.FFN, m.Shared, maxDim)
	case m.Dense != nil && len(m.Dense) != layers:
		return fmt.Errorf("%d layers have experts or not, want one entry for each of num_hidden_layers = %d", len(m.Dense), layers)
	case !(m.Factor >= 0 && m.Factor < maxFactor):
		return fmt.Errorf("routed_scaling_factor is %v, want more than 0 and less than %v", m.Factor, maxFactor)
	}
	if m.Groups == 0 {
		return nil
	}
	if m.Groups < 0 || m.Experts%m.Groups != 0 || m.Experts/m.Groups < 2 {
		return fmt.Errorf("n_group is %d, want equal groups of 2 or more of the %d experts", m.Groups, m.Experts)
	}
	if m.TopGroups < 1 || m.TopGroups > m.Groups || m.TopGroups*(m.Experts/m.Groups) < m.Top {
		return fmt.Errorf("topk_group is %d, want 1 to n_group = %d groups with %d experts to choose", m.TopGroups, m.Groups, m.Top)
	}
	return nil
}

// mixed returns terms with the feed-forward network of experts beside the dense one. expert names
// the experts' projections, with their layer and index, router the router and its options.
func mixed(terms []Term, router string, gate, up, down string, more ...Term) []Term {
	var out []Term
	for _, t := range terms {
		switch t.Role {
		case Gate, Up, Down:
			t.In = denseLayer
		}
		if out = append(out, t); t.Role != Down {
			continue
		}
		out = append(out, Term{Role: Router, Name: router, Rows: expertCount, Cols: HiddenSize, In: sparseLayer})
		for _, m := range more {
			m.In = sparseLayer
			out = append(out, m)
		}
		out = append(out,
			Term{Role: ExpertGate, Name: gate, Rows: expertSize, Cols: HiddenSize, PerExpert: true, In: sparseLayer},
			Term{Role: ExpertUp, Name: up, Rows: expertSize, Cols: HiddenSize, PerExpert: true, In: sparseLayer},
			Term{Role: ExpertDown, Name: down, Rows: HiddenSize, Cols: expertSize, PerExpert: true, In: sparseLayer})
	}
	return out
}

// experts are the names that most families give to routers and experts.
func experts(terms []Term, more ...Term) []Term {
	const mlp = "model.layers.%d.mlp."
	return mixed(terms, mlp+"gate", mlp+"experts.%d.gate_proj", mlp+"experts.%d.up_proj", mlp+"experts.%d.down_proj", more...)
}

// shared are the tensors of an expert that all tokens read.
func shared(name string) []Term {
	name = "model.layers.%d.mlp." + name
	return []Term{
		{Role: SharedGate, Name: name + ".gate_proj", Rows: sharedSize, Cols: HiddenSize, Only: ifShared},
		{Role: SharedUp, Name: name + ".up_proj", Rows: sharedSize, Cols: HiddenSize, Only: ifShared},
		{Role: SharedDown, Name: name + ".down_proj", Rows: HiddenSize, Cols: sharedSize, Only: ifShared},
	}
}

var (
	mixtralTerms = mixed(llamaTerms, "model.layers.%d.block_sparse_moe.gate",
		"model.layers.%d.block_sparse_moe.experts.%d.w1", "model.layers.%d.block_sparse_moe.experts.%d.w3", "model.layers.%d.block_sparse_moe.experts.%d.w2")
	qwen2MoETerms = experts(llamaTerms, append(shared("shared_expert"),
		Term{Role: SharedRouter, Name: "model.layers.%d.mlp.shared_expert_gate", Rows: oneSize, Cols: HiddenSize})...)
	qwen3MoETerms = experts(qwen3Terms)
	glm4MoETerms  = experts(optional(qwen3Terms, ifQKNorms), append(shared("shared_experts"), correction)...)
)

// correction is what is added to the scores of a router while experts are chosen.
var correction = Term{Role: RouterOffset, Name: "model.layers.%d.mlp.gate.e_score_correction_bias", Rows: expertCount, Bare: true}

// optional returns terms whose norms of queries and keys are there only if a flag is met.
func optional(terms []Term, only Flag) []Term {
	out := append([]Term(nil), terms...)
	for i := range out {
		if out[i].Role == QNorm || out[i].Role == KNorm {
			out[i].Only = only
		}
	}
	return out
}

// parseMixtral reads Mixtral (Jiang et al. 2024).
func parseMixtral(c *config, s *Spec) {
	c.llamaLike(s, missing{kvHeads: 8, maxPos: 4096 * 32, eps: 1e-5, theta: 1e6})
	s.Terms = mixtralTerms
	s.Mixture = Mixture{Experts: c.int("num_local_experts", 8), Top: c.int("num_experts_per_tok", 2), FFN: s.FFN, Renorm: true}
	c.everyWindow(s)
}

// parseQwen2MoE reads Qwen 1.5 and 2 with experts (Qwen Team 2024).
func parseQwen2MoE(c *config, s *Spec) {
	c.llamaLike(s, missing{kvHeads: 16, maxPos: 32768})
	s.Terms = qwen2MoETerms
	s.QKVBias = c.bool("qkv_bias", true)
	c.qwenExperts(s, Mixture{Experts: c.int("num_experts", 60), Top: c.int("num_experts_per_tok", 4), FFN: c.int("moe_intermediate_size", 1408)})
	s.Mixture.Shared, s.Mixture.Gated = c.int("shared_expert_intermediate_size", 5632), true
	// Windows are in even layers below max_window_layers, unlike Qwen 2's.
	if !c.bool("use_sliding_window", false) {
		delete(c.m, "sliding_window")
	}
	most := c.count("max_window_layers", 28)
	c.windows(s, 0, func(i int) bool { return i%2 == 0 && i < most })
}

// parseQwen3MoE reads Qwen 3 with experts (Qwen Team 2025).
func parseQwen3MoE(c *config, s *Spec) {
	c.llamaLike(s, missing{kvHeads: 4, maxPos: 32768})
	s.Terms = qwen3MoETerms
	c.attentionBias(s)
	// Transformers 5 writes num_local_experts.
	key := "num_experts"
	if !c.has(key) {
		key = "num_local_experts"
	}
	c.qwenExperts(s, Mixture{Experts: c.int(key, 128), Top: c.int("num_experts_per_tok", 8), FFN: c.int("moe_intermediate_size", 768)})
	if c.bool("use_sliding_window", false) {
		c.everyWindow(s)
	}
}

// qwenExperts sets which layers have experts: those that neither mlp_only_layers nor
// decoder_sparse_step excludes.
func (c *config) qwenExperts(s *Spec, m Mixture) {
	m.Renorm = c.bool("norm_topk_prob", false)
	step := c.int("decoder_sparse_step", 1)
	only := c.ints("mlp_only_layers")
	if s.Mixture = m; c.err != nil || s.Layers > maxLayers {
		return
	}
	dense, any := make([]bool, s.Layers), false
	for i := range dense {
		dense[i] = (i+1)%step != 0
		any = any || dense[i]
	}
	for _, i := range only {
		if i < len(dense) {
			dense[i], any = true, true
		}
	}
	if any {
		s.Mixture.Dense = dense
	}
}

// parseGLM4MoE reads GLM 4.5 and its successors (GLM-4.5 Team 2025).
func parseGLM4MoE(c *config, s *Spec) {
	c.common(s, missing{kvHeads: 8, maxPos: 131072, eps: 1e-5, part: 0.5})
	s.Terms = glm4MoETerms
	c.activation("hidden_act", "hidden_act", "silu")
	s.QKVBias, s.HeadNorms = c.bool("attention_bias", false), c.bool("use_qk_norm", false)
	c.deepExperts(s, deepDefaults{experts: 128, top: 8, ffn: 1408, first: 1, factor: 1, groups: 1, topGroups: 1})
}

// deepDefaults are a family's values of missing keys.
type deepDefaults struct {
	experts, top, ffn, first, groups, topGroups int
	factor                                      float64
}

// deepExperts reads the experts of DeepSeek V3 (DeepSeek-AI 2024, §2.1.2) and of its relatives.
func (c *config) deepExperts(s *Spec, def deepDefaults) {
	m := Mixture{
		Experts: c.int("n_routed_experts", def.experts), Top: c.int("num_experts_per_tok", def.top), FFN: c.int("moe_intermediate_size", def.ffn),
		Sigmoid: true, Renorm: c.bool("norm_topk_prob", true), Factor: c.factor("routed_scaling_factor", def.factor),
		Groups: c.int("n_group", def.groups), TopGroups: c.int("topk_group", def.topGroups),
	}
	if m.Groups == 1 {
		m.Groups, m.TopGroups = 0, 0
	}
	m.Shared = c.count("n_shared_experts", 1) * m.FFN
	first := c.count("first_k_dense_replace", def.first)
	if s.Mixture = m; c.err != nil || s.Layers > maxLayers || first == 0 {
		return
	}
	s.Mixture.Dense = make([]bool, s.Layers)
	for i := range min(first, s.Layers) {
		s.Mixture.Dense[i] = true
	}
}
