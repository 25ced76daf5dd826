package grammar_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"talf/internal/limits"
	"talf/internal/limits/costtest"
	"talf/text/grammar"
	"talf/text/grammar/grammartest"
)

// A mask costs at most some seconds, whatever the grammar: many ways to go on, many steps to find
// each, and a new state at every node of the vocabulary.
func TestHostileMasksAreCheap(t *testing.T) {
	v := large()
	empties := "(" + strings.Repeat("|", 10_000) + ")"
	again := func(n int) string { return `(` + strings.Repeat(`""|`, n) + `"")` }
	for name, text := range map[string]string{
		"again":        `root ::= [a-zA-Z ]* [aeiou] ([a-zA-Z ] ` + again(10_000) + `){500} "."`,
		"often again":  `root ::= [a-zA-Z ]* [aeiou] ([a-zA-Z ] ("" | [a-z] ` + again(300_000) + `)){500} "."`,
		"empties":      `root ::= ([a-zA-Z ] ` + empties + `){1000,16000000}`,
		"subsets":      `root ::= [a-zA-Z ]* [aeiou] [a-zA-Z ]{500} "."`,
		"both":         `root ::= [a-zA-Z ]* [aeiou] ([a-zA-Z ] ` + empties + `){500} "."`,
		"counts":       `root ::= ("a" | "aa" | [a-zA-Z ]){0,5000} "."`,
		"many":         `root ::= (` + strings.Repeat(`[a-z]? `, 900) + `){9,5000}`,
		"alternatives": `root ::= (` + strings.Repeat(`[a-z][a-z] | `, 900) + `"b"){9,5000}`,
	} {
		g := compile(t, text)
		costtest.Check(t, name, costtest.Default, func(context.Context) {
			a, err := grammar.NewAutomaton(g, v)
			if err != nil {
				t.Logf("%s: %v", name, err)
				return
			}
			s := a.Read(a.Start(), []byte("he"))
			if s == nil {
				s = a.Start()
			}
			_, err = a.Mask(s)
			if err != nil && !errors.Is(err, limits.ErrTooLarge) {
				t.Errorf("%s: %v", name, err)
			}
			t.Logf("%s: %v", name, err)
		})
	}
}

// States that no answer needs any more are let go, although others lead to them.
func TestStatesAreForgotten(t *testing.T) {
	var rules strings.Builder
	for i := range 400 {
		fmt.Fprintf(&rules, ` | [ab] "x%d"`, i)
	}
	g := compile(t, `root ::= ([ab]`+rules.String()+`){1000,16000000}`)
	costtest.Check(t, "a long answer", costtest.Bound{Yards: 5 * costtest.Default.Yards, Bytes: 2 * limits.GrammarMemory}, func(context.Context) {
		a, err := grammar.NewAutomaton(g, grammartest.Words("a", "b"))
		if err != nil {
			t.Error(err)
			return
		}
		s := a.Start()
		for i := range 2_000 { // with a thousand stacks each
			if s = a.Next(s, int32(i&1)); s == nil {
				t.Errorf("left after %d tokens", i)
				return
			}
		}
	})
}
