package checkpoints

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"talf/checkpoints/internal/torchfile"
	"talf/internal/limits"
	"talf/model/draftvocab"
	"talf/model/safetensors"
)

// tokenMapFile is the file with the draft vocabulary of a head exported for SGLang: the
// target's ids as a list written by torch.save, for --speculative-token-map.
const tokenMapFile = "token_map.pt"

// ReadDraftVocab reads a draft vocabulary for a target of vocab tokens and returns its
// ids in ascending order. Path is a head's directory or a directory of checkpoints, a
// safetensors file with d2t, a token map of SGLang (.pt), or a text file with ids,
// separated by white space or as a JSON array. Tokenizer is the hash of the tokenizer
// that the ids belong to, if known.
func ReadDraftVocab(path string, vocab int) (ids []int32, tokenizer string, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, "", fmt.Errorf("draft vocabulary: %w", err)
	}
	switch ext := filepath.Ext(path); {
	case st.IsDir():
		err = Read(path, func(dir string) error {
			ids, tokenizer, err = headVocab(dir, vocab)
			return err
		})
		return ids, tokenizer, err
	case ext == ".safetensors":
		set, err := safetensors.Open(path)
		if err != nil {
			return nil, "", fmt.Errorf("draft vocabulary: %w", err)
		}
		ids, err = vocabOf(set, vocab)
		return ids, "", errors.Join(err, set.Close())
	case ext == ".pt" || ext == ".bin":
		ids, err = readTokenMap(path, vocab)
		return ids, "", err
	}
	raw, err := limits.ReadFile(path, limits.ConfigBytes)
	if err != nil {
		return nil, "", fmt.Errorf("draft vocabulary: %w", err)
	}
	list, err := parseIDs(raw)
	if err == nil {
		ids, err = sorted(list, vocab)
	}
	if err != nil {
		return nil, "", fmt.Errorf("draft vocabulary: %s: %w", path, err)
	}
	return ids, "", nil
}

// headVocab reads the draft vocabulary of the head in dir.
func headVocab(dir string, vocab int) (ids []int32, tokenizer string, err error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, "", fmt.Errorf("draft vocabulary: %w", err)
	}
	if m != nil {
		tokenizer = m.Tokenizer
	}
	if _, err := os.Stat(filepath.Join(dir, tokenMapFile)); err == nil {
		ids, err = readTokenMap(filepath.Join(dir, tokenMapFile), vocab)
		return ids, tokenizer, err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, "", fmt.Errorf("draft vocabulary: %w", err)
	}
	ids, err = vocabOf(set, vocab)
	return ids, tokenizer, errors.Join(err, set.Close())
}

func vocabOf(set *safetensors.Set, vocab int) ([]int32, error) {
	ids, err := draftvocab.Read(set, 0, vocab)
	if err != nil {
		return nil, fmt.Errorf("draft vocabulary: %w", err)
	}
	if ids == nil {
		return nil, fmt.Errorf("draft vocabulary: %s: no tensor %q: this head predicts all tokens", set.Name, draftvocab.ToTarget)
	}
	return ids, nil
}

// parseIDs reads integers, either from a JSON array or separated by white space.
func parseIDs(raw []byte) (ids []int64, err error) {
	if t := bytes.TrimSpace(raw); len(t) > 0 && t[0] == '[' {
		if err := json.Unmarshal(t, &ids); err != nil {
			return nil, fmt.Errorf("want an array of token ids: %w", err)
		}
		return ids, nil
	}
	for _, f := range strings.Fields(string(raw)) {
		id, err := strconv.ParseInt(f, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%.40q, want a token id", f)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// sorted returns ids in ascending order. They must be distinct tokens.
func sorted(list []int64, vocab int) ([]int32, error) {
	if len(list) == 0 {
		return nil, errors.New("no token ids")
	}
	ids := make([]int32, 0, len(list))
	for i, id := range list {
		if id < 0 || id >= int64(vocab) {
			return nil, fmt.Errorf("id %d is %d, want 0 to %d, the target's vocabulary", i+1, id, vocab-1)
		}
		ids = append(ids, int32(id))
	}
	slices.Sort(ids)
	for i, id := range ids[1:] {
		if id == ids[i] {
			return nil, fmt.Errorf("token %d occurs twice", id)
		}
	}
	return ids, nil
}

func readTokenMap(path string, vocab int) ([]int32, error) {
	list, err := torchfile.ReadInts(path)
	var ids []int32
	if err == nil {
		if ids, err = sorted(list, vocab); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("draft vocabulary: %w", err)
	}
	return ids, nil
}

// readVocab removes the draft vocabulary from the tensors, or reads it from the token
// map in the same directory.
func (d *Draft) readVocab() error {
	var of []safetensors.Tensor
	for _, name := range []string{draftvocab.ToTarget, draftvocab.ToDraft} {
		if t, ok := d.Tensor(name); ok {
			of = append(of, t)
			d.drop(name)
		}
	}
	ids, err := draftvocab.Read(safetensors.Of(d.Dir, of...), d.Spec.DraftVocab, d.Spec.Vocab)
	path := filepath.Join(d.Dir, tokenMapFile)
	if _, e := os.Stat(path); e == nil && len(of) == 0 && !d.Spec.Eagle3.On && !d.Spec.Block.On {
		ids, err = readTokenMap(path, d.Spec.Vocab)
		d.note("the draft vocabulary is that of %s", tokenMapFile)
	} else if e != nil && !errors.Is(e, fs.ErrNotExist) && d.Layout != LayoutGGUF {
		return fmt.Errorf("draft vocabulary: %w", e)
	}
	if err != nil {
		return err
	}
	if _, own := d.Tensor("lm_head.weight"); own && ids != nil && !d.Spec.Eagle3.On && !d.Spec.Block.On {
		return fmt.Errorf("%s: both lm_head.weight and a draft vocabulary: the head has an LM head of its own, but EAGLE-1 and EAGLE-2 use rows of the target's", d.Dir)
	}
	d.Vocab, d.Spec.DraftVocab = ids, len(ids)
	return nil
}

// noVocab returns the problem that readers without draft vocabularies have with d.
func (d *Draft) noVocab() (out []Problem) {
	if d.Vocab != nil {
		out = append(out, misread("it has no draft vocabularies for heads of this kind, and would draft from all %d tokens, of which this head knows %d; SGLang has them", d.Spec.Vocab, len(d.Vocab)))
	}
	return out
}
