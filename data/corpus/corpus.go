// Package corpus reads the sources of training data: plain text, JSON in any layout
// that data sets are published in, and conversations, compressed or not.
package corpus

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strings"
	"unicode/utf8"

	"talf/internal/ijson"
	"talf/internal/limits"
	"talf/internal/vfs"
	"talf/text/chat"
)

// A Doc is one document or conversation of an input file.
type Doc struct {
	File  string
	Input int    // index of the file among those loaded
	Line  int    // where it starts, from 1
	Item  int    // its number in a JSON array, from 1; 0 if each line is a document
	ID    string // its "id" or "question_id", if it has one
	// Spans are its texts and Chat its messages. A document has one or the other. Only
	// the last span can be an answer.
	Spans []Span
	Chat  *chat.Transcript
	// Asked is true if Spans are a user's questions, turn by turn ("prompt" or
	// "turns"), rather than running text.
	Asked bool
}

// Transcript returns the document's messages, or its questions as messages.
func (d *Doc) Transcript() *chat.Transcript {
	if d.Chat != nil {
		return d.Chat
	}
	c := &chat.Transcript{}
	for _, s := range d.Spans {
		c.Messages = append(c.Messages, chat.NewMessage("user", s.Text))
	}
	return c
}

// Place says where the document is.
func (d *Doc) Place() string { return place(d.File, d.Line, d.Item) }

func place(file string, line, item int) string {
	if item > 0 {
		return fmt.Sprintf("%s:%d: item %d", file, line, item)
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// A Span is a run of text: a question or its answer.
type Span struct {
	Text   string
	Answer bool
}

// A BadLine is a piece of input that cannot be used and is skipped.
type BadLine struct {
	File  string
	Input int // index of the file among those loaded
	Line  int
	Item  int // as in Doc
	Why   string
}

func (b BadLine) Error() string { return place(b.File, b.Line, b.Item) + ": " + b.Why }

// A Format says how a file is divided into documents.
type Format string

// The formats. Auto takes .jsonl, .ndjson and .json as JSONL and anything else as
// Paragraphs, ignoring a final .gz or .zst.
const (
	Auto       Format = "auto"
	JSONL      Format = "jsonl"      // one object per line, or an array of objects
	Paragraphs Format = "paragraphs" // separated by blank lines
	Document   Format = "document"   // the whole file is one text, of at most limits.DocumentBytes
)

// Config says how files are divided into documents.
type Config struct {
	Format Format
	// Template builds the text of a JSON object. If it is empty, the object's
	// "messages" or "conversations" are a conversation, or else its "text", "prompt" or
	// "turns" are used; with AnswerField, only these three.
	Template string
	// AnswerField is the field with the answer; only its tokens are trained on. The
	// answer follows the template's text after a space, unless either has white space
	// there. If AnswerField is empty, the whole text is trained on.
	AnswerField string
	// AnswerRemove is a regular expression (RE2) whose matches are removed from
	// answers: <<[^>]*>> removes GSM8K's calculator annotations.
	AnswerRemove string
	Skip, Limit  int // documents to skip at the front, and to yield after them (0: all)
	MaxLine      int // maximum bytes of a JSON object or a paragraph; longer ones are bad
	// Open opens a file to be read; nil is os.Open.
	Open func(name string) (io.ReadCloser, error)
}

// Default returns the options for plain input.
func Default() Config { return Config{Format: Auto, MaxLine: 16 << 20} }

// Validate reports the first invalid option.
func (c *Config) Validate() error {
	switch c.Format {
	case Auto, JSONL, Paragraphs, Document:
	default:
		return fmt.Errorf("format is %q, want %q, %q, %q or %q", c.Format, Auto, JSONL, Paragraphs, Document)
	}
	if _, err := ParseTemplate(c.Template); err != nil {
		return err
	}
	if _, err := regexp.Compile(c.AnswerRemove); err != nil {
		return fmt.Errorf("answer-remove: %w", err)
	}
	if c.Skip < 0 {
		return fmt.Errorf("skip is %d, want 0 or more", c.Skip)
	}
	if c.Limit < 0 {
		return fmt.Errorf("limit is %d, want 0 or more", c.Limit)
	}
	if c.MaxLine < 1 {
		return fmt.Errorf("longest line of %d bytes, want at least 1", c.MaxLine)
	}
	return nil
}

// Load yields the documents of files, in order, and of the files in directories (see
// Expand). Files compressed by gzip or zstd are recognised by their first bytes. The
// fields of each object decide whether it is a text, a prompt or a conversation. No
// file is held in memory as a whole unless the format is Document.
//
// Input that cannot be used is skipped and passed to bad, if bad is not nil. A file
// that cannot be read to its end, because it is truncated or an array in it is broken,
// ends the sequence with an error. Skip and Limit count usable documents over all
// files.
func Load(files []string, c Config, bad func(BadLine)) iter.Seq2[Doc, error] {
	return func(yield func(Doc, error) bool) {
		if err := c.Validate(); err != nil {
			yield(Doc{}, fmt.Errorf("data: %w", err))
			return
		}
		l := loader{c: c, bad: bad, yield: yield, most: limits.DocumentBytes}
		if c.Template != "" {
			l.template, _ = ParseTemplate(c.Template) // Validate has parsed it
		}
		if c.AnswerRemove != "" {
			l.remove = regexp.MustCompile(c.AnswerRemove)
		}
		files, err := Expand(files)
		if err != nil {
			yield(Doc{}, err)
			return
		}
		for i, f := range files {
			l.input = i
			if err := l.file(f); err != nil {
				if !errors.Is(err, errStop) {
					yield(Doc{}, fmt.Errorf("data: read %s: %w", f, err))
				}
				return
			}
		}
	}
}

// errStop stops reading when the consumer wants no more.
var errStop = errors.New("stop")

type loader struct {
	c        Config
	template *Template
	remove   *regexp.Regexp
	bad      func(BadLine)
	yield    func(Doc, error) bool
	seen     int
	input    int   // index of the open file
	most     int64 // bytes of a document that is a whole file
}

func (l *loader) open(name string) (io.ReadCloser, error) {
	if l.c.Open != nil {
		return l.c.Open(name)
	}
	return vfs.OpenRead(name)
}

func (l *loader) file(name string) error {
	f, err := l.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	r, done, err := unpack(f)
	if err != nil {
		return err
	}
	defer done()
	format, ext := l.c.Format, extension(name)
	if format == Auto {
		switch ext {
		case ".jsonl", ".ndjson", ".json":
			format = JSONL
		default:
			format = Paragraphs
		}
	}
	br := bufio.NewReaderSize(r, 1<<16)
	if bom, _ := br.Peek(3); string(bom) == "\ufeff" {
		br.Discard(3)
	}
	switch format {
	case JSONL:
		return l.objects(name, br, ext == ".json")
	case Document:
		var text strings.Builder
		if _, err := io.Copy(&text, limits.Reader(br, l.most, "a document, which is read whole (paragraphs are not)")); err != nil {
			return err
		}
		return l.text(name, 1, text.String())
	}
	return l.paragraphs(name, br)
}

// objects reads JSON objects: the elements of an array, one object per line, or, in a
// file whose name says JSON rather than JSON lines, objects that span several lines.
func (l *loader) objects(name string, br *bufio.Reader, spread bool) error {
	v := valueReader{r: br, max: l.c.MaxLine, line: 1}
	each := func(item, line int, raw []byte, n int64) error {
		if len(raw) > l.c.MaxLine {
			l.reject(name, line, item, "an object of %d bytes, want at most %d", n, l.c.MaxLine)
			return nil
		}
		return l.record(name, line, item, raw)
	}
	head, _ := br.Peek(br.Size())
	text := bytes.TrimLeft(head, " \t\r\n")
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	switch {
	case len(text) == 0 || text[0] != '[' && text[0] != '{':
	case text[0] == '[' && !(json.Valid(first) && len(bytes.TrimSpace(rest)) > 0): // otherwise the line is an object
		return v.elements(each)
	case text[0] == '{' && spread && len(first) < len(text) && unfinished(first):
		return v.all(each)
	}
	return l.lines(name, br)
}

// unfinished reports whether a JSON value may continue on the next line. A string may
// not.
func unfinished(line []byte) bool {
	var v json.RawMessage
	err := json.NewDecoder(io.MultiReader(bytes.NewReader(line), strings.NewReader("\n"))).Decode(&v)
	return errors.Is(err, io.ErrUnexpectedEOF)
}

func (l *loader) reject(name string, line, item int, format string, args ...any) {
	if l.bad != nil {
		l.bad(BadLine{File: name, Input: l.input, Line: line, Item: item, Why: fmt.Sprintf(format, args...)})
	}
}

func (l *loader) emit(d Doc) error {
	l.seen++
	if l.seen <= l.c.Skip {
		return nil
	}
	d.Input = l.input
	if !l.yield(d, nil) || l.c.Limit > 0 && l.seen == l.c.Skip+l.c.Limit {
		return errStop
	}
	return nil
}

func (l *loader) text(name string, line int, s string) error {
	if !utf8.ValidString(s) {
		l.reject(name, line, 0, "not UTF-8")
		return nil
	}
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return l.emit(Doc{File: name, Line: line, Spans: []Span{{Text: s}}})
}

// readLine reads one line without its end. Of a line longer than max it keeps only the
// first max+1 bytes, which shows the caller that it was too long; n is the full length.
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
			l.reject(name, start, 0, "a paragraph of %d bytes, want at most %d", n, l.c.MaxLine)
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
			l.reject(name, i, 0, "a line of %d bytes, want at most %d", n, l.c.MaxLine)
			continue
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := l.record(name, i, 0, line); err != nil {
			return err
		}
	}
}

// record emits one JSON object as a document, or rejects it.
func (l *loader) record(name string, line, item int, raw []byte) error {
	d, err := l.object(raw)
	if err != nil {
		l.reject(name, line, item, "%v", err)
		return nil
	}
	d.File, d.Line, d.Item = name, line, item
	return l.emit(d)
}

// object turns one JSON object into a document.
func (l *loader) object(line []byte) (d Doc, err error) {
	var syntax *json.SyntaxError
	switch err := ijson.Check(line); {
	case errors.As(err, &syntax):
		return d, fmt.Errorf("not a JSON object: %w", err)
	case err != nil:
		return d, err
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var o map[string]any
	if err := dec.Decode(&o); err != nil {
		if other := (*json.UnmarshalTypeError)(nil); errors.As(err, &other) {
			return d, fmt.Errorf("not a JSON object: %s", other.Value)
		}
		return d, fmt.Errorf("not a JSON object: %w", err)
	}
	if o == nil {
		return d, errors.New("not a JSON object: null")
	}
	for _, key := range []string{"id", "question_id"} {
		if v, ok := o[key]; ok {
			if d.ID, err = asText(key, v); err == nil {
				break
			}
		}
	}
	if l.template == nil && l.c.AnswerField == "" {
		if d.Chat, err = chat.ParseTranscript(line); d.Chat != nil || err != nil {
			return d, err
		}
	}
	if d.Spans, err = l.prompt(o); err != nil {
		return d, err
	}
	_, text := o["text"]
	d.Asked = l.template == nil && !text
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

// prompt returns the spans before the answer. There is at least one, and none is empty.
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
		return nil, errors.New(`no field "messages", "conversations", "text", "prompt" or "turns", and no template that says what to take`)
	}
	turns, ok := v.([]any)
	if !ok || len(turns) == 0 {
		return nil, errors.New(`field "turns": want a list of texts`)
	}
	var spans []Span
	for i, t := range turns {
		s, err := asText(fmt.Sprintf("turns[%d]", i), t)
		if err == nil && strings.TrimSpace(s) == "" {
			err = fmt.Errorf("field %q: empty, want text", fmt.Sprintf("turns[%d]", i))
		}
		if err != nil {
			return nil, err
		}
		spans = append(spans, Span{Text: s})
	}
	return spans, nil
}
