// Benchgate compares two builds of lab: it runs `lab decode` of both in turn, so that a
// machine that changes its speed changes it for both, and fails if the new one is slower by more
// than a given share, or needs that much more for several rows relative to one. Absolute times
// do not matter.
//
//	benchgate [-rounds 5] [-worse 0.15] OLD NEW [flags of lab decode]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"text/tabwriter"
)

// A row is a measured pass, as lab decode --json prints it.
type row struct {
	Model   string  `json:"model"`
	Rows    int     `json:"rows"`
	Context int     `json:"context"`
	Best    float64 `json:"best_ms"`
}

// A key names what is measured.
type key struct {
	model         string
	context, rows int
}

func main() {
	rounds := flag.Int("rounds", 5, "runs of each build")
	worse := flag.Float64("worse", 0.15, "share by which the new build may be worse")
	flag.Parse()
	if flag.NArg() < 2 || *rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	bad, err := compare(flag.Args()[:2], flag.Args()[2:], *rounds, *worse)
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchgate:", err)
		os.Exit(1)
	}
	if bad > 0 {
		fmt.Printf("%d of these are worse by more than %.0f%%\n", bad, 100**worse)
		os.Exit(1)
	}
}

func compare(binaries, args []string, rounds int, worse float64) (bad int, err error) {
	// The best of all rounds: other load on the machine only makes it slower.
	got := [2]map[key]float64{{}, {}}
	var order []key
	for range rounds {
		for i, bin := range binaries {
			rows, err := run(bin, args)
			if err != nil {
				return 0, err
			}
			for _, r := range rows {
				k := key{r.Model, r.Context, r.Rows}
				best, seen := got[i][k]
				if !seen && i == 0 {
					order = append(order, k)
				}
				if !seen || r.Best < best {
					got[i][k] = r.Best
				}
			}
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "weights\tcontext\trows\told ms\tnew ms\tnew/old\told cost over one\tnew\tnew/old\t")
	for _, k := range order {
		a, b := got[0][k], got[1][k]
		if b == 0 {
			continue
		}
		// The others' costs are relative to the first size of a model and context.
		first := key{k.model, k.context, order[0].rows}
		ca, cb := a/got[0][first], b/got[1][first]
		mark := ""
		if b/a > 1+worse || cb/ca > 1+worse {
			mark = "worse"
			bad++
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\n", k.model, k.context, k.rows,
			a, b, b/a, ca, cb, cb/ca, mark)
	}
	return bad, w.Flush()
}

func run(bin string, args []string) ([]row, error) {
	c := exec.Command(bin, append([]string{"decode", "--json"}, args...)...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s decode: %w", bin, err)
	}
	var r struct {
		Passes []row `json:"passes"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("%s decode: %w", bin, err)
	}
	if len(r.Passes) == 0 {
		return nil, fmt.Errorf("%s decode printed no passes", bin)
	}
	return r.Passes, nil
}
