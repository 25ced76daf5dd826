package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"talf/internal/spec"
	"talf/model/gguf"
	"talf/model/gguf/write"
	"talf/model/safetensors"
)

// formatGGUF is the name of the format for llama.cpp.
const formatGGUF = "gguf"

// ggufFile is llama.cpp: src/models/eagle3.cpp, dflash.cpp and common/speculative.cpp.
func ggufFile() Format {
	return Format{
		Line:   spec.Line{Name: formatGGUF, Doc: "llama.cpp, --spec-type draft-eagle3, draft-dflash or draft-dspark; EAGLE-3 and block heads, needs --model"},
		Reader: "llama.cpp", problems: ggufProblems, file: asGGUF,
		serve: "llama-server --model TARGET.gguf --model-draft DIR/FILE --spec-type draft-METHOD --spec-draft-n-max TOKENS",
	}
}

func ggufProblems(d *Draft, c *ExportConfig) (out []Problem) {
	if d.Spec.Block.On {
		return d.ggufBlock(c)
	}
	for _, why := range append(write.Lacks(d.Spec), write.Unserved(d.Spec, c.Target)...) {
		out = append(out, refuse("%s", why))
	}
	if !d.Spec.Eagle3.On {
		return out
	}
	if c.Target == nil {
		out = append(out, refuse("the file needs the target's tokenizer and number of layers: give the target's directory or GGUF file"))
	} else if _, err := write.Tokenizer(c.targetDir, d.Spec.Vocab); err != nil {
		out = append(out, refuse("%v", err))
	}
	return append(out, note("it drafts chains, not trees; an embedding or LM head that the file lacks is the target's"))
}

// asGGUF returns the file. llama.cpp's server finds a head by a name that begins with eagle3- beside a
// target that it downloads (common/download.cpp).
func asGGUF(d *Draft, c *ExportConfig, ts []safetensors.Tensor) (string, *write.File, error) {
	if d.Spec.Block.On {
		return blockGGUF(d, c, ts)
	}
	if c.Target == nil {
		return "", nil, errors.New("no target, whose tokenizer the file needs")
	}
	taps, err := d.Spec.TapsOf(c.Target)
	if err != nil {
		return "", nil, err
	}
	h := write.Head{Spec: d.Spec, Tensors: ts, Vocab: d.Vocab, Taps: taps, Name: "EAGLE-3 head for " + filepath.Base(c.TargetName)}
	if h.Tokenizer, err = write.Tokenizer(c.targetDir, d.Spec.Vocab); err != nil {
		return "", nil, err
	}
	h.More = d.tieKeys()
	f, err := h.File()
	return "eagle3-" + ggufTypes[dtypeOf(ts)] + ".gguf", f, err
}

// ggufTypes are types of weights as names of files have them.
var ggufTypes = map[string]string{"float32": "F32", "float16": "F16", "bfloat16": "BF16"}

// tieKeys returns the keys that say which target a head was trained for.
func (d *Draft) tieKeys() (keys []gguf.Raw) {
	tie := make(map[string]string)
	d.Target.Metadata(tie)
	for _, key := range slices.Sorted(maps.Keys(tie)) {
		keys = append(keys, write.Text(key, tie[key]))
	}
	return keys
}

// exportFile is Export for formats of one file.
func (d *Draft) exportFile(ctx context.Context, out string, f Format, c *ExportConfig, ts []safetensors.Tensor, problems []Problem) (*Exported, error) {
	var card []byte
	name, one, err := f.file(d, c, ts)
	if err == nil {
		card, err = d.card(f, c, name, problems)
	}
	if err != nil {
		return nil, fmt.Errorf("export %s as %s: %w", d.Dir, f.Name, err)
	}
	r := &Exported{Format: f.Name, Out: out, Tensors: len(one.Tensors), Notes: d.Notes, Problems: problems}
	for _, t := range one.Tensors {
		r.Bytes += int64(len(t.Data))
	}
	return r.write(ctx, []part{textPart(cardFile, card), {name, one.Write}})
}
