// Package jsonl keeps append-only logs of JSON lines that survive a crash: a run that was
// interrupted opens its log again, reads what is there and continues.
package jsonl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"talf/internal/durable"
	"talf/internal/limits"
	"talf/internal/vfs"
)

// A Header is the first line of a log that has one.
type Header struct {
	Format   string `json:"format"`   // name and version, such as "talf-bench-1"
	Settings string `json:"settings"` // identifies what all lines have in common
}

// A Config describes a log. The zero value describes one without a header whose lines
// may be anything.
type Config struct {
	Kind   string // what the log is, for errors: "a log of measurements"
	Header Header // an empty Format means that there is no header line
	// Accept, if not nil, judges a header that has other Settings; an error refuses the log.
	Accept func(Header) error
	// Start begins every line of a log without a header, such as `{"index":`. It distinguishes a
	// torn line from other text, which is not cut off.
	Start string
	// Line, if not nil, is called with every whole line in order, without its line break and
	// without the header. It must not keep the slice. An error refuses the log; ErrDrop cuts it
	// off before this line.
	Line func(line []byte) error
	// Enough, if not nil, is called before every line after the header. Once it returns true,
	// the lines from there on are cut off, whatever they contain.
	Enough func() bool
	// Sync makes every line outlast a crash of the machine. Without it, lines outlast a
	// crash of the process, and Log.Sync and Log.Close do the rest.
	Sync bool
}

// ErrDrop is returned by Config.Line for the first line that is not wanted.
var ErrDrop = errors.New("jsonl: drop the lines from here on")

// Errors that refuse a log. They are wrapped with the number of the line.
var (
	ErrForeign  = errors.New("this is not") // followed by Config.Kind
	ErrSettings = errors.New("made by another model or with other options")
)

// Read reads a log and returns the length of its whole lines in bytes. The rest was torn by a
// crash.
func (c *Config) Read(r io.Reader) (whole int64, err error) {
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		if c.Enough != nil && (n > 1 || c.Header.Format == "") && c.Enough() {
			return whole, nil
		}
		line, err := limits.ReadLine(in, limits.LineBytes)
		if errors.Is(err, io.EOF) {
			if !c.torn(n, line) {
				return 0, c.foreign(n, nil)
			}
			return whole, nil
		}
		if err != nil {
			return 0, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case n == 1 && c.Header.Format != "":
			var h Header
			if err := json.Unmarshal(line, &h); err != nil || h.Format != c.Header.Format {
				return 0, c.foreign(n, nil)
			}
			if h != c.Header {
				err := ErrSettings
				if c.Accept != nil {
					err = c.Accept(h)
				}
				if err != nil {
					return 0, fmt.Errorf("line %d: %w", n, err)
				}
			}
		case len(bytes.TrimSpace(line)) == 0:
		case !json.Valid(line):
			return 0, c.foreign(n, json.Unmarshal(line, new(any)))
		case c.Line != nil:
			err := c.Line(bytes.TrimSuffix(line, []byte("\n")))
			if errors.Is(err, ErrDrop) {
				return whole, nil
			}
			if err != nil {
				return 0, fmt.Errorf("line %d: %w", n, err)
			}
		}
		whole += int64(len(line))
	}
}

// torn reports whether a last line without its line break may be the beginning of line n. Some
// file systems fill what a crash left unwritten with zeros.
func (c *Config) torn(n int, line []byte) bool {
	got, want := string(bytes.TrimRight(line, "\x00")), c.Start
	if c.Header.Format != "" {
		if n > 1 {
			return true // the header says whose file it is
		}
		want = `{"format":"` + c.Header.Format
	}
	return strings.HasPrefix(got, want) || strings.HasPrefix(want, got)
}

func (c *Config) foreign(n int, why error) error {
	kind := c.Kind
	if kind == "" {
		kind = "a log of JSON lines"
	}
	if why != nil {
		return fmt.Errorf("line %d: %w: %w %s", n, why, ErrForeign, kind)
	}
	return fmt.Errorf("line %d: %w %s", n, ErrForeign, kind)
}

// A Log is a log open for appending. No other process can open it at the same time. It is not
// safe for concurrent use.
type Log struct {
	f      *vfs.File
	guard  *durable.Guard
	sync   bool
	dirty  bool  // there are lines that were not synced
	failed error // of the first write that failed
}

// Open opens or creates the log at path, reads it and cuts off a last line torn by a crash. A
// file that is not such a log is refused and left unchanged.
func Open(path string, c Config) (*Log, error) {
	f, err := vfs.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	g, err := durable.Lock(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l := &Log{f: f, guard: g, sync: c.Sync}
	if err := l.open(path, &c); err != nil {
		_ = g.Release() // nothing was written
		return nil, err
	}
	return l, nil
}

func (l *Log) open(path string, c *Config) error {
	whole, err := c.Read(l.f)
	if err != nil {
		return fmt.Errorf("%s, %w", path, err)
	}
	if err := l.f.Truncate(whole); err != nil {
		return fmt.Errorf("repair %s: %w", path, err)
	}
	if _, err := l.f.Seek(whole, io.SeekStart); err != nil {
		return err
	}
	if whole > 0 {
		return nil
	}
	// The file may be new: its name must last as long as its lines.
	if err := vfs.SyncDirectory(filepath.Dir(path)); err != nil {
		return err
	}
	if c.Header.Format != "" {
		return l.Append(c.Header)
	}
	return nil
}

// Append writes v as one line. After a failed write nothing more is written: the torn line stays
// the last one, which the next Open cuts off.
func (l *Log) Append(v any) error {
	if l.failed != nil {
		return l.failed
	}
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", l.f.Name(), err)
	}
	if _, err = l.f.Write(append(line, '\n')); err != nil {
		l.failed = fmt.Errorf("write %s: %w", l.f.Name(), err)
		return l.failed
	}
	if l.dirty = true; l.sync {
		return l.Sync()
	}
	return nil
}

// Sync makes all lines so far outlast a crash of the machine.
func (l *Log) Sync() error {
	if err := l.f.Sync(); err != nil {
		l.failed = fmt.Errorf("write %s: %w", l.f.Name(), err)
		return l.failed
	}
	l.dirty = false
	return nil
}

// Close makes all lines outlast a crash of the machine, and closes the log.
func (l *Log) Close() error {
	var err error
	if l.dirty && l.failed == nil {
		err = l.Sync()
	}
	return errors.Join(err, l.guard.Release())
}
