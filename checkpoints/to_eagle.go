package checkpoints

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"talf/internal/spec"
	"talf/model/arch"
	"talf/model/safetensors"
)

// eagle is EAGLE's own code: cnets1.py and configs.py, and cnets.py for EAGLE-3. It loads
// checkpoints of EAGLE-1 and 2 with strict=True: every tensor must be present, and no other.
func eagle() Format {
	return Format{
		Line:   spec.Line{Name: "eagle", Doc: "EAGLE's own code (EAGLE-1 to EAGLE-3)"},
		Reader: "EAGLE's loader", problems: eagleProblems, serve: `python -c "from eagle.model.ea_model import EaModel as m; m.from_pretrained(base_model_path='TARGET', ea_model_path='DIR', use_eagle3=USE3)"`, eagle: asEagle, eagle3: asEagle3,
	}
}

func eagleProblems(d *Draft, c *ExportConfig) (out []Problem) {
	if d.Spec.Eagle3.On {
		return d.eagle3EAGLE(c)
	}
	s := d.Spec
	out = append(d.noVocab(), d.eagleShape()...)
	if !d.hasEmbed(c) {
		out = append(out, refuse("embed_tokens.weight is missing, and it does not use the target's: give the target's directory"))
	}
	if o, ok := d.Tensor(s.Bias(arch.O, 0)); ok && !zero(&o) {
		out = append(out, refuse("it has no o_proj.bias"))
	}
	if s.MLPBias {
		out = append(out, refuse("it has no biases in the feed-forward network"))
	}
	if !c.Torch {
		out = append(out, note("versions of EAGLE before 2025 read only pytorch_model.bin: write it as well"))
	}
	return out
}

// eagleShape returns the problems with the head's positions and sizes.
func (d *Draft) eagleShape() (out []Problem) {
	s := d.Spec
	switch s.Rope.Type {
	case "default":
	case "linear":
		if s.Rope.Theta != 10000 {
			out = append(out, misread("with rope_scaling it ignores rope_theta, which is %g here, and uses 10000 (LlamaAttention._init_rope)", s.Rope.Theta))
		}
	default:
		out = append(out, refuse("rope_scaling has type %s, and EConfig accepts only linear and dynamic", s.Rope.Type))
	}
	if s.Heads*s.HeadDim != s.Hidden {
		out = append(out, refuse("%d heads of %d are not hidden_size = %d, and it ignores head_dim (LlamaAttention.__init__)", s.Heads, s.HeadDim, s.Hidden))
	}
	return out
}

// eagleRope writes scaled positions as EAGLE's code requires them: these two fields, and a
// number with a decimal point.
func (d *Draft) eagleRope(conf map[string]any) {
	if d.Spec.Rope.Type == "linear" {
		conf["rope_scaling"] = map[string]any{"type": "linear", "factor": json.RawMessage(decimal(d.Spec.Rope.Factor))}
	}
}

// asEagle converts a head to the form that EAGLE's own code reads.
func asEagle(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	if d.Spec.QKVBias {
		conf["qkv_bias"] = true // EAGLE's name for it; it has no o_proj.bias
		ts = slices.DeleteFunc(slices.Clone(ts), func(t safetensors.Tensor) bool { return strings.HasSuffix(t.Name, "o_proj.bias") && zero(&t) })
	}
	d.eagleRope(conf)
	return conf, d.withEmbed(c, ts)
}

// decimal formats a number so that Python parses it as a float.
func decimal(x float64) string {
	s := fmt.Sprint(x)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}
