// Package talf decodes language models with draft trees: something cheap proposes a tree of next tokens, the model scores
// all of it in one pass, and what is kept is what the model alone would have written, bit for bit at temperature 0.
//
//	m, err := talf.Open(ctx, talf.Config{Path: "model.gguf"})
//	…
//	defer m.Close()
//	for piece, err := range m.Generate(ctx, "Once upon a time", talf.Options{}) {
//		…
//		fmt.Print(piece.Text)
//	}
//
// Label and TrainHead make a draft head for a model, which Config.Head then names. docs/library.md says what of the module
// is stable.
package talf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"talf/checkpoints"
	"talf/infer"
	"talf/infer/decode"
	"talf/infer/loop"
	"talf/internal/mapped"
	"talf/model"
	"talf/model/sample"
	"talf/text/chat"
)

// A Config says what is loaded, and onto what. All but Path may be left out.
type Config struct {
	// Path is the model: a directory in Hugging Face's layout, or a .gguf file.
	Path string
	// Head is a draft head: a checkpoint, a directory in EAGLE's layout, Medusa heads, or "mtp" for the module in the
	// model's own files. Draft is a small language model that drafts instead, with a tokenizer that may differ. At most one
	// of them is given.
	Head, Draft string
	// Method is the draft method with its parameters, such as "salf:th=0.4,N=60"; "" is "auto", which drafts with
	// what pays. "ar" is plain decoding. The text does not depend on it.
	Method string
	// Verifier accepts tokens above temperature 0; "" is "target", with which the text does not depend on the method.
	Verifier string
	// Drafter, if not nil, makes the drafters in place of Method, one for each answer. What they add to trees they choose
	// without randomness; infer/draft/drafttest checks them.
	Drafter func() infer.Drafter
	// ChatTemplate is a file; "": the model's own template.
	ChatTemplate string

	Device    string // cpu, cuda:N or auto; "" is the CPU
	DType     string // of the weights in memory: f32, bf16, bf16dp, q8 or q4; "" keeps each matrix as it is stored
	KV        string // type of keys and values: f32 or bf16; "" is f32
	Positions int    // of keys and values, for all answers together, that a CUDA device reserves; 0: 2048
	Threads   int    // of the CPU; 0: one for each core

	Log *slog.Logger // nil: nothing is logged
	// Progress, if not nil, is told of a load how many bytes of total are done.
	Progress func(phase string, done, total int64)
}

// Options decide an answer, together with the model and the prompt.
type Options struct {
	MaxTokens   int     // 0: 256
	Temperature float64 // 0: always the most likely token
	TopK        int     // sample from the most likely tokens; 0: all
	TopP        float64 // sample from the most likely tokens that together have this probability; 0: all
	MinP        float64 // drop tokens whose probability is below this fraction of the largest
	Seed        uint64  // of sampling
	Stop        []string
	IgnoreEOS   bool // go on after an end-of-sequence token
}

// A Message is a turn of a conversation.
type Message struct {
	Role    string `json:"role"` // system, user or assistant
	Content string `json:"content"`
}

// A Piece is what an answer gained.
type Piece struct {
	Text   string
	Tokens []int32
	// Reason says why the answer ended; "" if it goes on. The last piece has one, and alone has Stats.
	Reason infer.Reason
	Stats  *Stats
}

// Stats say what an answer cost.
type Stats struct {
	Prompt   int // tokens of the prompt
	Cached   int // of these, with keys and values that an earlier answer left
	Tokens   int // of the answer
	Passes   int // of the model for these
	Drafted  int // tokens that were drafted and scored
	Accepted int // of these
	First    time.Duration
	Decode   time.Duration // of all passes after the prompt
}

// Tau returns the tokens per pass of the model; 0 without passes.
func (s *Stats) Tau() float64 { return float64(s.Tokens) / math.Max(1, float64(s.Passes)) }

// A Model is a loaded model with its draft model. Its methods may be called from several goroutines: answers that are
// decoded at the same time share passes, and none depends on the others.
type Model struct {
	c        Config
	parts    *decode.Parts
	decoder  *decode.Decoder
	template *chat.Template // nil: conversations are plain text
	ended    chan error     // of the loop
	mu       sync.Mutex
	closers  []func() error // of Handler
}

// kept is how many answers leave their keys and values to prompts that begin alike, as the turns of a conversation do.
const kept = 16

// Open loads a model.
func Open(ctx context.Context, c Config) (m *Model, err error) {
	defer mapped.Guard(&err)()
	on, err := c.machine()
	if err != nil {
		return nil, err
	}
	if c.Method == "" {
		c.Method = decode.DefaultMethod
	}
	if c.Head != "" && c.Draft != "" {
		return nil, errors.New("talf: both Head and Draft are given, want at most one")
	}
	m = &Model{c: c, ended: make(chan error, 1)}
	if m.template, _, err = c.chat(time.Now); err != nil {
		return nil, err
	}
	if m.parts, err = c.loader().Open(ctx, c.Path, on, decode.Drafting{Head: c.Head, Draft: c.Draft}, kept); err != nil {
		return nil, err
	}
	shared := loop.Default()
	shared.MaxQueue = math.MaxInt // whoever calls Generate waits for its turn
	d := decode.Config{
		Target: m.parts.Model, Tokenizer: m.parts.Tokenizer, Source: m.parts.Source,
		Options: decode.Default(), Sampled: c.Verifier, Drafter: c.Drafter, Keep: kept, Loop: shared,
	}
	if d.Options.Method = c.Method; c.Drafter != nil {
		d.Options.Method = own
	}
	if m.decoder, err = decode.New(d); err != nil {
		return nil, errors.Join(err, m.parts.Close())
	}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				m.ended <- &infer.PanicError{Op: "decode", Value: p, Stack: debug.Stack()}
			}
		}()
		m.ended <- m.decoder.Loop().Run(context.Background())
	}()
	return m, nil
}

// own is what statistics call the method of Config.Drafter.
const own = "own"

// Close ends all answers and frees the model.
func (m *Model) Close() error {
	err := m.decoder.Close()
	if ended := <-m.ended; !errors.Is(ended, loop.ErrClosed) {
		err = errors.Join(err, ended)
	}
	for _, c := range m.closers {
		err = errors.Join(err, c())
	}
	return errors.Join(err, m.parts.Close())
}

// Generate continues a text. It yields pieces as they are decided, and decodes until the last one, until the caller breaks
// out of the loop, or until ctx ends. An error is the last that it yields.
func (m *Model) Generate(ctx context.Context, prompt string, o Options) iter.Seq2[Piece, error] {
	return m.answer(ctx, o, func() (chat.Prompt, error) { return chat.Prompt{Text: prompt, Special: true}, nil })
}

// Chat is Generate for the answer to a conversation, as the model's template writes it. Without a template it is plain
// text.
func (m *Model) Chat(ctx context.Context, messages []Message, o Options) iter.Seq2[Piece, error] {
	return m.answer(ctx, o, func() (chat.Prompt, error) {
		raw, err := json.Marshal(map[string]any{"messages": messages})
		if err != nil {
			return chat.Prompt{}, err
		}
		return chat.Write(ctx, m.template, raw)
	})
}

// answer decodes the answer to a prompt.
func (m *Model) answer(ctx context.Context, o Options, prompt func() (chat.Prompt, error)) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		fail := func(err error) { yield(Piece{}, fmt.Errorf("talf: %w", err)) }
		p, err := prompt()
		if err != nil {
			fail(err)
			return
		}
		h, err := m.decoder.SubmitAs(ctx, p, o.decode(), o.Seed)
		if err != nil {
			fail(err)
			return
		}
		defer h.Cancel(nil) // which does nothing at the end of the answer
		for {
			x, err := h.Next(ctx)
			if err != nil {
				fail(err)
				return
			}
			piece := Piece{Text: x.Text, Tokens: x.Tokens, Reason: x.Reason}
			if x.Reason != "" {
				seq, err := h.Result()
				if err != nil {
					fail(err)
					return
				}
				s := seq.Stats()
				piece.Stats = &Stats{s.Prompt, s.Cached, s.Tokens, s.Passes, s.Drafted, s.Accepted, s.TTFT, s.Decode}
			}
			if !yield(piece, nil) || x.Reason != "" {
				return
			}
		}
	}
}

// Collect reads an answer to its end. After an error the text is what there was before.
func Collect(answer iter.Seq2[Piece, error]) (text string, stats Stats, err error) {
	for p, e := range answer {
		if text += p.Text; p.Stats != nil {
			stats = *p.Stats
		}
		err = e
	}
	return text, stats, err
}

func (o *Options) decode() decode.Options {
	d := decode.Default()
	d.Sample.Temperature, d.Sample.TopK, d.Sample.TopP, d.Sample.MinP = o.Temperature, o.TopK, o.TopP, o.MinP
	if o.TopP == 0 {
		d.Sample.TopP = sample.Greedy().TopP
	}
	if o.MaxTokens != 0 {
		d.MaxTokens = o.MaxTokens
	}
	d.Stop, d.IgnoreEOS = o.Stop, o.IgnoreEOS
	return d
}

// machine returns the device and the types that c names.
func (c *Config) machine() (*decode.Machine, error) {
	m := decode.DefaultMachine()
	m.Threads, m.Positions = c.Threads, c.Positions
	if m.Positions == 0 {
		m.Positions = decode.DefaultPositions
	}
	for _, x := range []struct {
		name, value string
		set         func(string) error
	}{{"Device", c.Device, m.Device.Set}, {"DType", c.DType, m.DType.Set}, {"KV", c.KV, m.KV.Set}} {
		if x.value == "" {
			continue
		}
		if err := x.set(x.value); err != nil {
			return nil, fmt.Errorf("talf: %s is %q: %w", x.name, x.value, err)
		}
	}
	return &m, nil
}

func (c *Config) log() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}

func (c *Config) loader() *decode.Loader {
	l := &decode.Loader{Log: c.log()}
	if c.Progress != nil {
		l.Progress = func(_ context.Context, p model.Phase, done, total int64) { c.Progress(string(p), done, total) }
	}
	return l
}

// chat returns the chat template and its hash; no template if there is none. now, unless nil, is the clock that it may
// write the date of.
func (c *Config) chat(now func() time.Time) (*chat.Template, string, error) {
	dir, err := checkpoints.FindModel(c.Path)
	if err != nil {
		return nil, "", err
	}
	day, err := time.Parse(time.DateOnly, chat.FixedDate)
	if err != nil {
		return nil, "", err
	}
	t, hash, err := chat.Open(dir, c.ChatTemplate, day, false)
	if t != nil && now != nil {
		t = t.WithClock(now)
	}
	return t, hash, err
}
