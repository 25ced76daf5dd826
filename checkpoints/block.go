package checkpoints

import (
	"fmt"

	"talf/internal/spec"
	"talf/model/arch"
	"talf/model/safetensors"
)

// readBlock reads and checks a block head, whose tensors have the same names in the files of all families.
func (d *Draft) readBlock(path string) error {
	d.Layout = LayoutBlock
	if err := d.parse(path, d.config, arch.ParseBlock); err != nil {
		return err
	}
	if err := d.readVocab(); err != nil {
		return err
	}
	d.dropBuffers()
	d.Spec.Adopt(func(name string) bool { _, ok := d.Tensor(name); return ok })
	return d.inventory("a block head")
}

// blockFile is the code that block heads were published with: dflash/model.py of z-lab/dflash and
// models/draft_head.py of hao-ai-lab/JetSpec for rows that predict the token at their place, modeling/dspark of
// deepseek-ai/DeepSpec for those that predict the next one, whose files have copies of the target's embedding and
// LM head. Markov heads of the former are read by SpecForge alone.
func blockFile() Format {
	return Format{
		Line:   spec.Line{Name: "block", Doc: "block heads as their families write them: DFlash, DFlash 2, JetSpec or DSpark"},
		Reader: "the family's code", problems: blockProblems, block: asBlock,
	}
}

func blockProblems(d *Draft, c *ExportConfig) (out []Problem) {
	if !d.Spec.Block.On {
		return append(out, refuse("it is a head of EAGLE's kind: want another format"))
	}
	if d.Vocab != nil {
		out = append(out, refuse("it predicts all %d tokens, and this head %d of them: train it without a draft vocabulary", d.Spec.Vocab, len(d.Vocab)))
	}
	if d.Spec.Block.Shift && (c.Embed == nil || c.LMHead == nil) && !d.hasCopies() {
		out = append(out, refuse("embed_tokens.weight and lm_head.weight are missing, and it does not use the target's: give the target's directory"))
	}
	return out
}

// hasCopies reports whether the head has copies of its target's embedding and LM head.
func (d *Draft) hasCopies() bool {
	_, embed := d.Tensor(d.Spec.Weight(arch.Embed, 0))
	return embed && d.Spec.Block.OwnLMHead
}

// asBlock adds what a family's loader wants beside the head.
func asBlock(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor, error) {
	if c.Target != nil {
		conf["num_target_layers"] = c.Target.Layers
	}
	if !d.Spec.Block.Shift || d.hasCopies() {
		return conf, ts, nil
	}
	ts = d.withEmbed(c, ts)
	if c.LMHead == nil || d.Spec.Block.OwnLMHead {
		return conf, ts, nil
	}
	if _, ok := floats[c.LMHead.DType]; !ok {
		return nil, nil, fmt.Errorf("the target's LM head is %s, want F32, F16, BF16 or F64", c.LMHead.DType)
	}
	lm := *c.LMHead
	lm.Name = "lm_head.weight"
	return conf, append(ts, lm), nil
}
