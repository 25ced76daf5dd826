package checkpoints

import (
	"errors"
	"fmt"
	"path/filepath"

	"talf/internal/spec"
	"talf/model/arch"
	"talf/model/gguf/write"
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

// asBlock adds what DSpark's loader wants beside the head.
func asBlock(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor, error) {
	if d.Spec.Block.Shift {
		conf["num_anchors"] = 512 // of its trainer; Qwen3DSparkModel.__init__ asserts that it is there, and drafts without it
	}
	if !d.Spec.Block.Shift || d.hasCopies() || d.Vocab != nil {
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

// asItIs leaves a block head as its family writes it.
func asItIs(_ *Draft, _ *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor, error) {
	return conf, ts, nil
}

// vllmBlock is vLLM: qwen3_dflash.py, qwen3_dflash2.py and qwen3_dspark.py, as of autumn 2026.
func (d *Draft) vllmBlock(c *ExportConfig) (out []Problem) {
	b := &d.Spec.Block
	switch own := b.Markov != "" || b.Confidence; {
	case b.Shift && b.Markov == "":
		out = append(out, refuse("its class for rows that predict the next token has a Markov head (Qwen3DSparkModel), and markov_rank is 0"))
	case b.Shift && b.Markov != arch.VanillaMarkov:
		out = append(out, refuse("markov_head_type is %q, and its Markov head is vanilla (DSparkMarkovHead)", string(b.Markov)))
	case !b.Shift && own:
		out = append(out, refuse("it has no class for rows that predict the token at their place with a Markov or confidence head"))
	}
	if d.Vocab != nil && !b.OwnLMHead && c.LMHead == nil {
		out = append(out, refuse("lm_head.weight is missing, and with a draft vocabulary it does not use the target's: give the target's directory"))
	}
	if n := d.windows(); n > 0 && n < d.Spec.Layers {
		out = append(out, note("it must be started with VLLM_USE_V2_MODEL_RUNNER=1, since only some layers have a window"))
	}
	return out
}

// windows counts the layers with a window.
func (d *Draft) windows() (n int) {
	for i := range d.Spec.Layers {
		if d.Spec.Window(i) > 0 {
			n++
		}
	}
	return n
}

// sglangBlock is SGLang: dflash.py and dspark.py, as of autumn 2026. Both have the target's embedding and LM head.
func (d *Draft) sglangBlock() (out []Problem) {
	b := &d.Spec.Block
	if b.Group > 0 || b.SelectorRank > 0 {
		out = append(out, refuse("it has no DFlash 2 (conv_group_size, selector_rank)"))
	}
	if d.Vocab != nil {
		out = append(out, refuse("it predicts all %d tokens, and this head %d of them: train it without a draft vocabulary", d.Spec.Vocab, len(d.Vocab)))
	}
	switch own := b.Markov != "" || b.Confidence; {
	case b.Shift && b.Markov == "":
		out = append(out, refuse("its class for rows that predict the next token has a Markov head, and markov_rank is 0"))
	case !b.Shift && own:
		out = append(out, misread("it takes the token that a row of a head with a Markov or confidence head predicts for the next one, and this head's is the one at its place"))
	}
	for i := range d.Spec.Layers {
		if b.CausalIn(i) != (d.Spec.Window(i) > 0) {
			out = append(out, misread("rows see only those before them in layers with a window and in no others (DFlashAttention), and in layer %d of this head it is not so", i))
			break
		}
	}
	return out
}

// ggufBlock is llama.cpp: src/models/dflash.cpp.
func (d *Draft) ggufBlock(c *ExportConfig) (out []Problem) {
	for _, why := range append(write.BlockLacks(d.Spec), write.BlockUnserved(c.Target)...) {
		out = append(out, refuse("%s", why))
	}
	if c.Target == nil {
		return append(out, refuse("the file needs the target's tokenizer: give the target's directory or GGUF file"))
	}
	if _, err := d.Spec.TapsOf(c.Target); err != nil {
		out = append(out, refuse("%v", err))
	}
	if _, err := write.Tokenizer(c.targetDir, d.Spec.Vocab); err != nil {
		out = append(out, refuse("%v", err))
	}
	return append(out, note("it drafts chains, not trees, and its Markov head follows the likeliest tokens; an embedding or LM head that the file lacks is the target's"))
}

// blockGGUF returns the file for llama.cpp.
func blockGGUF(d *Draft, c *ExportConfig, ts []safetensors.Tensor) (string, *write.File, error) {
	if c.Target == nil {
		return "", nil, errors.New("no target, whose tokenizer the file needs")
	}
	h := write.Block{Spec: d.Spec, Tensors: ts, Vocab: d.Vocab, Name: "Block head for " + filepath.Base(c.TargetName), More: d.tieKeys()}
	var err error
	if h.Tokenizer, err = write.Tokenizer(c.targetDir, d.Spec.Vocab); err != nil {
		return "", nil, err
	}
	f, err := h.File()
	return "dflash-" + ggufTypes[dtypeOf(ts)] + ".gguf", f, err
}
