package preprocess

import "talf/data/corpus"

// Exp converts a log-probability to a label.
func Exp(logp float32) float32 { return float32(min(1, exp(float64(logp)))) }

// Begins returns the first token of the last span of texts, and the tokens of all.
func Begins(tok Tokenizer, vocab int, texts ...string) (int, []int32, error) {
	u, err := newCutter(Reader{Tokenizer: tok, Vocab: vocab, EOS: -1}, EOSNever, 1<<20, false)
	if err != nil {
		return 0, nil, err
	}
	spans := make([]corpus.Span, len(texts))
	for i, t := range texts {
		spans[i].Text = t
	}
	ids, err := u.encode(text(spans, ""))
	if err != nil {
		return 0, nil, err
	}
	n, err := u.begins(spans, ids)
	return n, ids, err
}
