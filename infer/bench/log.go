package bench

import (
	"encoding/json"
	"errors"

	"talf/infer"
	"talf/infer/bench/rounds"
	"talf/internal/jsonl"
)

// A Measurement is one method's decoding of one prompt.
type Measurement struct {
	Key         string      `json:"key"` // everything that determines it: equal keys measure the same
	Method      string      `json:"method"`
	Set         string      `json:"set,omitempty"`
	Prompt      string      `json:"prompt"`
	Temperature float64     `json:"temperature"`
	Seed        uint64      `json:"seed"`
	Repeat      int         `json:"repeat"`
	Stats       infer.Stats `json:"stats"`
	Output      []int32     `json:"output"`
	Looped      int         `json:"loop_tokens"` // tokens of Output that lie in loops
	// Compared says that the output should equal plain decoding's, Equal that it does.
	Compared bool   `json:"compared"`
	Equal    bool   `json:"equal"`
	Peak     int64  `json:"peak_bytes,omitempty"` // largest resident memory of the process during it
	Paths    *Paths `json:"paths,omitempty"`
	// Rounds are the parts of its rounds, if they were asked for.
	Rounds []rounds.Round `json:"rounds,omitempty"`
	// Asked counts the rows that a replay was asked for, Missed those that the recording
	// lacked.
	Asked  int `json:"asked,omitempty"`
	Missed int `json:"missed,omitempty"`
}

// logFormat is the name and version of a log's format.
const logFormat = "talf-bench-1"

// logConfig describes a log of measurements, which it appends to got as they are read.
func logConfig(settings string, got *[]Measurement) jsonl.Config {
	return jsonl.Config{
		Kind: "a log of measurements", Header: jsonl.Header{Format: logFormat, Settings: settings},
		Line: func(line []byte) error {
			var m Measurement
			if err := json.Unmarshal(line, &m); err != nil {
				return err
			}
			if m.Key == "" {
				return errors.New("a measurement without a key")
			}
			*got = append(*got, m)
			return nil
		},
	}
}

// OpenLog opens or creates a log of measurements and returns those it holds. settings identify
// what all of them share; a log with other settings is refused.
func OpenLog(path, settings string) (*jsonl.Log, []Measurement, error) {
	var got []Measurement
	log, err := jsonl.Open(path, logConfig(settings, &got))
	if err != nil {
		return nil, nil, err
	}
	return log, got, nil
}
