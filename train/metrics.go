package train

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"talf/internal/jsonl"
	"talf/internal/vfs"
	"talf/train/internal/origin"
)

// MetricsFile is the log next to the checkpoints: one JSON object per step.
const MetricsFile = "metrics.jsonl"

// A metric is one line of the log.
type metric struct {
	Step      int     `json:"step"`
	Stage     int     `json:"stage,omitempty"` // index
	Loss      float64 `json:"loss"`
	LR        float64 `json:"lr"`
	Norm      float64 `json:"grad_norm"`
	Positions int     `json:"positions"`
	Seconds   float64 `json:"seconds"`
	Eval      *Eval   `json:"eval,omitempty"`
}

// metric returns p as a line of the log.
func (p Progress) metric() metric {
	return metric{p.Step, p.Stage, p.Loss, p.LR, p.Norm, p.Positions, p.Seconds, p.Eval}
}

// progress returns the line as a Progress.
func (m metric) progress() Progress {
	return Progress{Step: m.Step, Stage: m.Stage, Loss: m.Loss, LR: m.LR, Norm: m.Norm, Positions: m.Positions, Seconds: m.Seconds, Eval: m.Eval}
}

// metricsLog describes the log. line is called for each of its lines.
func metricsLog(line func(metric) error) jsonl.Config {
	return jsonl.Config{
		Kind: "a log of training steps", Start: `{"step":`,
		Line: func(raw []byte) error {
			var m metric
			if err := json.Unmarshal(raw, &m); err != nil || m.Step < 1 {
				return fmt.Errorf("want an object with a step from 1: %.80q", raw)
			}
			return line(m)
		},
	}
}

// ReadMetrics reads the log of a run: the directory of its checkpoints, or the file. A
// last line that is being written, or was torn by a crash, is left out.
func ReadMetrics(path string) ([]Progress, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, MetricsFile)
	}
	f, err := vfs.OpenRead(path)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	all, err := ParseMetrics(f)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %s, %w", path, err)
	}
	return all, nil
}

// ParseMetrics is ReadMetrics of an open log.
func ParseMetrics(r io.Reader) (all []Progress, err error) {
	log := metricsLog(func(m metric) error {
		all = append(all, m.progress())
		return nil
	})
	_, err = log.Read(r)
	return all, err
}

// openLog opens the log on rank 0. It drops the lines of steps that will be made again, which a
// crash may have left.
func (t *trainer) openLog() error {
	if t.store == nil {
		return nil
	}
	path := filepath.Join(t.store.Dir(), MetricsFile)
	if t.step() == 0 {
		if err := t.claim(path); err != nil {
			return err
		}
	}
	logged, last := t.step(), 0
	if t.state.Pending != nil {
		logged--
	}
	log := metricsLog(func(m metric) error {
		if m.Step > logged {
			return jsonl.ErrDrop
		}
		last = m.Step
		return nil
	})
	log.Enough = func() bool { return last >= logged }
	var err error
	if t.log, err = jsonl.Open(path, log); err != nil {
		return fmt.Errorf("open metrics: %w", err)
	}
	return nil
}

// claim makes the store that of a new run, and refuses one with the log of another: what that
// says would be lost.
func (t *trainer) claim(log string) error {
	c := t.cfg
	c.EvalEvery, c.SaveEvery, c.Keep = 0, 0, 0 // see sameRun
	me := fmt.Sprintf("%x\n", sha256.Sum256(fmt.Appendf(nil, "%v %s %s", origin.Fields(c), t.identity, t.arithmetic)))
	was, err := t.store.Run()
	if err != nil || was == me {
		return err
	}
	if st, err := os.Stat(log); err == nil && st.Size() > 0 {
		return fmt.Errorf("%s: the log of another run, without a checkpoint to go on from: choose another directory, or remove the log", log)
	}
	return t.store.SetRun(me)
}
