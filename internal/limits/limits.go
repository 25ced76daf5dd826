// Package limits bounds what reading an untrusted file or text may cost.
//
// The rule: nothing that an input asks for is allocated or computed before it is charged. What a
// file says about its own sizes is compared with the bytes that it has; what a program in it
// makes, such as a chat template or a normalizer, is charged to a Meter before it exists; files
// that are read whole are read through ReadFile. The constants are the limits; Table lists them
// with the reason for each.
package limits

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"talf/internal/vfs"
)

// Units of the constants.
const (
	KiB = 1 << 10
	MiB = 1 << 20
	GiB = 1 << 30
)

// Files that are read whole.
const (
	// ConfigBytes bounds config.json and the other small JSON files of a model. The largest in use
	// have a list of tokens or labels and stay below 1 MiB.
	ConfigBytes = 16 * MiB
	// TokenizerBytes bounds tokenizer.json and SentencePiece models. Vocabularies of 256k tokens
	// with their merges take up to 35 MB.
	TokenizerBytes = 128 * MiB
	// IndexBytes bounds the index of a model's shards. That of a model of 1.5 trillion parameters
	// takes 20 MB.
	IndexBytes = 64 * MiB
	// Tensors bounds how many tensors a safetensors file has. Mixtures of experts have up to 150k,
	// in many files.
	Tensors = 1 << 17
	// GGUFKeys bounds the keys of a GGUF file. Those in use have up to some 60.
	GGUFKeys = 1 << 16
	// TextBytes bounds a text that is read whole to measure a model with.
	TextBytes = 1 * GiB
	// TemplateBytes bounds a chat template. The largest in use are below 100 KB. Parsing does not
	// look at a context: at this size it takes less than a tenth of a second, whatever it reads.
	TemplateBytes = 256 * KiB
	// TemplateText bounds what a chat template writes, and every text that it makes on the way.
	TemplateText = 16 * MiB
	// TemplateMade bounds all values that one rendering makes, whether it keeps them or not.
	TemplateMade = 192 * MiB
	// TemplateSteps bounds the work of one rendering in units of a few nanoseconds. A node of the
	// template costs 32, so that eight million can be evaluated; reading a text costs a unit for
	// four bytes.
	TemplateSteps = 256 << 20
	// TemplateDepth bounds the nesting of what is evaluated.
	TemplateDepth = 1500
	// FooterBytes bounds the metadata at the end of a Parquet shard: that of about ten thousand row
	// groups.
	FooterBytes = 16 * MiB
	// ManifestBytes bounds the list of a set's shards. A million shards take 250 MB.
	ManifestBytes = 256 * MiB
	// ResultBytes bounds a file of results that a page is made of. A log of 10,000 answers takes 40 MB.
	ResultBytes = 512 * MiB
	// LineBytes bounds one line of a file of records that is held whole, such as a conversation.
	LineBytes = 64 * MiB
	// DocumentBytes bounds a file of training text that is one document. It is held whole, and
	// its tokens take several times as much.
	DocumentBytes = 64 * MiB
	// PromptBytes bounds a text from outside that is encoded at once: a prompt, a line of
	// `talf tokenize`. A million tokens take about 5 MB.
	PromptBytes = 16 * MiB
	// RequestBytes bounds the body of a request over HTTP. A million token ids take 7 MB.
	RequestBytes = 32 * MiB
	// RequestsBytes bounds the bodies of all requests that are being read or answered. What is made
	// of a body takes several times as much.
	RequestsBytes = 4 * RequestBytes
	// AnswerBytes bounds a response of a server that is asked. A million tokens take about 5 MB.
	AnswerBytes = 16 * MiB
	// TraceNodes bounds the nodes of a request's traced rounds that its client has not read yet.
	// They take about a megabyte; common trees have 8 to 64.
	TraceNodes = 8192
)

// What the normalizers and pre-tokenizers of a tokenizer.json may do with a text. The largest
// normal forms have eleven times the bytes of their text.
const (
	EncodeBytes = 256     // bytes made, or held at the same time, per byte of text
	EncodeSteps = 1 << 10 // steps of regular expressions per byte of text
	EncodeFloor = 1 << 16 // bytes and steps more for any text
	EncodeMost  = 4 * GiB // bytes for any text
)

// What a compressed file may be unpacked to. Deflate packs at most 1,032 bytes into one, and no
// text packs as well as that.
const (
	UnpackBytes    = 2048    // bytes made per byte of a file of text
	RecordingBytes = 16      // bytes made per byte of a recording
	UnpackFloor    = 1 * MiB // bytes more for any file
)

// JSONDepth bounds how deep the lists and objects of records, requests and headers are nested.
// Schemas of tools stay below 50, and a template's values have the same bound.
const JSONDepth = 500

// JSONKeys bounds the keys of one object in them. The index of a model has up to 150k.
const JSONKeys = 1 << 20

// What a grammar from outside may cost: a schema, a regular expression, or rules.
const (
	// GrammarBytes bounds the text of a schema, a regular expression or rules.
	GrammarBytes = 1 * MiB
	// GrammarSize bounds the parts that a grammar is compiled to. A part takes about a hundred bytes.
	GrammarSize = 1 << 19
	// GrammarCount bounds the counts of repetitions. They cost nothing, but an answer that has to
	// reach one would never end.
	GrammarCount = 1 << 24
	// GrammarDFA bounds the states of automata that are made where two patterns have to match at
	// once.
	GrammarDFA = 1 << 14
	// GrammarCompile bounds the work of making automata, in entries of their tables.
	GrammarCompile = 1 << 24
	// GrammarStacks bounds the ways to go on that are kept side by side at one place.
	GrammarStacks = 1 << 10
	// GrammarExpand bounds the work of finding them, in units of some fifty nanoseconds.
	GrammarExpand = 1 << 14
	// GrammarDepth bounds how deep a text is nested in its rules.
	GrammarDepth = 1 << 12
	// GrammarStates bounds the states that are kept for a grammar.
	GrammarStates = 1 << 15
	// GrammarMemory bounds what the states that are kept for a grammar take.
	GrammarMemory = 64 * MiB
	// GrammarMasks bounds the masks that are kept for a grammar. One of a vocabulary of 128k tokens
	// takes 16 KiB.
	GrammarMasks = 64 * MiB
	// GrammarHeads bounds what a vocabulary keeps of the masks that grammars have in common.
	GrammarHeads = 16 * MiB
	// GrammarsKept bounds the grammars that a server keeps after their requests.
	GrammarsKept = 8
	// Tools bounds the tools of a request, and ToolBytes their definitions together.
	Tools     = 128
	ToolBytes = 1 * MiB
	// ToolCalls bounds the calls of an answer.
	ToolCalls = 64
	// GrammarWork bounds the work of one mask: the tokens' trie has up to a million nodes, each of
	// which costs one, one for every way to go on, and what it takes to find them.
	GrammarWork = 1 << 25
)

// A Limit is one row of Table.
type Limit struct {
	Of    string // the input
	What  string // what of it is bounded
	Value int64
	Unit  string // "bytes", "levels", …
	Why   string
}

var table = []Limit{
	{"config.json and other small JSON files", "size", ConfigBytes, "bytes", "the largest in use are below 1 MiB"},
	{"tokenizer.json, SentencePiece models", "size", TokenizerBytes, "bytes", "256k tokens with merges take 35 MB"},
	{"normalizers and pre-tokenizers", "bytes made, or held at the same time, per byte of text", EncodeBytes, "bytes", "normal forms make up to 11, and a split into characters holds 80"},
	{"normalizers and pre-tokenizers", "steps per byte of text", EncodeSteps, "steps", "published patterns take about 30"},
	{"indexes of a model's shards", "size", IndexBytes, "bytes", "a model of 1.5 trillion parameters has 20 MB"},
	{"safetensors", "tensors in one file", Tensors, "tensors", "mixtures of experts have up to 150k, in many files"},
	{"GGUF", "keys", GGUFKeys, "keys", "files in use have up to some 60"},
	{"GGUF", "tensors in one file", Tensors, "tensors", "mixtures of experts are stacked: up to some 2,000"},
	{"chat templates", "size", TemplateBytes, "bytes", "the largest in use are below 100 KB"},
	{"chat templates", "rendered text, and any text made on the way", TemplateText, "bytes", "three times a context of a million tokens"},
	{"chat templates", "values made by one rendering", TemplateMade, "bytes", "twelve texts of the largest size"},
	{"chat templates", "work of one rendering", TemplateSteps, "steps", "about a second; eight million nodes"},
	{"chat templates", "nesting of what is evaluated", TemplateDepth, "levels", "Python stops at about 1,000"},
	{"footers of Parquet shards", "size", FooterBytes, "bytes", "that of 10,000 row groups"},
	{"manifests of label sets", "size", ManifestBytes, "bytes", "a million shards take 250 MB"},
	{"training text of one document", "size", DocumentBytes, "bytes", "some fifteen million tokens; with them it takes four times as much"},
	{"compressed files", "bytes unpacked per byte", UnpackBytes, "bytes", "deflate makes at most 1,032, and no text comes near"},
	{"recordings", "bytes unpacked per byte", RecordingBytes, "bytes", "most are probabilities, which hardly pack: 1.5"},
	{"prompts, lines of talf tokenize", "length", PromptBytes, "bytes", "a million tokens take about 5 MB"},
	{"results given to talf report", "size", ResultBytes, "bytes", "a log of 10,000 answers takes 40 MB"},
	{"lines of records", "length", LineBytes, "bytes", "a conversation of ten million tokens"},
	{"a request over HTTP", "body; status 413", RequestBytes, "bytes", "a million token ids take 7 MB"},
	{"all requests over HTTP", "bodies of those that are read or answered; further ones get status 503", RequestsBytes, "bytes", "what is made of a body takes several times as much"},
	{"a response of a server that preprocess asks", "body", AnswerBytes, "bytes", "a million tokens take about 5 MB"},
	{"traces of requests", "nodes of rounds that wait for their reader; further rounds are left out", TraceNodes, "nodes", "about a megabyte; common trees have 8 to 64"},
	{"grammars, schemas, regular expressions", "length", GrammarBytes, "bytes", "the largest schemas in use are below 500 KB"},
	{"grammars, schemas, regular expressions", "parts after compiling", GrammarSize, "parts", "a schema of a thousand properties has about 50,000"},
	{"grammars, schemas, regular expressions", "counts of repetitions", GrammarCount, "times", "sixteen times what a context of a million tokens holds"},
	{"grammars, schemas, regular expressions", "states of an automaton of several patterns that have to match at once", GrammarDFA, "states", "dates, addresses and bounded numbers have below 1,000"},
	{"grammars, schemas, regular expressions", "entries of the tables of all such automata", GrammarCompile, "entries", "about a second; a schema of a hundred dates takes one million"},
	{"grammars, schemas, regular expressions", "ways to go on at one place", GrammarStacks, "stacks", "common schemas have below 50"},
	{"grammars, schemas, regular expressions", "work of finding them", GrammarExpand, "steps", "below a millisecond"},
	{"grammars, schemas, regular expressions", "nesting of a text in rules", GrammarDepth, "levels", "JSON nested a thousand deep"},
	{"grammars, schemas, regular expressions", "states that are kept", GrammarStates, "states", "about a kilobyte each"},
	{"grammars, schemas, regular expressions", "memory of the states that are kept", GrammarMemory, "bytes", "half a million stacks"},
	{"grammars, schemas, regular expressions", "masks that are kept", GrammarMasks, "bytes", "4,096 masks of a vocabulary of 128k"},
	{"grammars, schemas, regular expressions", "what the grammars of a vocabulary have in common", GrammarHeads, "bytes", "some hundred parts of strings"},
	{"grammars, schemas, regular expressions", "that a server keeps", GrammarsKept, "grammars", "with their masks they take up to 512 MiB"},
	{"grammars, schemas, regular expressions", "work of one mask", GrammarWork, "steps", "a second or two; strings of JSON take 6 million"},
	{"tools of a request", "count", Tools, "tools", "as many as OpenAI's API takes"},
	{"tools of a request", "size of their definitions together", ToolBytes, "bytes", "those of a hundred tools take about 200 KB"},
	{"tools of a request", "calls in an answer, and in a message", ToolCalls, "calls", "models make a few at once"},
	{"JSON", "nesting", JSONDepth, "levels", "schemas of tools stay below 50"},
	{"JSON", "keys of an object", JSONKeys, "keys", "the index of a model has up to 150k"},
}

// Table returns the limits, for documents and for tests that compare documents with them.
func Table() []Limit { return table }

// ErrTooLarge is what an input beyond a limit wraps.
var ErrTooLarge = errors.New("beyond the limit")

// ReadFile reads a regular file of at most most bytes. Links are followed. A device, a pipe or a
// directory is refused without being read, and a pipe does not block.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > most {
		return nil, tooLarge(path, st.Size(), most)
	}
	// The file may grow, or lie about its size as those in /proc do.
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		return nil, tooLarge(path, int64(len(b)), most)
	}
	return b, nil
}

func tooLarge(path string, n, most int64) error {
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%d bytes or more, want at most %d: %w", n, most, ErrTooLarge)}
}

// Reader returns a reader of at most most bytes of r. A read beyond them fails with an error that
// names what and wraps ErrTooLarge; io.LimitReader would end there as if r did.
func Reader(r io.Reader, most int64, what string) io.Reader {
	return &reader{r: r, left: most, most: most, what: what}
}

type reader struct {
	r          io.Reader
	left, most int64
	what       string
}

func (r *reader) Read(p []byte) (int, error) {
	if int64(len(p)) > r.left+1 {
		p = p[:r.left+1]
	}
	n, err := r.r.Read(p)
	if int64(n) > r.left {
		n = int(r.left)
		err = fmt.Errorf("%s: more than %d bytes: %w", r.what, r.most, ErrTooLarge)
	}
	r.left -= int64(n)
	return n, err
}

// A Counter counts the bytes that are read from R.
type Counter struct {
	R io.Reader
	N int64
}

func (c *Counter) Read(p []byte) (int, error) {
	n, err := c.R.Read(p)
	c.N += int64(n)
	return n, err
}

// Unpacked returns a reader of r, which unpacks what it reads from packed. It fails with an error
// that names what and wraps ErrTooLarge if r makes more than times bytes of each, and UnpackFloor.
func Unpacked(r io.Reader, packed *Counter, times int64, what string) io.Reader {
	return &unpacked{r: r, packed: packed, times: times, what: what}
}

type unpacked struct {
	r      io.Reader
	packed *Counter
	times  int64
	what   string
	n      int64
}

func (u *unpacked) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	u.n += int64(n)
	if most := UnpackFloor + u.times*u.packed.N; u.n > most {
		return 0, fmt.Errorf("%s: more than %d bytes from %d: %w", u.what, most, u.packed.N, ErrTooLarge)
	}
	return n, err
}

// ReadLine reads a line with its line break from r, or the rest of r with io.EOF. A line of more
// than most bytes fails with an error that wraps ErrTooLarge, without having been held whole.
func ReadLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, fmt.Errorf("a line of more than %d bytes: %w", most, ErrTooLarge)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// A Meter charges the steps and bytes of one piece of work, and stops it at the end of its
// context. A nil Meter charges nothing. A Meter is for one goroutine.
type Meter struct {
	ctx          context.Context
	steps, bytes int64 // left
	most         Budget
	soon         int64 // steps until the context is looked at
}

// A Budget is what a Meter allows.
type Budget struct {
	Steps int64 // units of work, each of some nanoseconds
	Bytes int64 // bytes that live at the same time, if what is freed is reported
}

// NewMeter returns a meter of b that also stops when ctx ends.
func NewMeter(ctx context.Context, b Budget) *Meter {
	return &Meter{ctx: ctx, steps: b.Steps, bytes: b.Bytes, most: b}
}

// lookEvery is how many steps may pass before the context is looked at: well below a
// millisecond's work.
const lookEvery = 1 << 14

// Step charges n units of work before they are done. The error wraps ErrTooLarge or is that of
// the context.
func (m *Meter) Step(n int) error {
	if m == nil {
		return nil
	}
	m.steps -= int64(n)
	if m.soon -= int64(n); m.soon < 0 {
		m.soon = lookEvery
		if err := m.ctx.Err(); err != nil {
			return err
		}
	}
	if m.steps < 0 {
		return fmt.Errorf("more than %d steps: %w", m.most.Steps, ErrTooLarge)
	}
	return nil
}

// Alloc charges n bytes, and the work of filling them, before they are allocated.
func (m *Meter) Alloc(n int) error {
	if m == nil {
		return nil
	}
	if n < 0 || int64(n) > m.bytes {
		return fmt.Errorf("more than %d bytes: %w", m.most.Bytes, ErrTooLarge)
	}
	m.bytes -= int64(n)
	return m.Step(n/64 + 1)
}

// Free gives n charged bytes back.
func (m *Meter) Free(n int) {
	if m != nil {
		m.bytes += int64(n)
	}
}

// Open opens a regular file for reading. Links are followed. A device, a pipe or a directory is
// refused, and a pipe does not block.
func Open(path string) (*vfs.File, error) {
	f, err := vfs.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
