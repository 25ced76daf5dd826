// Command tune fits the constants of draft methods that neither theory nor publications give, and says
// what they are worth. It needs no model: it replays recordings of talf bench record in the time of cost
// curves, so that its figures do not depend on the machine.
//
//	go run ./internal/tune -part tune fit tune.rec      # fit, print, write infer/draft/constants/fitted.json
//	go run ./internal/tune report report.rec other.rec  # half and twice of each, and regret, on other prompts
//	go run ./internal/tune floor tune.rec               # how slow auto becomes, warm and cold, and what it pays for
//
// The constants of auto are its own, not in that file and not fitted: most trade the mean over prompts against the
// slowest. They are varied in a build with variables in their place:
//
//	go run ./internal/tune overlay DIR
//	go run -overlay DIR/overlay.json ./internal/tune auto report.rec
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
	"strings"
	"time"

	"talf/infer/draft/constants"
	"talf/internal/durable"
)

// options are the command's flags.
type options struct {
	out, costs, part, only string
	json, busy             bool
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "infer/draft/constants/fitted.json", "file that fit writes")
	flag.StringVar(&o.costs, "costs", "internal/tune/costs.json", "files of cost curves, joined by commas")
	flag.StringVar(&o.part, "part", "", "part of the prompts that fit notes")
	flag.StringVar(&o.only, "only", "", "constants that auto varies, joined by commas; empty: all")
	flag.BoolVar(&o.busy, "busy", false, "floor: clocks are wrong as on a machine that others use; what passes take is not")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: tune [flags] fit|report|floor|auto RECORDING…\n       tune overlay DIRECTORY")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() < 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0), flag.Args()[1:], &o); err != nil {
		fmt.Fprintln(os.Stderr, "tune:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, what string, args []string, o *options) error {
	var vary []setting
	switch what {
	case "fit", "report", "floor":
	case "overlay":
		if len(args) != 1 {
			return fmt.Errorf("overlay: %d arguments, want a directory", len(args))
		}
		return overlay(".", args[0])
	case "auto":
		var named []string
		if o.only != "" {
			named = strings.Split(o.only, ",")
		}
		var err error
		if vary, err = settings(named); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown command %q, want fit, report, floor, auto or overlay", what)
	}
	l, err := open(args, o.costs)
	if err != nil {
		return err
	}
	switch what {
	case "report":
		r, err := l.report(ctx, constants.Fitted())
		if err != nil {
			return err
		}
		return show(os.Stdout, r, o.json)
	case "floor":
		l.busy = o.busy
		r, err := l.floors(ctx, constants.Fitted())
		if err != nil {
			return err
		}
		return show(os.Stdout, r, o.json)
	case "auto":
		r, err := l.auto(ctx, constants.Fitted(), vary)
		if err != nil {
			return err
		}
		return show(os.Stdout, r, o.json)
	}
	f, err := l.fit(ctx, *constants.Fitted())
	if err != nil {
		return err
	}
	r := constants.Record{
		Command: "make tune", Date: time.Now().UTC().Format("2 January 2006"), Prompts: l.prompts(), Part: o.part,
		Texts: l.texts(), Costs: l.costs, Values: f.Values,
	}
	if err := r.Values.Validate(); err != nil {
		return err
	}
	if err := show(os.Stdout, f, o.json); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(o.out, append(b, '\n'))
}
