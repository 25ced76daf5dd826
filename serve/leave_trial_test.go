package serve_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"talf/infer"
	decoding "talf/infer/decode"
	"talf/infer/loop"
	"talf/internal/e2e/talftest"
	"talf/serve"
	"talf/serve/wire"
	"talf/text/chat"
)

// A request whose client goes away, or whose answer is closed, is cancelled in the loop: it does not
// run to its end for nobody.
func TestTrialAnswersEndWithTheirClients(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	m := talftest.OpenModel(t, dir)
	tok, err := decoding.LoadTokenizer(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	target := infer.NewTarget(m, 0)
	l, err := loop.New(&infer.Engine{Target: target, Config: infer.Default()}, loop.Default())
	if err != nil {
		t.Fatal(err)
	}
	template, err := chat.Parse("/srv/all.jinja", "{% for i in range(99999) %}{{ messages[0].content }}{% endfor %}{{ raise_exception('no') }}")
	if err != nil {
		t.Fatal(err)
	}
	e, err := serve.NewEngine(serve.EngineConfig{Loop: l, Shape: target.Shape(), Tokenizer: tok, Template: template})
	if err != nil {
		t.Fatal(err)
	}
	r, bad := wire.ParseCompletion([]byte(`{"prompt":[5,6,7],"max_tokens":200,"ignore_eos":true}`))
	if bad != nil {
		t.Fatal(bad)
	}
	talk := &wire.Prompt{Conversation: json.RawMessage(`{"messages":[{"role":"user","content":"a"}]}`)}
	if _, bad := e.Encode(t.Context(), talk); bad == nil || bad.Status != 400 || strings.Contains(bad.Message, "/srv") {
		t.Errorf("a template that fails: %v", bad)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, bad := e.Encode(gone, talk); bad == nil || bad.Status != 499 {
		t.Errorf("a client that goes away while its prompt is encoded: %v", bad)
	}
	if _, bad := e.Submit(gone, serve.Job{Prompt: r.Prompts[0].Tokens, Request: r}); bad == nil || bad.Status != 499 {
		t.Errorf("a client that goes away before its request is queued: %v", bad)
	}
	for i, leave := range []func(a serve.Answer, cancel func()){
		func(_ serve.Answer, cancel func()) { cancel() },
		func(a serve.Answer, _ func()) { a.Close() },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		a, bad := e.Submit(ctx, serve.Job{Prompt: r.Prompts[0].Tokens, Request: r})
		if bad != nil {
			t.Fatal(bad)
		}
		leave(a, cancel) // nobody runs the loop yet: the request waits
		for {            // the context's end is told in another goroutine
			if _, err := a.Next(t.Context()); err != nil {
				break
			}
		}
		if n := l.Stats().Ended[infer.Cancelled]; n != i+1 {
			t.Errorf("%d answers were cancelled, want %d", n, i+1)
		}
		cancel()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
