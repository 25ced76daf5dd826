package command

import (
	"encoding/json"
	"fmt"
	"io"

	"talf/infer/bench"
)

// settings identifies what all measurements of a log share. Weights are identified by their
// hashes: a directory may hold others after more training.
func (o *benchOptions) settings(r *rig) (string, error) {
	hashes := []string{r.model.Hash()}
	for _, hash := range r.hashes {
		h, err := hash()
		if err != nil {
			return "", err
		}
		hashes = append(hashes, h)
	}
	all := []any{
		hashes, r.model.Device().Name(), r.model.Options().DType, r.model.Options().KV, o.decode.machine.actBits, o.decode.machine.layers,
		o.heads, o.drafts, o.decode.IgnoreEOS, o.warmup,
	}
	if o.parts { // measurements without them do not serve this run
		all = append(all, "parts")
	}
	b, err := json.Marshal(all)
	return string(b), err
}

// openLog makes c go on from the log of o, if there is one, and append to it. The caller closes
// the log.
func (a *app) openLog(o *benchOptions, r *rig, c *bench.Config) (io.Closer, error) {
	if o.log == "" {
		return io.NopCloser(nil), nil
	}
	settings, err := o.settings(r)
	if err != nil {
		return nil, err
	}
	log, known, err := bench.OpenLog(o.log, settings)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another --log", err)
	}
	c.Known = known
	c.Keep = func(m *bench.Measurement) error { return log.Append(m) }
	a.resume = fmt.Sprintf("run the same command again to go on: %s keeps what was measured", o.log)
	return log, nil
}
