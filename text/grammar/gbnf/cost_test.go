package gbnf_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"talf/internal/limits/costtest"
)

func TestHostileGrammarsAreCheap(t *testing.T) {
	var classes, rules strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&classes, `[\U%08x-\U%08x]`, 0x100+i, 0x10000+7*i)
		fmt.Fprintf(&rules, "r%d ::= [a-%c] r%d? | \"\" r%d*\n", i, 'b'+i%20, (i+1)%20_000, (7*i+2)%20_000)
	}
	for name, text := range map[string]string{
		"classes":      "root ::= " + classes.String(),
		"rules":        "root ::= r1\n" + rules.String(),
		"alternatives": "root ::= (" + strings.Repeat("|", 1_000_000) + `"a")*`,
		"repeats":      `root ::= "a"` + strings.Repeat("{2,3}", 200_000),
	} {
		costtest.Check(t, name, costtest.Default, func(context.Context) {
			_, err := compile(text)
			t.Logf("%s: %d bytes: %.200v", name, len(text), err)
		})
	}
}
