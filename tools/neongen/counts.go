package main

import (
	"fmt"
	"strings"
)

// A count is what one round of a kernel's loop executes.
type count struct {
	vector, loads, other int
	bytes                int // of weights
	chain                int // cycles that dependent sums take
}

// Assumed of processors as large as Apple's M1 or Neoverse V1, for each cycle: vector instructions,
// loads, and all others; and the cycles from a fused multiply-add to the next one of its chain.
const (
	perVector, perLoads, perOthers = 4, 3, 6
	latency                        = 4
)

// cycles returns the least that a round takes under these assumptions.
func (c count) cycles() float64 {
	return max(float64(c.vector)/perVector, float64(c.loads)/perLoads, float64(c.other)/perOthers, float64(c.chain))
}

// tally counts the instructions of the loop of function name: prefetches are loads, stores among the
// others.
func (g *gen) tally(name string) (c count) {
	_, body, found := strings.Cut(g.asm.String(), "TEXT ·"+name+"(SB)")
	_, body, inside := strings.Cut(body, "\nloop:\n")
	if !found || !inside {
		panic("no loop in " + name)
	}
	times := 1
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		_, text, vector := strings.Cut(line, " // ")
		switch {
		case line == "parts:":
			times = kParts
			continue
		case line == "BNE parts":
			times = 1
		case strings.HasPrefix(line, "PRFM"):
			c.loads += times
		case !vector:
			c.other += times
		case strings.HasPrefix(text, "ldp"):
			c.loads += 2 * times
		case strings.HasPrefix(text, "ld"):
			c.loads += times
		case strings.HasPrefix(text, "st"):
			c.other += times
		default:
			c.vector += times
		}
		if strings.HasSuffix(line, " loop") {
			return c
		}
	}
	panic("no end of the loop in " + name)
}

// counts returns a table in Markdown of what kernels execute for 32 outputs.
func (g *gen) counts() string {
	var b strings.Builder
	b.WriteString("| kernel | rows | weights, bytes | vector | loads | others | cycles, at least | weights a cycle, bytes |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|\n")
	row := func(what string, rows, calls int, name string, bytes, chain int) {
		c := g.tally(name)
		c.vector, c.loads, c.other = c.vector*calls, c.loads*calls, c.other*calls
		c.bytes, c.chain = bytes, chain*calls
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %.0f | %.1f |\n", what, rows, c.bytes, c.vector, c.loads, c.other, c.cycles(), float64(c.bytes)/c.cycles())
	}
	for _, n := range []int{1, 2, 3, 6} {
		calls := 1 + n/4
		row("f32, 4 k", n, calls, fmt.Sprintf("gemm%dNEON", n), unroll*panelBytes, unroll*latency)
		row("bf16, 4 k", n, calls, fmt.Sprintf("gemmBF16x%dNEON", n), unroll*panelBytes/2, unroll*latency)
	}
	for _, way := range []string{"NEON", "DotPlanes2", "DotPlanes1", "I8MMPlanes2", "I8MMPlanes1"} {
		what := map[string]string{"NEON": "neon", "DotPlanes2": "neondot", "DotPlanes1": "neondot, `--act-bits 8`", "I8MMPlanes2": "neoni8mm", "I8MMPlanes1": "neoni8mm, `--act-bits 8`"}[way]
		for _, n := range []int{1, 4} {
			row("q8, 32 k, "+what, n, 1, fmt.Sprintf("gemmQ8%sx%d", way, n), q8Block, 0)
			row("q4, 32 k, "+what, n, 1, fmt.Sprintf("gemmQ4%sx%d", way, n), q4Block, 0)
		}
	}
	return b.String()
}
