package command

import (
	"fmt"
	"strconv"

	"talf/checkpoints"
	"talf/data"
	"talf/train"
)

// draftVocabUsage is the help of --draft-vocab of train.
const draftVocabUsage = "tokens that a head predicts: so many of those that are learnt most often, or those of a head, a safetensors file with d2t, a token map (.pt) or a list in a text file (default: all)"

// draftVocab returns the tokens that --draft-vocab means: counted in the training
// part of shares, or read from a file. "" is nil: all.
func draftVocab(s string, shares []train.Share, held float64) (ids []int32, share float64, err error) {
	if s == "" {
		return nil, 0, nil
	}
	sp := data.Split{Part: data.Train, Fraction: held}
	if n, err := strconv.Atoi(s); err == nil {
		return train.CountVocab(shares, sp, n)
	}
	meta := shares[0].Set.Meta()
	ids, tok, err := checkpoints.ReadDraftVocab(s, meta.Vocab)
	if err != nil {
		return nil, 0, err
	}
	if tok != "" && tok != meta.Tokenizer {
		return nil, 0, fmt.Errorf("draft vocabulary: %s is of the tokenizer %s, the data of %s: its ids mean other tokens", s, short(tok), short(meta.Tokenizer))
	}
	share, err = train.VocabShare(shares, sp, ids)
	return ids, share, err
}

// A vocabFinding says what a draft vocabulary covers of a set of data.
type vocabFinding struct {
	Size  int           `json:"size"`
	Train data.Coverage `json:"train"`
	Held  data.Coverage `json:"held"`
	Share float64       `json:"held_out"` // of the sequences
}

// inspectVocab measures the vocabulary that train would use with the same
// --draft-vocab and its own --held-out.
func inspectVocab(path, s string) (*vocabFinding, error) {
	set, err := data.Open(path)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	f := &vocabFinding{Share: train.Default().Held}
	ids, _, err := draftVocab(s, train.Only(set), f.Share)
	if err != nil {
		return nil, err
	}
	f.Size = len(ids)
	if f.Train, err = set.Cover(data.Split{Part: data.Train, Fraction: f.Share}, ids); err != nil {
		return nil, err
	}
	f.Held, err = set.Cover(data.Split{Part: data.Held, Fraction: f.Share}, ids)
	return f, err
}

func (f *vocabFinding) print(a *app) {
	for _, part := range []struct {
		name string
		c    *data.Coverage
	}{{"learnt", &f.Train}, {"held out", &f.Held}} {
		a.printf("vocab         %d tokens are %.2f%% of the %d to learn, %s", f.Size, 100*part.c.Share(), part.c.Tokens, part.name)
		for l, x := range part.c.Levels {
			a.printf("; labels of level %d: %.2f%%", l, 100*x)
		}
		a.printf("\n")
	}
}
