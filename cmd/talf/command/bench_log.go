package command

import (
	"encoding/json"
	"fmt"
	"io"

	"talf/infer/bench"
)

// settings identifies what all measurements of a log share: weights by their
// hashes, since what lies in a directory may be trained again.
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
	if o.parts { // measurements without them are none of this run
		all = append(all, "parts")
	}
	b, err := json.Marshal(all)
	return string(b), err
}

// openLog makes c go on from o's log, if there is one, and add to it.
func (a *app) openLog(o *benchOptions, r *rig, c *bench.Config) (closeLog func() error, err error) {
	path := o.log
	if path == "" {
		return func() error { return nil }, nil
	}
	settings, err := o.settings(r)
	if err != nil {
		return nil, err
	}
	f, err := openAlone(path)
	if err != nil {
		return nil, err
	}
	got, whole, err := bench.ReadLog(f, settings)
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("%s: %w: choose another --log", path, err)
	}
	if err = f.Truncate(whole); err == nil {
		_, err = f.Seek(whole, io.SeekStart)
	}
	if err == nil && whole == 0 {
		err = bench.WriteLogHead(f, settings)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.Known = got
	c.Keep = func(m *bench.Measurement) error {
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		_, err = f.Write(append(b, '\n'))
		return err
	}
	a.resume = fmt.Sprintf("run the same command again to go on: %s keeps what was measured", path)
	return f.Close, nil
}
