package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"talf/infer"
	"talf/infer/bench/rounds"
	"talf/internal/jsonl"
	"talf/model/identity"
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
	// Total is the time from the request to its last token: the prompt, what a method learns from it,
	// the draft model's pass over it, and all rounds.
	Total  time.Duration `json:"total,omitempty"`
	Output []int32       `json:"output"`
	Looped int           `json:"loop_tokens"` // tokens of Output that lie in loops
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
const logFormat = "talf-bench-2"

// Settings are what all measurements of a log share, besides their keys.
type Settings struct {
	Function *identity.Function `json:"function"`
	Drafts   []DraftModel       `json:"drafts,omitempty"`
	Rest     identity.Spec      `json:"options"` // by name
}

// A DraftModel identifies a draft model of a run.
type DraftModel struct {
	Name      string             `json:"name"`
	Function  *identity.Function `json:"function"`
	Tokenizer string             `json:"tokenizer,omitempty"` // its hash, unless it is the target's
}

// against compares s, as it is now, with the settings of a log.
func (s *Settings) against(then *Settings) identity.Differences {
	d := append(s.Function.Against(then.Function), s.Rest.Against(then.Rest)...)
	for i, now := range s.Drafts {
		if i >= len(then.Drafts) {
			break
		}
		old := &then.Drafts[i]
		for _, x := range now.Function.Against(old.Function) {
			x.Part = fmt.Sprintf("of the draft model %s, %s", now.Name, x.Part)
			d = append(d, x)
		}
		if now.Tokenizer != old.Tokenizer {
			d = append(d, identity.Difference{Part: "the tokenizer of the draft model " + now.Name, Now: identity.Short(now.Tokenizer), Then: identity.Short(old.Tokenizer)})
		}
	}
	return d
}

// text is the form of s in a log's header.
func (s *Settings) text() string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic("bench: " + err.Error()) // texts, and JSON that was parsed before
	}
	return string(raw)
}

// accept judges a header that is not the one that this run writes.
func (s *Settings) accept(h jsonl.Header) error {
	var then Settings
	missing := func(d DraftModel) bool { return d.Function == nil }
	if json.Unmarshal([]byte(h.Settings), &then) != nil || then.Function == nil || slices.ContainsFunc(then.Drafts, missing) {
		return jsonl.ErrSettings
	}
	if d := s.against(&then); d != nil {
		return fmt.Errorf("%w: %s", jsonl.ErrSettings, d.Since("the measurements were made"))
	}
	if len(then.Drafts) != len(s.Drafts) {
		return fmt.Errorf("%w: %d draft models, the measurements were made with %d", jsonl.ErrSettings, len(s.Drafts), len(then.Drafts))
	}
	return nil // they differ in what is not compared, such as what a model derives from
}

// logConfig describes a log of measurements, which it appends to got as they are read.
func logConfig(settings *Settings, got *[]Measurement) jsonl.Config {
	return jsonl.Config{
		Kind: "a log of measurements", Header: jsonl.Header{Format: logFormat, Settings: settings.text()},
		Accept: settings.accept,
		Line: func(line []byte) error {
			var m Measurement
			if err := json.Unmarshal(line, &m); err != nil {
				return err
			}
			if m.Key == "" {
				return errors.New("a measurement without a key")
			}
			if m.Paths != nil {
				if err := m.Paths.check(); err != nil {
					return err
				}
			}
			*got = append(*got, m)
			return nil
		},
	}
}

// OpenLog opens or creates a log of measurements and returns those it holds. A log with other
// settings is refused.
func OpenLog(path string, settings *Settings) (log *jsonl.Log, got []Measurement, err error) {
	log, err = jsonl.Open(path, logConfig(settings, &got))
	if err != nil {
		return nil, nil, err
	}
	return log, got, nil
}
