package talf

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"talf/data/corpus"
	"talf/infer"
	"talf/infer/decode"
	"talf/internal/mapped"
	"talf/model/identity"
	"talf/preprocess"
	"talf/serve"
	"talf/serve/metrics"
	"talf/train"
	"talf/train/plan"
)

// Handler answers requests of OpenAI's API, and of Anthropic's, as talf serve does: on any path that it has, without keys
// and without a page. name is the model's; "": that of its file. The answers share passes with those of Generate and
// Chat. It must not be asked once m is closed.
func (m *Model) Handler(name string) (http.Handler, error) {
	if name == "" {
		path, err := filepath.Abs(m.c.Path)
		if err != nil {
			return nil, err
		}
		name = strings.TrimSuffix(filepath.Base(path), ".gguf")
	}
	if err := m.parts.Model.Identify(); err != nil { // what answers say of it
		return nil, err
	}
	l := m.decoder.Loop()
	c := serve.EngineConfig{
		Loop: l, Shape: m.decoder.Engine().Target.Shape(), Tokenizer: m.parts.Tokenizer, Template: m.template, Source: m.parts.Source,
		Methods: []string{m.c.Method}, Version: identity.Short(m.parts.Model.Function().Hash()),
	}
	switch {
	case m.c.Drafter != nil:
		c.Methods, c.Drafters = []string{own}, map[string]func() infer.Drafter{own: m.c.Drafter}
	case m.c.Verifier != "":
		c.Methods[0] += "@" + m.c.Verifier
	}
	e, err := serve.NewEngine(c)
	if err != nil {
		return nil, err
	}
	s := serve.Default()
	s.Names, s.Methods, s.NoPlayground, s.Log = []string{name}, c.Methods, true, m.c.log()
	s.Metrics = metrics.New(metrics.Config{Model: name, Stats: l.Stats})
	h, err := serve.New(e, s)
	if err != nil {
		_ = e.Close() // nothing was asked of it
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closers = append(m.closers, e.Close)
	return h, nil
}

// Label writes what a draft head learns from to job.Out: the token trees, soft labels and hidden states of c's model over
// the texts of job.Files. preprocess.Default has the rest of a job. If ctx ends, the finished shards are kept, and the same
// job goes on. c's draft model and method have no part in it.
func Label(ctx context.Context, c Config, job preprocess.Config) (stats preprocess.Stats, err error) {
	defer mapped.Guard(&err)()
	on, err := c.machine()
	if err != nil {
		return stats, err
	}
	if on.Device.Resolve().Remote() {
		on.Rows, on.LogitRows, on.Positions = job.Rows, job.Rows, job.Tokens
	}
	template, hash, err := c.chat(nil)
	if err != nil {
		return stats, err
	}
	p, err := c.loader().Open(ctx, c.Path, on, decode.Drafting{}, 0)
	if err != nil {
		return stats, err
	}
	defer func() { _ = p.Close() }() // only read
	if err := p.Model.Identify(); err != nil {
		return stats, err
	}
	bad := corpus.BadLines{Log: c.log()}
	defer bad.End()
	return preprocess.Run(ctx, job, preprocess.Inputs{
		Target: p.Model, Tokenizer: p.Tokenizer, TokenizerHash: p.Tokenizer.Hash(), Chat: template, ChatHash: hash,
		Arithmetic: preprocess.Arithmetic(p.Model, c.DType != ""), Warn: func(why string) { c.log().Warn(why) }, Bad: bad.Add,
	})
}

// TrainHead trains a draft head for c's model with labels, directories that Label wrote, and saves checkpoints in out,
// which Config.Head may then name. train.Default has a run's configuration, of which Steps is the length. If ctx ends, a
// checkpoint is saved, and the same call goes on from it with the same bits.
func TrainHead(ctx context.Context, c Config, run train.Config, labels []string, out string) (result train.Result, err error) {
	defer mapped.Guard(&err)()
	on, err := c.machine()
	if err != nil {
		return result, err
	}
	on.Lazy = true // the target runs only if the labels have no hidden states
	target, closeTarget, err := c.loader().Model(ctx, c.Path, on)
	if err != nil {
		return result, err
	}
	defer closeTarget()
	if err := target.Identify(); err != nil { // what the head is tied to
		return result, err
	}
	job := train.HeadJob{
		Target: target, Out: out, Features: train.FeaturesAuto, Warn: func(why string) { c.log().Warn(why) },
		Arithmetic: plan.Arithmetic(target.Device(), plan.F32, nil),
	}
	p := plan.Head{Data: labels}
	defer func() { _ = job.Data.Close() }() // only read
	if err := p.Open(&run, &job, c.log()); err != nil {
		return result, fmt.Errorf("talf: %w", err)
	}
	return train.Head(ctx, run, job)
}
