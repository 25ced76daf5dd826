package checkpoints

import (
	"fmt"
	"slices"
	"strings"

	"talf/model/arch"
)

// What each reader does with a head is known from its source, and what is said here
// names the place. Readers change: those of SGLang, vLLM and EAGLE are as they were
// on their main branches in 2025, the speculators library's versions 0.1, 0.3, 0.4
// and 0.9.

func refuse(format string, args ...any) Problem {
	return Problem{Grade: Refuses, What: fmt.Sprintf(format, args...)}
}

func misread(format string, args ...any) Problem {
	return Problem{Grade: Misreads, What: fmt.Sprintf(format, args...)}
}

func note(format string, args ...any) Problem {
	return Problem{Grade: Note, What: fmt.Sprintf(format, args...)}
}

// hasEmbed reports whether an embedding will be written.
func (d *Draft) hasEmbed(c *ExportConfig) bool {
	_, ok := d.Tensor("embed_tokens.weight")
	return ok || c.Embed != nil
}

// eagleProblems: cnets1.py and configs.py of EAGLE. Its checkpoints are loaded
// with strict=True: every tensor must be there, and no other.
func eagleProblems(d *Draft, c *ExportConfig) (out []Problem) {
	s := d.Spec
	out = d.noVocab()
	switch s.Rope.Type {
	case "default":
	case "linear":
		if s.Rope.Theta != 10000 {
			out = append(out, misread("with rope_scaling it does not read rope_theta, which is %g here, and takes 10000 (LlamaAttention._init_rope)", s.Rope.Theta))
		}
	default:
		out = append(out, refuse("rope_scaling is of type %s, and EConfig takes linear and dynamic only", s.Rope.Type))
	}
	if s.Heads*s.HeadDim != s.Hidden {
		out = append(out, refuse("%d heads of %d are not hidden_size = %d, and it does not read head_dim (LlamaAttention.__init__)", s.Heads, s.HeadDim, s.Hidden))
	}
	if !d.hasEmbed(c) {
		out = append(out, refuse("there is no embed_tokens.weight, which it does not take from the target: give the target's directory"))
	}
	if o, ok := d.Tensor(s.Bias(arch.O, 0)); ok && !zero(&o) {
		out = append(out, refuse("it has no o_proj.bias"))
	}
	if s.MLPBias {
		out = append(out, refuse("it has no biases in the feed-forward network"))
	}
	if !c.Torch {
		out = append(out, note("versions of EAGLE before 2025 read pytorch_model.bin only: write it too"))
	}
	return out
}

// sglangProblems: llama_eagle.py, llama_eagle3.py and llama.py of SGLang.
func sglangProblems(d *Draft, _ *ExportConfig) (out []Problem) {
	if d.Eagle3 != nil {
		return eagle3Problems(d)
	}
	if d.Spec.MLPBias {
		out = append(out, refuse("it has no biases in the feed-forward network (LlamaMLP)"))
	}
	if d.Vocab != nil {
		out = append(out, note("SGLang has to be started with --speculative-token-map and the path of %s, or drafts from all %d tokens, of which this head knows %d", TokenMapFile, d.Spec.Vocab, len(d.Vocab)))
	}
	if !d.Spec.FCBias {
		out = append(out, note("fc.bias is written, all zero: SGLang always has one, and would draft with a random one without it"))
	}
	return out
}

// vllmProblems: llama_eagle.py and llama_eagle3.py of vLLM.
func vllmProblems(d *Draft, _ *ExportConfig) (out []Problem) {
	if d.Eagle3 != nil {
		return eagle3Problems(d)
	}
	out = d.noVocab()
	if d.Spec.FCBias {
		out = append(out, misread("its fc has no bias (LlamaModel.__init__), and this head has one that is not zero: train heads for vLLM without"))
	}
	return out
}

// speculatorsProblems: models/eagle.py and models/eagle3 of the speculators library.
func speculatorsProblems(d *Draft, c *ExportConfig) (out []Problem) {
	switch {
	case c.TargetName == "":
		out = append(out, note("the verifier's name is left open: vLLM wants speculators_config.verifier.name_or_path"))
	case len(c.TargetClasses) == 0:
		out = append(out, note("the verifier's architectures are not known"))
	}
	if d.Eagle3 != nil {
		return out
	}
	s := d.Spec
	out = append(out, d.noVocab()...)
	out = append(out, note("the library has EagleSpeculator up to version 0.4, and vLLM read it for a while only: for vLLM itself use the format vllm"))
	if s.Layers != 1 {
		out = append(out, refuse("it builds one layer, and this head has %d", s.Layers))
	}
	// EagleSpeculator.attach_verifier takes the verifier's rotary_emb.
	switch {
	case c.Target == nil:
		out = append(out, note("the library rotates by the verifier's rope, not the head's, and the target is not known here: give its directory to have them compared"))
	case !sameRope(s, c.Target):
		out = append(out, misread("it rotates by the verifier's rope, %s, and this head was trained with %s", ropeText(&c.Target.Rope), ropeText(&s.Rope)))
	}
	return out
}

func sameRope(a, b *arch.Spec) bool {
	return a.HeadDim == b.HeadDim && a.Rotated() == b.Rotated() && slices.Equal(a.Rope.Frequencies(a.Rotated()), b.Rope.Frequencies(b.Rotated()))
}

func ropeText(r *arch.Rope) string {
	if r.Type == "default" {
		return fmt.Sprintf("theta %g unscaled", r.Theta)
	}
	return fmt.Sprintf("theta %g scaled by %s %g", r.Theta, r.Type, r.Factor)
}

// eagle3Problems are those of readers of SpecForge's layout.
func eagle3Problems(d *Draft) (out []Problem) {
	if opts := d.Eagle3.Options; len(opts) > 0 {
		out = append(out, misread("%s of the speculators library is another network than EAGLE-3's", strings.Join(opts, ", ")))
	}
	if _, ok := d.Tensor("embed_tokens.weight"); !ok {
		out = append(out, note("there is no embed_tokens.weight: the target's is used"))
	}
	return out
}
