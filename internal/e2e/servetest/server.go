package servetest

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"time"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/decode"
	"talf/infer/draft"
	"talf/infer/loop"
	"talf/infer/source"
	"talf/model"
	"talf/serve"
)

// A Setup says what is served.
type Setup struct {
	Dir     string // of the model
	Head    string // checkpoint; "": none
	Draft   string // directory of a small model; "": none
	Blocks  int    // of keys and values; 0: any number
	Threads int    // 0: two
	Parts   serve.Parts
	Grace   time.Duration
}

// A Server runs in this process.
type Server struct {
	URL   string
	Model *model.Model
	stop  func() error
}

// Methods returns the methods that a server with a draft model can open, by name.
func Methods(t testing.TB, with bool) (names []string) {
	t.Helper()
	for _, m := range draft.Methods() {
		if m.Name == "rest" || !with && m.Source {
			continue // rest asks for a file of text
		}
		names = append(names, m.Name)
	}
	return names
}

// Default returns a server's parts with the bounds that talf serve begins with.
func Default() serve.Parts {
	p := serve.Parts{Cached: 16, Methods: []string{"auto"}, Loop: loop.Default(), Server: serve.Default()}
	p.Server.Names = []string{"tiny"}
	return p
}

// Start serves until Stop is called, or until the test ends.
func Start(t testing.TB, s Setup) *Server {
	t.Helper()
	if s.Threads == 0 {
		s.Threads = 2
	}
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: s.Threads})
	if err != nil {
		t.Fatal(err)
	}
	opt := model.Default()
	opt.KVBlocks = s.Blocks
	m, err := model.Load(s.Dir, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	p := s.Parts
	p.Model = m
	if p.Tokenizer, err = decode.LoadTokenizer(s.Dir, m); err != nil {
		t.Fatal(err)
	}
	closers := []func() error{m.Close, dev.Close}
	if s.Head != "" {
		src, closer, err := decode.HeadSource(s.Head, m, false, nil, p.Cached)
		if err != nil {
			t.Fatal(err)
		}
		p.Source, closers = src, append([]func() error{closer.Close}, closers...)
	}
	if s.Draft != "" {
		small, vocab, err := decode.LoadDraft(s.Draft, "", m, p.Tokenizer, func(dir string) (*model.Model, error) { return model.Load(dir, dev, opt) })
		if err != nil {
			t.Fatal(err)
		}
		p.Source, closers = infer.Source(source.NewLM(small, vocab, p.Cached)), append([]func() error{small.Close}, closers...)
	}
	running, err := serve.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, ready := make(chan error, 1), make(chan string, 1)
	go func() {
		ended <- running.Run(ctx, &serve.Listener{Address: "127.0.0.1:0", Grace: max(s.Grace, time.Second)}, func(a string) { ready <- a })
	}()
	x := &Server{Model: m}
	select {
	case a := <-ready:
		x.URL = "http://" + a
	case err := <-ended:
		t.Fatal(err)
	}
	stopped := false
	x.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if err := x.Stop(); err != nil {
			t.Error(err)
		}
		for _, c := range closers {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
	})
	return x
}

// Stop drains the server and waits for its end.
func (s *Server) Stop() error { return s.stop() }

// NewClient returns a client that keeps at most n connections until the test ends.
func NewClient(t testing.TB, n int) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: n}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Settle waits until at most n goroutines are left, for as long as that may take on a busy
// machine, and returns the number.
func Settle(n int) int {
	for range 2000 {
		if runtime.NumGoroutine() <= n {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return runtime.NumGoroutine()
}
