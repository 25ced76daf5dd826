package data

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// A Doc is one document or conversation of an input file.
type Doc struct {
	File  string
	Line  int    // where it starts, from 1
	ID    string // its "id" or "question_id", if it has one
	Spans []Span
}

// A Span is a run of text that was asked for, or that answers it.
type Span struct {
	Text   string
	Answer bool
}

// A BadLine is input that was left out.
type BadLine struct {
	File string
	Line int
	Why  string
}

func (b BadLine) Error() string { return fmt.Sprintf("%s:%d: %s", b.File, b.Line, b.Why) }

// A Format says how a file is cut into documents.
type Format string

// The formats. Auto takes .jsonl and .json as JSONL and anything else as
// Paragraphs.
const (
	Auto       Format = "auto"
	JSONL      Format = "jsonl"      // an object a line
	Paragraphs Format = "paragraphs" // separated by blank lines
	Document   Format = "document"   // the whole file is one text
)

// LoadConfig says how text becomes documents.
type LoadConfig struct {
	Format Format
	// Template builds the text of a JSONL object. Empty: its "text", "prompt"
	// or "turns".
	Template string
	// AnswerField is the field whose text answers; only its tokens are trained
	// on. It follows the template's text after a space, unless one of the two
	// has white space there. Empty: the whole text is trained on.
	AnswerField string
	// AnswerRemove is a regular expression (RE2) whose matches are cut out of
	// answers: <<[^>]*>> drops GSM8K's calculator annotations.
	AnswerRemove string
	Skip, Limit  int // documents to leave out at the front, and to yield then (0: all)
	MaxLine      int // bytes of a JSONL line or a paragraph; longer ones are bad
}

// DefaultLoad returns the options for plain input.
func DefaultLoad() LoadConfig { return LoadConfig{Format: Auto, MaxLine: 16 << 20} }

// Validate reports the first option that is wrong.
func (c *LoadConfig) Validate() error {
	switch c.Format {
	case Auto, JSONL, Paragraphs, Document:
	default:
		return fmt.Errorf("format %q, want %q, %q, %q or %q", c.Format, Auto, JSONL, Paragraphs, Document)
	}
	if _, err := ParseTemplate(c.Template); err != nil {
		return err
	}
	if _, err := regexp.Compile(c.AnswerRemove); err != nil {
		return fmt.Errorf("answer-remove: %w", err)
	}
	if c.Skip < 0 || c.Limit < 0 {
		return fmt.Errorf("skip %d, limit %d, want 0 or more", c.Skip, c.Limit)
	}
	if c.MaxLine < 1 {
		return fmt.Errorf("longest line of %d bytes, want at least 1", c.MaxLine)
	}
	return nil
}

// Load yields the documents of files, in order. Input that cannot be used is
// passed to bad, if it is not nil, and left out; a file that cannot be read ends
// the sequence with an error. Skip and Limit count documents that could be used,
// over all files.
func Load(files []string, c LoadConfig, bad func(BadLine)) iter.Seq2[Doc, error] {
	return func(yield func(Doc, error) bool) {
		if err := c.Validate(); err != nil {
			yield(Doc{}, fmt.Errorf("data: %w", err))
			return
		}
		l := loader{c: c, bad: bad, yield: yield}
		if c.Template != "" {
			l.template, _ = ParseTemplate(c.Template) // Validate parsed it
		}
		if c.AnswerRemove != "" {
			l.remove = regexp.MustCompile(c.AnswerRemove)
		}
		for _, f := range files {
			if err := l.file(f); err != nil {
				if !errors.Is(err, errStop) {
					yield(Doc{}, fmt.Errorf("data: read %s: %w", f, err))
				}
				return
			}
		}
	}
}

// errStop ends the walk when the consumer has enough.
var errStop = errors.New("stop")

type loader struct {
	c        LoadConfig
	template *Template
	remove   *regexp.Regexp
	bad      func(BadLine)
	yield    func(Doc, error) bool
	seen     int
}

func (l *loader) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	format := l.c.Format
	if format == Auto {
		switch strings.ToLower(filepath.Ext(name)) {
		case ".jsonl", ".json":
			format = JSONL
		default:
			format = Paragraphs
		}
	}
	return l.read(name, f, format)
}

func (l *loader) read(name string, r io.Reader, format Format) error {
	br := bufio.NewReaderSize(r, 1<<16)
	if bom, _ := br.Peek(3); string(bom) == "\ufeff" {
		br.Discard(3)
	}
	switch format {
	case JSONL:
		return l.lines(name, br)
	case Document:
		raw, err := io.ReadAll(br)
		if err != nil {
			return err
		}
		return l.text(name, 1, string(raw))
	}
	return l.paragraphs(name, br)
}

func (l *loader) reject(name string, line int, format string, args ...any) {
	if l.bad != nil {
		l.bad(BadLine{File: name, Line: line, Why: fmt.Sprintf(format, args...)})
	}
}

func (l *loader) emit(d Doc) error {
	l.seen++
	if l.seen <= l.c.Skip {
		return nil
	}
	if !l.yield(d, nil) || l.c.Limit > 0 && l.seen == l.c.Skip+l.c.Limit {
		return errStop
	}
	return nil
}

func (l *loader) text(name string, line int, s string) error {
	if !utf8.ValidString(s) {
		l.reject(name, line, "not UTF-8")
		return nil
	}
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return l.emit(Doc{File: name, Line: line, Spans: []Span{{Text: s}}})
}

// line reads one line without its end. Of a line longer than max it keeps the
// first max+1 bytes, which is how the caller knows; n is its whole length.
func readLine(br *bufio.Reader, buf []byte, max int) (line []byte, n int, err error) {
	line = buf[:0]
	for {
		part, err := br.ReadSlice('\n')
		n += len(part)
		line = append(line, part[:min(len(part), max+2-min(len(line), max+2))]...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if err == io.EOF && n > 0 {
			err = nil
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		return line, n, err
	}
}

func (l *loader) paragraphs(name string, br *bufio.Reader) error {
	var buf []byte
	var text strings.Builder
	start, long := 0, 0
	flush := func() error {
		s := text.String()
		text.Reset()
		n := long
		long = 0
		if n > 0 {
			l.reject(name, start, "a paragraph of %d bytes, want at most %d", n, l.c.MaxLine)
			return nil
		}
		return l.text(name, start, s)
	}
	for i := 1; ; i++ {
		line, n, err := readLine(br, buf, l.c.MaxLine)
		buf = line
		if err != nil && err != io.EOF {
			return err
		}
		if err == io.EOF || len(bytes.TrimSpace(line)) == 0 {
			if e := flush(); e != nil {
				return e
			}
			if err == io.EOF {
				return nil
			}
			continue
		}
		if text.Len() == 0 && long == 0 {
			start = i
		}
		if len(line) <= l.c.MaxLine {
			n = len(line) // the line's end does not count
		}
		switch {
		case long > 0 || text.Len()+n > l.c.MaxLine:
			long += n
			if text.Len() > 0 {
				long += text.Len()
				text.Reset()
			}
		default:
			if text.Len() > 0 {
				text.WriteByte('\n')
			}
			text.Write(line)
		}
	}
}

func (l *loader) lines(name string, br *bufio.Reader) error {
	var buf []byte
	for i := 1; ; i++ {
		line, n, err := readLine(br, buf, l.c.MaxLine)
		buf = line
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if len(line) > l.c.MaxLine {
			l.reject(name, i, "a line of %d bytes, want at most %d", n, l.c.MaxLine)
			continue
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		d, err := l.object(line)
		if err != nil {
			l.reject(name, i, "%v", err)
			continue
		}
		d.File, d.Line = name, i
		if err := l.emit(d); err != nil {
			return err
		}
	}
}

// object turns one JSONL line into a document.
func (l *loader) object(line []byte) (d Doc, err error) {
	if !utf8.Valid(line) {
		return d, errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var o map[string]any
	if err := dec.Decode(&o); err != nil {
		return d, fmt.Errorf("not a JSON object: %w", err)
	}
	if o == nil {
		return d, errors.New("not a JSON object: null")
	}
	if _, err := dec.Token(); err != io.EOF {
		return d, errors.New("text after the JSON object")
	}
	for _, key := range []string{"id", "question_id"} {
		if v, ok := o[key]; ok {
			if d.ID, err = asText(key, v); err == nil {
				break
			}
		}
	}
	if d.Spans, err = l.prompt(o); err != nil {
		return d, err
	}
	if l.c.AnswerField != "" {
		a, err := field(o, strings.Split(l.c.AnswerField, "."))
		if err != nil {
			return d, err
		}
		if l.remove != nil {
			a = l.remove.ReplaceAllString(a, "")
		}
		if strings.TrimSpace(a) == "" {
			return d, fmt.Errorf("field %q: empty, want an answer", l.c.AnswerField)
		}
		last := d.Spans[len(d.Spans)-1].Text
		if !endsInSpace(last) && !startsWithSpace(a) {
			a = " " + a
		}
		d.Spans = append(d.Spans, Span{Text: a, Answer: true})
	}
	return d, nil
}

func endsInSpace(s string) bool     { return strings.TrimRight(s, " \t\r\n") != s }
func startsWithSpace(s string) bool { return strings.TrimLeft(s, " \t\r\n") != s }

// prompt returns the spans before the answer: never none, never empty.
func (l *loader) prompt(o map[string]any) ([]Span, error) {
	if l.template != nil {
		s, err := l.template.Render(o)
		if err == nil && strings.TrimSpace(s) == "" {
			err = errors.New("the template gives an empty text")
		}
		return []Span{{Text: s}}, err
	}
	for _, key := range []string{"text", "prompt"} {
		if _, ok := o[key]; !ok {
			continue
		}
		s, err := field(o, []string{key})
		if err == nil && strings.TrimSpace(s) == "" {
			err = fmt.Errorf("field %q: empty, want text", key)
		}
		return []Span{{Text: s}}, err
	}
	v, ok := o["turns"]
	if !ok {
		return nil, errors.New(`no field "text", "prompt" or "turns", and no template that says what to take`)
	}
	turns, ok := v.([]any)
	if !ok || len(turns) == 0 {
		return nil, errors.New(`field "turns": want a list of texts`)
	}
	var spans []Span
	for i, t := range turns {
		s, err := asText(fmt.Sprintf("turns.%d", i), t)
		if err == nil && strings.TrimSpace(s) == "" {
			err = fmt.Errorf("field %q: empty, want text", fmt.Sprintf("turns.%d", i))
		}
		if err != nil {
			return nil, err
		}
		spans = append(spans, Span{Text: s})
	}
	return spans, nil
}
