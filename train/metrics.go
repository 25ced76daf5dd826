package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// MetricsFile is the log beside the checkpoints: one JSON object per step.
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

// metric returns the log's line of p.
func (p Progress) metric() metric {
	return metric{p.Step, p.Stage, p.Loss, p.LR, p.Norm, p.Positions, p.Seconds, p.Eval}
}

// progress returns what the line says.
func (m metric) progress() Progress {
	return Progress{Step: m.Step, Stage: m.Stage, Loss: m.Loss, LR: m.LR, Norm: m.Norm, Positions: m.Positions, Seconds: m.Seconds, Eval: m.Eval}
}

// ReadMetrics reads the log of a run: the directory of its checkpoints, or the file.
func ReadMetrics(path string) ([]Progress, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, MetricsFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	var all []Progress
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		var m metric
		if err := json.Unmarshal(line, &m); err != nil || m.Step < 1 {
			if !whole {
				break // a line being written, or torn by a crash
			}
			return nil, fmt.Errorf("read metrics: %s:%d: want an object with a step from 1: %.80q", path, len(all)+1, line)
		}
		all = append(all, m.progress())
		b = rest
	}
	return all, nil
}

// metrics appends steps to the log.
type metrics struct{ f *os.File }

// openLog opens the log on rank 0.
func (t *trainer) openLog() (err error) {
	if t.store == nil {
		return nil
	}
	written := t.step()
	if t.state.Pending != nil {
		written--
	}
	t.log, err = openMetrics(filepath.Join(t.store.Dir(), MetricsFile), written)
	return err
}

// openMetrics opens the log and drops the lines of steps after step, which will be
// made again.
func openMetrics(path string, step int) (*metrics, error) {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	keep := 0
	for at := 0; at < len(old); {
		end := at
		for end < len(old) && old[end] != '\n' {
			end++
		}
		var m metric
		if end == len(old) || json.Unmarshal(old[at:end], &m) != nil || m.Step > step {
			break
		}
		at = end + 1
		keep = at
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	if err = f.Truncate(int64(keep)); err == nil {
		_, err = f.Seek(int64(keep), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", errors.Join(err, f.Close()))
	}
	return &metrics{f}, nil
}

func (m *metrics) write(line metric) error {
	b, err := json.Marshal(line)
	if err == nil {
		_, err = m.f.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// sync makes the lines survive a crash of the machine.
func (m *metrics) sync() error {
	if err := m.f.Sync(); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

func (m *metrics) close() {
	if m != nil {
		_ = m.f.Close() // synced with every checkpoint
	}
}
