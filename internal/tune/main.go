// Command tune fits the constants of draft methods that neither theory nor publications give, and says
// what they are worth. It needs no model: it replays recordings of talf bench record in the time of cost
// curves, so that its figures do not depend on the machine.
//
//	go run ./internal/tune -part tune fit tune.rec      # fit, print, write infer/draft/constants/fitted.json
//	go run ./internal/tune report report.rec other.rec  # half and twice of each, and regret, on other prompts
//
// Recordings do not say which part of the prompts they are of: make tune does, which fits on the tuning part of
// the repository's prompts and reports on the other. A test refuses what was fitted on anything else.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"talf/infer/draft/constants"
	"talf/internal/durable"
)

func main() {
	out := flag.String("out", "infer/draft/constants/fitted.json", "file that fit writes")
	curves := flag.String("costs", "internal/tune/costs.json", "cost curves")
	part := flag.String("part", "", "part of the prompts that fit notes")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: tune [flags] fit|report RECORDING…")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() < 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0), flag.Args()[1:], *out, *curves, *part, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "tune:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, what string, files []string, out, curves, part string, asJSON bool) error {
	if what != "fit" && what != "report" {
		return fmt.Errorf("unknown command %q, want fit or report", what)
	}
	l, err := open(files, curves)
	if err != nil {
		return err
	}
	if what == "report" {
		r, err := l.report(ctx, constants.Fitted())
		if err != nil {
			return err
		}
		return show(os.Stdout, r, asJSON)
	}
	f, err := l.fit(ctx, *constants.Fitted())
	if err != nil {
		return err
	}
	r := constants.Record{
		Command: "make tune", Date: time.Now().UTC().Format("2 January 2006"), Prompts: l.prompts(), Part: part,
		Texts: l.texts(), Costs: l.costs, Values: f.Values,
	}
	if err := r.Values.Validate(); err != nil {
		return err
	}
	if err := show(os.Stdout, f, asJSON); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(out, append(b, '\n'))
}
