package command

import (
	"encoding/json"
	"fmt"

	"talf/internal/jsonl"
)

// An answer is one line of generate's output file.
type answer struct {
	Index    int         `json:"index"` // of the prompt in the input, from 0
	Prompt   string      `json:"prompt"`
	Text     string      `json:"text"`
	Tokens   int         `json:"tokens"`
	Stop     string      `json:"stop"` // why it ended
	Seed     uint64      `json:"seed"`
	Settings string      `json:"settings,omitempty"` // identifies what decides an answer: those of one file share it
	Stats    *statsLine  `json:"stats,omitempty"`
	Turns    []turnReply `json:"turns,omitempty"`
}

// A turnReply is the answer to one turn of a prompt of several.
type turnReply struct {
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
}

// An answerFile is the log of answers that generate --prompts writes.
type answerFile struct {
	log  *jsonl.Log
	done map[int]bool
}

// openAnswers opens or creates path and learns which prompts it answers.
func openAnswers(path string, prompts []string, settings string) (*answerFile, error) {
	a := &answerFile{done: map[int]bool{}}
	log, err := jsonl.Open(path, jsonl.Config{
		Kind: "a file that generate wrote", Start: `{"index":`, Sync: true,
		Line: func(line []byte) error {
			var got answer
			if err := json.Unmarshal(line, &got); err != nil {
				return err
			}
			switch {
			case got.Settings != settings:
				return jsonl.ErrSettings
			case got.Index < 0 || got.Index >= len(prompts) || got.Prompt != prompts[got.Index]:
				return fmt.Errorf("answers a prompt that is not number %d of the input", got.Index)
			}
			a.done[got.Index] = true
			return nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: choose another --out", err)
	}
	a.log = log
	return a, nil
}

// append writes one answer and makes it durable.
func (a *answerFile) append(x answer) error {
	if err := a.log.Append(x); err != nil {
		return err
	}
	a.done[x.Index] = true
	return nil
}

func (a *answerFile) close() error { return a.log.Close() }
