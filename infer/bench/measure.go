package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"talf/infer"
	"talf/infer/bench/rounds"
)

// A Measurement is one method's decoding of one prompt.
type Measurement struct {
	Key         string      `json:"key"` // all that decides it: equal keys measure the same
	Method      string      `json:"method"`
	Set         string      `json:"set,omitempty"`
	Prompt      string      `json:"prompt"`
	Temperature float64     `json:"temperature"`
	Seed        uint64      `json:"seed"`
	Repeat      int         `json:"repeat"`
	Stats       infer.Stats `json:"stats"`
	Output      []int32     `json:"output"`
	Looped      int         `json:"loop_tokens"` // of Output, those in loops
	// Compared says that the output should be plain decoding's, Equal that it is.
	Compared bool   `json:"compared"`
	Equal    bool   `json:"equal"`
	Peak     int64  `json:"peak_bytes,omitempty"` // largest resident memory of the process meanwhile
	Paths    *Paths `json:"paths,omitempty"`
	// Rounds are its parts, where they were asked for.
	Rounds []rounds.Round `json:"rounds,omitempty"`
	// Asked are the rows that a replay was asked for, Missed those that the
	// recording lacked.
	Asked  int `json:"asked,omitempty"`
	Missed int `json:"missed,omitempty"`
}

// A logHead is the first line of a log.
type logHead struct {
	Format   string `json:"format"`
	Settings string `json:"settings"` // of what the measurements have in common
}

const logFormat = "talf-bench-1"

// WriteLogHead begins a log. Lines of JSON follow, a Measurement each.
func WriteLogHead(w io.Writer, settings string) error {
	b, err := json.Marshal(logHead{logFormat, settings})
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// ReadLog reads a log and returns the length of its whole lines: what follows was
// torn by a crash. A log of other settings is refused.
func ReadLog(r io.Reader, settings string) (got []Measurement, whole int64, err error) {
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			head := []byte(`{"format":"` + logFormat)
			if n == 1 && !bytes.HasPrefix(line, head) && !bytes.HasPrefix(head, line) {
				return nil, 0, errors.New("line 1: this is not a log of measurements")
			}
			return got, whole, nil
		}
		if err != nil {
			return nil, 0, err
		}
		if n == 1 {
			var h logHead
			if err := json.Unmarshal(line, &h); err != nil || h.Format != logFormat {
				return nil, 0, errors.New("line 1: this is not a log of measurements")
			}
			if h.Settings != settings {
				return nil, 0, errors.New("line 1: these measurements are of another model or other options")
			}
		} else {
			var m Measurement
			if err := json.Unmarshal(line, &m); err != nil {
				return nil, 0, fmt.Errorf("line %d: %w", n, err)
			}
			if m.Key == "" {
				return nil, 0, fmt.Errorf("line %d: a measurement without a key", n)
			}
			got = append(got, m)
		}
		whole += int64(len(line))
	}
}
