package command

import (
	"fmt"
	"io"

	"talf/infer/bench"
	"talf/infer/bench/rig"
)

// openLog makes c continue from the log of o, if there is one, and append to it. The caller
// closes the log.
func (a *app) openLog(o *benchOptions, r *rig.Rig, c *bench.Config) (io.Closer, error) {
	if o.log == "" {
		return io.NopCloser(nil), nil
	}
	m := &o.decode.machine
	log, err := r.OpenLog(o.log, c, map[string]any{
		"--layers": m.Layers, "--ignore-eos": o.decode.IgnoreEOS, "--warmup": o.warmup,
		"--parts": o.parts, // measurements without them are of no use to a run with them
	})
	if err != nil {
		return nil, fmt.Errorf("%w: choose another --log", err)
	}
	a.resume = fmt.Sprintf("run the same command again to go on: %s keeps what was measured", o.log)
	return log, nil
}
