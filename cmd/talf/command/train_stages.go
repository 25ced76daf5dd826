package command

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"talf/data"
	"talf/train"
	"talf/train/loss"
)

// A stageFlag is a stage as it was written; its length may be in epochs, which are
// steps only once the data are open.
type stageFlag struct {
	train.Stage
	epochs float64
}

// length is how long a stage is: a number of steps, or of epochs with an e.
var length = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(e-?[0-9]+)?e?$`)

// parseStage reads LOSS:LENGTH or LOSS:LENGTH:SCHEDULE, such as eagle:400,
// talf:labels=ignore:3e or hass:2e:lr=1e-4,warmup=20. What the schedule leaves out
// is as in base.
func parseStage(s string, base train.Config) (stageFlag, error) {
	fail := func(format string, args ...any) (stageFlag, error) {
		return stageFlag{}, fmt.Errorf("stage %q: %w", s, fmt.Errorf(format, args...))
	}
	parts := strings.Split(s, ":")
	at := -1
	for i, p := range parts {
		if i > 0 && length.MatchString(p) {
			at = i
			break
		}
	}
	if at < 0 || len(parts) > at+2 {
		return fail("want LOSS:STEPS or LOSS:EPOCHSe, and behind it perhaps :lr=…,min-lr=…,warmup=…")
	}
	f := stageFlag{Stage: train.Stage{Loss: strings.Join(parts[:at], ":"), LR: base.LR, MinLR: base.MinLR, Warmup: base.Warmup}}
	if _, err := loss.Parse(f.Loss); err != nil {
		return fail("%w", err)
	}
	var err error
	if n, epochs := strings.CutSuffix(parts[at], "e"); epochs {
		if f.epochs, err = strconv.ParseFloat(n, 64); err != nil || !(f.epochs > 0 && f.epochs < 1e6) {
			return fail("%s: want more than 0 epochs", parts[at])
		}
	} else if f.Steps, err = strconv.Atoi(n); err != nil || f.Steps < 1 {
		return fail("%s: want a whole number of steps, 1 or more (or epochs: %se)", parts[at], parts[at])
	}
	if len(parts) == at+1 {
		return f, nil
	}
	for _, kv := range strings.Split(parts[at+1], ",") {
		key, val, _ := strings.Cut(kv, "=")
		switch key {
		case "lr":
			f.LR, err = strconv.ParseFloat(val, 64)
		case "min-lr":
			f.MinLR, err = strconv.ParseFloat(val, 64)
		case "warmup":
			f.Warmup, err = strconv.Atoi(val)
		default:
			return fail("%q is not known; known: lr, min-lr, warmup", key)
		}
		if err != nil {
			return fail("%s=%s: want a number", key, val)
		}
	}
	return f, nil
}

// parseShare reads DIR or DIR=WEIGHT. A directory whose name ends like a weight is
// meant where it exists.
func parseShare(s string) (dir string, weight float64, err error) {
	if _, err := os.Stat(s); err == nil {
		return s, 1, nil
	}
	i := strings.LastIndexByte(s, '=')
	if i < 0 {
		return s, 1, nil
	}
	weight, err = strconv.ParseFloat(s[i+1:], 64)
	if err != nil || !(weight > 0 && weight <= 1e6) {
		return "", 0, usagef("--data %s: want DIR=WEIGHT, the weight more than 0 to 1e6", s)
	}
	return s[:i], weight, nil
}

// openShares opens the sets that a head is trained on, and returns their tokens.
// The sets are to be closed, in the case of an error too.
func (a *app) openShares(names []string) (shares []train.Share, tokens int64, err error) {
	for _, name := range names {
		dir, weight, err := parseShare(name)
		if err != nil {
			return shares, 0, err
		}
		set, err := data.Open(dir)
		if err != nil {
			return shares, 0, err
		}
		shares = append(shares, train.Share{Set: set, Weight: weight})
		if !set.Complete() && !strings.HasSuffix(dir, ".parquet") {
			a.log.Warn("preprocess has not finished: training on what is there", "data", dir)
		}
		for _, s := range set.Shards() {
			tokens += s.Tokens
		}
	}
	return shares, tokens, nil
}

// The ways to get features.
const (
	featuresAuto      = "auto"
	featuresStored    = "stored"
	featuresRecompute = "recompute"
)

// checkFeatures refuses stored features where a set has none.
func checkFeatures(mode string, shares []train.Share, names []string) error {
	for i, s := range shares {
		if mode == featuresStored && s.Set.Meta().Features == data.None {
			return fmt.Errorf("%s holds no features: --features recompute makes them with the model", names[i])
		}
	}
	return nil
}
