package command

import (
	"fmt"
	"io"

	"talf/infer/bench"
	"talf/infer/bench/rig"
)

// settings identifies what all measurements of a log share.
func (o *benchOptions) settings(r *rig.Rig) (*bench.Settings, error) {
	m := &o.decode.machine
	s, err := r.Settings(map[string]any{
		"--layers": m.Layers, "--ignore-eos": o.decode.IgnoreEOS, "--warmup": o.warmup,
		"--parts": o.parts, // measurements without them are of no use to a run with them
	})
	if err != nil {
		return nil, err
	}
	rest := []any{m.actBits, m.Layers, o.heads, o.drafts, o.decode.IgnoreEOS, o.warmup}
	if o.parts {
		rest = append(rest, "parts")
	}
	s.Old, err = r.OldSettings(rest...)
	return s, err
}

// openLog makes c continue from the log of o, if there is one, and append to it. The caller
// closes the log.
func (a *app) openLog(o *benchOptions, r *rig.Rig, c *bench.Config) (io.Closer, error) {
	if o.log == "" {
		return io.NopCloser(nil), nil
	}
	settings, err := o.settings(r)
	if err != nil {
		return nil, err
	}
	log, known, why, err := bench.OpenLog(o.log, settings)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another --log", err)
	}
	if why != "" {
		a.log.Warn(why, "file", o.log)
	}
	c.Known = known
	c.Keep = func(m *bench.Measurement) error { return log.Append(m) }
	a.resume = fmt.Sprintf("run the same command again to go on: %s keeps what was measured", o.log)
	return log, nil
}
