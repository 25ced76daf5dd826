package serve

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"talf/infer"
	"talf/infer/loop"
	"talf/infer/prefix"
	"talf/infer/source"
	"talf/model"
	"talf/model/identity"
)

// Parts are a loaded model and what belongs to it. They stay the caller's.
type Parts struct {
	Model  *model.Model
	Cached int // finished requests whose keys and values are kept
	EngineConfig
	Loop   loop.Config
	Server Config
}

// A Running server has a loop that decodes and an engine between the two.
type Running struct {
	server *Server
	engine *Engine
	loop   *loop.Loop
}

// Open makes a server of a model.
func Open(p Parts) (*Running, error) {
	target := infer.NewTarget(p.Model, p.Cached)
	if h, ok := p.Source.(*source.Head); ok {
		prefix.Pair(target.Prefixes(), h.Prefixes())
	}
	l, err := loop.New(&infer.Engine{Target: target, Config: infer.Default()}, p.Loop)
	if err != nil {
		return nil, err
	}
	c := p.EngineConfig
	c.Loop, c.Shape, c.Version = l, target.Shape(), "talf-"+identity.Short(p.Model.Function().Hash())
	e, err := NewEngine(c)
	if err != nil {
		return nil, err
	}
	s, err := New(e, p.Server)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return &Running{server: s, engine: e, loop: l}, nil
}

// Run serves until ctx ends, as Server.Run does, and closes all but the parts.
func (r *Running) Run(ctx context.Context, l Listener, reload <-chan struct{}, ready func(address string)) error {
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
	err := errors.Join(r.server.Run(ctx, l, reload, ready), r.loop.Close())
	if ended := <-ran; !errors.Is(ended, loop.ErrClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, r.engine.Close())
}
