package serve

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"time"

	"talf/infer"
	"talf/infer/loop"
	"talf/infer/prefix"
	"talf/infer/source"
	"talf/model"
	"talf/model/identity"
	"talf/serve/metrics"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// Parts are a loaded model and what belongs to it. They stay the caller's.
type Parts struct {
	Dir       string // of the model; its name is the model's if Server.Names is empty
	Model     *model.Model
	Tokenizer *tokenizer.Tokenizer
	Template  *chat.Template // nil: conversations are plain text
	Source    infer.Source   // of methods that ask a draft model; nil if there is none
	Methods   []string       // that requests may choose from, the default first
	Cached    int            // finished requests whose keys and values are kept
	MaxWait   time.Duration  // of a request in the queue; 0: any
	Loop      loop.Config
	Server    Config
}

// A Running server has a loop that decodes and an engine between the two.
type Running struct {
	server *Server
	engine *Engine
	loop   *loop.Loop
}

// Open makes a server of a model.
func Open(p Parts) (*Running, error) {
	if len(p.Server.Names) == 0 {
		path, err := filepath.Abs(p.Dir)
		if err != nil {
			return nil, err
		}
		p.Server.Names = []string{filepath.Base(path)}
	}
	target := infer.NewTarget(p.Model, p.Cached)
	if h, ok := p.Source.(source.Keeper); ok {
		prefix.Pair(target.Prefixes(), h.Prefixes())
	}
	l, err := loop.New(&infer.Engine{Target: target, Config: infer.Default()}, p.Loop)
	if err != nil {
		return nil, err
	}
	e, err := NewEngine(EngineConfig{
		Loop: l, Shape: target.Shape(), Tokenizer: p.Tokenizer, Template: p.Template, Source: p.Source, Methods: p.Methods, MaxWait: p.MaxWait,
		Version: identity.Short(p.Model.Function().Hash()), ToolFormat: p.Server.ToolFormat,
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p.Server.Metrics = metrics.New(metrics.Config{Model: p.Server.Names[0], Stats: l.Stats})
	p.Server.Methods = e.offered()
	s, err := New(e, p.Server)
	if err != nil {
		return nil, errors.Join(err, l.Close(), e.Close())
	}
	return &Running{server: s, engine: e, loop: l}, nil
}

// Run serves until ctx ends, as Server.Run does, and closes all but the parts. The log has the
// address; told, unless it is nil, is called with it, too.
func (r *Running) Run(ctx context.Context, l *Listener, told func(address string)) error {
	ready := func(address string) {
		scheme := "http"
		if l.Certificate != "" {
			scheme = "https"
		}
		kv := r.loop.Stats().KV
		r.server.c.Log.Info("serving", "url", scheme+"://"+address+"/v1", "model", r.server.c.Names[0], "method", r.engine.c.Methods[0], "context", r.loop.Context(), "kv_tokens", kv.Positions(infer.Default().PrefillChunk))
		if told != nil {
			told(address)
		}
	}
	// The loop outlives ctx: requests end while the server stops. Without the loop there is no
	// server.
	decode, stop := context.WithCancel(context.Background())
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ran := make(chan error, 1)
	go func() {
		defer cancel()
		defer func() {
			if p := recover(); p != nil {
				ran <- fmt.Errorf("serve: panic: %v\n%s", p, debug.Stack())
			}
		}()
		ran <- r.loop.Run(decode)
	}()
	err := errors.Join(r.server.Run(ctx, l, ready), r.loop.Close())
	if ended := <-ran; !errors.Is(ended, loop.ErrClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, r.engine.Close())
}
