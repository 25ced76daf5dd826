package serve_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"talf/infer"
	"talf/infer/loop"
	"talf/internal/e2e/talftest"
	"talf/model"
	"talf/serve"
	"talf/serve/wire"
	"talf/text/tokenizer"
)

// Where memory has room for fewer positions than the model, a request that names no length is answered
// as far as memory goes. It was refused, as if it had asked for all of the model's positions.
func TestTheContextIsWhatMemoryHolds(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	m := talftest.OpenModel(t, dir, func(o *model.Options) { o.KVBlocks = 2 }) // of 32 positions
	target := infer.NewTarget(m, 0)
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := loop.New(&infer.Engine{Target: target, Config: infer.Default()}, loop.Default())
	if err != nil {
		t.Fatal(err)
	}
	e, err := serve.NewEngine(serve.EngineConfig{Loop: l, Shape: target.Shape(), Tokenizer: tok})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- l.Run(ctx) }()
	defer func() {
		cancel()
		<-ran
		if err := errors.Join(l.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	}()
	if got := e.Context(); got != 65 { // the last token is never read
		t.Fatalf("the context is %d tokens, want 65 of the model's %d", got, target.Shape().MaxLen)
	}
	for _, n := range []int{1, 40, 64} {
		r, bad := wire.ParseCompletion([]byte(`{"prompt":[5],"ignore_eos":true}`))
		if bad != nil {
			t.Fatal(bad)
		}
		r.MaxTokens = 0 // completions have 16 unless they say more, chats all that there is
		a, bad := e.Submit(t.Context(), serve.Job{Prompt: slices.Repeat([]int32{5}, n), Request: r})
		if bad != nil {
			t.Fatalf("a prompt of %d tokens: %v", n, bad)
		}
		var d infer.Delta
		for err == nil && d.Reason == "" {
			d, err = a.Next(t.Context())
		}
		a.Close()
		if st := a.Stats(); err != nil || d.Reason != infer.Length || st.Tokens != 65-n {
			t.Errorf("a prompt of %d tokens: %d tokens, %v, %v, want %d", n, st.Tokens, d.Reason, err, 65-n)
		}
	}
}
