package regex_test

import (
	"context"
	"strings"
	"testing"

	"talf/internal/limits/costtest"
)

func TestHostileExpressionsAreCheap(t *testing.T) {
	for name, text := range map[string]string{
		"classes":      strings.Repeat(`[^\w\d\s\u{100}-\u{10000}]`, 40_000),
		"alternatives": strings.Repeat("|", 1_000_000),
		"counts":       strings.Repeat("(?:a?){0,1000}", 70_000),
		"open groups":  strings.Repeat("(", 1_000_000),
		"one class":    "[" + strings.Repeat(`a-zé-ÿ`, 100_000) + "]",
	} {
		costtest.Check(t, name, costtest.Default, func(context.Context) {
			_, err := compile(text, false)
			t.Logf("%s: %d bytes: %.200v", name, len(text), err)
		})
	}
}
