package checkpoints

import (
	"bytes"
	"slices"

	"talf/internal/spec"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/safetensors"
)

// talf is the form in which a head is given to others who have its target: a directory that --head reads, without the
// optimizer's state and without the embedding, which takes most of a small head's checkpoint.
func talf() Format {
	block := func(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor, error) {
		return conf, d.withoutEmbed(c, ts), nil
	}
	return Format{
		Line:   spec.Line{Name: "talf", Doc: "talf itself, to give away: without the embedding, which the target has"},
		Reader: "talf", problems: talfProblems, serve: "talf serve TARGET --head DIR", eagle: asTalf, block: block, own: true,
		eagle3: func(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
			return conf, d.withoutEmbed(c, ts)
		},
	}
}

func talfProblems(d *Draft, c *ExportConfig) []Problem {
	e, ok := d.Tensor(d.Spec.Weight(arch.Embed, 0))
	switch {
	case !ok:
		return nil
	case c.Embed == nil:
		return []Problem{note("the embedding is written, too: give the model to leave it out if it is the model's")}
	case !same(&e, c.Embed):
		return []Problem{note("the embedding is written, too, since it is not the model's")}
	}
	return nil
}

// asTalf keeps the draft vocabulary, which other readers take for EAGLE-3's.
func asTalf(d *Draft, c *ExportConfig, conf map[string]any, ts []safetensors.Tensor) (map[string]any, []safetensors.Tensor) {
	if d.Vocab != nil {
		conf["draft_vocab_size"] = len(d.Vocab)
		ts = append(slices.Clone(ts), draftvocab.Tensors(d.Vocab, d.Spec.Vocab)...)
	}
	return conf, d.withoutEmbed(c, ts)
}

// withoutEmbed leaves out an embedding that is the target's.
func (d *Draft) withoutEmbed(c *ExportConfig, ts []safetensors.Tensor) []safetensors.Tensor {
	name := d.Spec.Weight(arch.Embed, 0)
	return slices.DeleteFunc(slices.Clone(ts), func(t safetensors.Tensor) bool {
		return t.Name == name && c.Embed != nil && same(&t, c.Embed)
	})
}

func same(a, b *safetensors.Tensor) bool { return a.DType == b.DType && bytes.Equal(a.Data, b.Data) }
