package train

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"talf/internal/spec"
	"talf/train/loss"
)

// A Planned is a stage as it was specified. Its length may be in epochs, which become steps only
// once the data are known.
type Planned struct {
	Stage
	Epochs float64 // 0: Steps is the length
}

// stageLength matches a number of steps, or of epochs with an e after it.
var stageLength = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(e-?[0-9]+)?e?$`)

// ParseStage parses LOSS:LENGTH or LOSS:LENGTH:SCHEDULE, such as eagle:400,
// talf:labels=ignore:3e or hass:2e:lr=1e-4,warmup=20. Values that the schedule leaves out are
// base's.
func ParseStage(text string, base Config) (Planned, error) {
	fail := func(format string, args ...any) (Planned, error) {
		return Planned{}, fmt.Errorf("stage %q: %w", text, fmt.Errorf(format, args...))
	}
	parts := strings.Split(text, ":")
	at := -1
	for i, p := range parts {
		if i > 0 && stageLength.MatchString(p) {
			at = i
			break
		}
	}
	if at < 0 || len(parts) > at+2 {
		return fail("want LOSS:STEPS or LOSS:EPOCHSe, which :lr=…,min-lr=…,warmup=… may follow")
	}
	name, length, schedule := strings.Join(parts[:at], ":"), parts[at], ""
	if len(parts) > at+1 {
		if schedule = parts[at+1]; schedule == "" {
			return fail("the schedule after the last colon is empty")
		}
	}
	if _, err := loss.Parse(name); err != nil {
		return fail("%w", err)
	}
	v, err := spec.Line{Params: []spec.Param{
		spec.Float("lr", base.LR, spec.Closed(0, 10), "learning rate"),
		spec.Float("min-lr", base.MinLR, spec.Closed(0, 1), "share of lr that the cosine ends at"),
		spec.Int("warmup", base.Warmup, 0, 1<<30, "steps of linear warm-up"),
	}}.Read(schedule)
	if err != nil {
		return fail("%w", err)
	}
	p := Planned{Stage: Stage{Loss: name, LR: v.Float("lr"), MinLR: v.Float("min-lr"), Warmup: v.Int("warmup")}}
	if n, epochs := strings.CutSuffix(length, "e"); epochs {
		if p.Epochs, err = strconv.ParseFloat(n, 64); err != nil || !(p.Epochs > 0 && p.Epochs < 1e6) {
			return fail("%s: want more than 0 epochs", length)
		}
	} else if p.Steps, err = strconv.Atoi(length); err != nil || p.Steps < 1 {
		return fail("%s: want a whole number of steps, 1 or more (or epochs: %se)", length, length)
	}
	return p, nil
}

// In returns the stage for data with the given number of tokens in an epoch.
func (p Planned) In(c Config, tokens int64) Stage {
	s := p.Stage
	if p.Epochs > 0 {
		s.Steps = c.EpochSteps(p.Epochs, tokens)
	}
	return s
}

// EpochSteps returns how many steps of c go through the training share of data with the given
// number of tokens epochs times.
func (c Config) EpochSteps(epochs float64, tokens int64) int {
	return max(1, int(math.Ceil(epochs*float64(tokens)*(1-c.Held)/float64(c.Rows*c.Accum))))
}
