package corpus_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"talf/data/corpus"
)

func TestFewBadLinesAreNamedAndAllAreCounted(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 2, corpus.MaxNamed: corpus.MaxNamed + 1, corpus.MaxNamed + 5: corpus.MaxNamed + 2} {
		var b bytes.Buffer
		l := corpus.BadLines{Log: slog.New(slog.NewTextHandler(&b, nil))}
		for i := range n {
			l.Add(corpus.BadLine{File: "in.jsonl", Line: i + 1, Why: "no text"})
		}
		l.End()
		text := b.String()
		if strings.Count(text, "\n") != want || n > 0 && (!strings.Contains(text, `line="in.jsonl:1: no text"`) || !strings.HasSuffix(text, fmt.Sprintf("count=%d\n", n))) {
			t.Errorf("%d lines:\n%s", n, text)
		}
	}
}
