package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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

// answerStart is what every line of an answer file begins with.
const answerStart = `{"index":`

// An answerFile appends answers durably: a line that is in it after a crash is
// whole, because a torn last line is cut off when the file is opened again.
type answerFile struct {
	f    *os.File
	path string
	done map[int]bool
}

// openAnswers opens or creates path and learns which prompts it answers.
func openAnswers(path string, prompts []string, settings string) (*answerFile, error) {
	f, err := openAlone(path)
	if err != nil {
		return nil, err
	}
	a := &answerFile{f: f, path: path, done: map[int]bool{}}
	if err := a.scan(prompts, settings); err != nil {
		_ = f.Close()
		return nil, err
	}
	return a, nil
}

// scan reads what an earlier run wrote and leaves the offset behind the last
// whole line.
func (a *answerFile) scan(prompts []string, settings string) error {
	r := bufio.NewReader(a.f)
	var whole int64
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// What follows the last line break was torn by a crash, which some file
			// systems fill up with zeros; or it is somebody's text, not ours to cut.
			torn := string(bytes.TrimRight(line, "\x00"))
			if !strings.HasPrefix(torn, answerStart) && !strings.HasPrefix(answerStart, torn) {
				return fmt.Errorf("%s, line %d: this is not a file that generate wrote: choose another --out", a.path, n)
			}
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", a.path, err)
		}
		whole += int64(len(line))
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var got answer
		if err := json.Unmarshal(line, &got); err != nil {
			return fmt.Errorf("%s, line %d: %w: this is not a file that generate wrote: choose another --out", a.path, n, err)
		}
		switch {
		case got.Settings != settings:
			return fmt.Errorf("%s, line %d was made by another model or with other options: choose another --out", a.path, n)
		case got.Index < 0 || got.Index >= len(prompts) || got.Prompt != prompts[got.Index]:
			return fmt.Errorf("%s, line %d answers a prompt that the input does not have as number %d: choose another --out", a.path, n, got.Index)
		}
		a.done[got.Index] = true
	}
	if err := a.f.Truncate(whole); err != nil {
		return fmt.Errorf("repair %s: %w", a.path, err)
	}
	_, err := a.f.Seek(whole, io.SeekStart)
	return err
}

// append writes one answer and makes it durable.
func (a *answerFile) append(x answer) error {
	line, err := json.Marshal(x)
	if err != nil {
		return err
	}
	if _, err := a.f.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", a.path, err)
	}
	if err := a.f.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", a.path, err)
	}
	a.done[x.Index] = true
	return nil
}

func (a *answerFile) close() error { return a.f.Close() }
