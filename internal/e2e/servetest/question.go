// Package servetest puts a server of OpenAI's API to the test: it draws requests of every kind,
// knows from plain decoding how each has to be answered, asks over HTTP as clients do, patient and
// impatient ones, and compares what came back byte for byte.
package servetest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"

	"talf/infer/constrain"
	"talf/internal/demo"
	"talf/model/sample"
)

// A Question is what decides an answer.
type Question struct {
	Chat      bool
	Prompt    string  // text to continue, or what the user says
	Tokens    []int32 // if not nil, the prompt is sent as these; Prompt is their text
	MaxTokens int
	N         int
	Sample    sample.Params
	Seed      uint64
	Stop      []string
	StopIDs   []int32
	IgnoreEOS bool
	Logprobs  bool
	Top       int
	Echo      bool
	Format    constrain.Format
}

// A Way is how a question is asked. No part of it may change the answer.
type Way struct {
	Method string // one of the server's; "" leaves it to the server
	Off    bool   // plain decoding
	Nodes  int    // of a tree; 0: any
	Stream bool
	Usage  bool // of a stream
	Trace  bool // of a stream
	Key    string
	// Predict, if not empty, is what the client says that the answer will be.
	Predict string
	Low     bool // the lowest priority
	// Quit, if positive, is when the client goes away without a word: after so many reads of a
	// stream, or after so many milliseconds.
	Quit int
}

// Easy returns a question with nothing but a prompt.
func Easy(prompt string, maxTokens int) Question {
	return Question{Prompt: prompt, MaxTokens: maxTokens, N: 1, Sample: sample.Greedy(), Seed: 1}
}

// longest is the most bytes of a drawn prompt.
const longest = 320

// Draw draws a question about demo text. Prompts of one stock begin alike, so that some find a
// part of theirs in the prefix cache. Answers have at most most tokens.
func Draw(rng *rand.Rand, stock []string, most int) Question {
	q := Easy(stock[rng.IntN(len(stock))], 1+rng.IntN(most))
	q.Prompt = q.Prompt[:1+rng.IntN(min(len(q.Prompt), longest))]
	q.Seed = rng.Uint64() >> 11
	q.Chat = rng.IntN(3) == 0
	sometimes := func(of int, do func()) {
		if rng.IntN(of) == 0 {
			do()
		}
	}
	sometimes(4, func() { q.N = 2 + rng.IntN(2) })
	p := &q.Sample
	sometimes(2, func() { p.Temperature = []float64{0.3, 0.8, 1, 1.5, 2}[rng.IntN(5)] })
	sometimes(5, func() { p.TopP = 0.5 + rng.Float64()/2 })
	sometimes(5, func() { p.TopK = 1 + rng.IntN(60) })
	sometimes(5, func() { p.MinP = rng.Float64() / 5 })
	sometimes(5, func() { p.PresencePenalty = 4*rng.Float64() - 2 })
	sometimes(5, func() { p.FrequencyPenalty = 4*rng.Float64() - 2 })
	sometimes(5, func() { p.RepetitionPenalty = 0.8 + rng.Float64() })
	sometimes(6, func() {
		for id := rng.Int32N(64); id < demo.VocabSize; id += 1 + rng.Int32N(400) {
			p.LogitBias = append(p.LogitBias, sample.Bias{Token: id, By: 0.5 + float64(rng.IntN(200)-100)})
		}
	})
	sometimes(4, func() { q.Stop = []string{" the", "and the", "e", ".", "=", "\n", "er"}[rng.IntN(3):][:1+rng.IntN(4)] })
	sometimes(8, func() { q.StopIDs = []int32{rng.Int32N(demo.VocabSize), rng.Int32N(300)} })
	sometimes(2, func() { q.IgnoreEOS = true })
	sometimes(5, func() { q.Sample.MinTokens = 1 + rng.IntN(q.MaxTokens) })
	sometimes(2, func() { q.Logprobs, q.Top = true, rng.IntN(6) })
	sometimes(3, func() { q.Format = DrawFormat(rng) })
	if !q.Chat && !q.Logprobs {
		sometimes(5, func() { q.Echo = true })
	}
	return q
}

// Stock returns n texts of the demo to draw prompts from, longer ones than a document.
func Stock(seed uint64, n int) []string {
	docs := demo.Validation(seed, 3*n)
	all := make([]string, n)
	for i := range all {
		for _, d := range docs[3*i : 3*i+1+i%3] {
			all[i] += d.Text() + "\n"
		}
	}
	return all
}

// DrawWay draws how a question is asked, with methods of the server and keys that it lets in.
func DrawWay(rng *rand.Rand, methods, keys []string) Way {
	w := Way{Stream: rng.IntN(2) == 0, Low: rng.IntN(3) == 0}
	w.Usage = w.Stream && rng.IntN(4) > 0
	switch rng.IntN(8) {
	case 0:
	case 1:
		w.Off = true
	default:
		w.Method = methods[rng.IntN(len(methods))]
	}
	if rng.IntN(4) == 0 {
		w.Nodes = 1 + rng.IntN(12)
	}
	if len(keys) > 0 {
		w.Key = keys[rng.IntN(len(keys))]
	}
	return w
}

// Path is the route of a question.
func (q *Question) Path() string {
	if q.Chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// Body writes the request.
func (q *Question) Body(w *Way) []byte {
	p := &q.Sample
	b := map[string]any{
		"model": "tiny", "max_tokens": q.MaxTokens, "seed": q.Seed, "temperature": p.Temperature,
		"top_p": p.TopP, "top_k": p.TopK, "min_p": p.MinP, "repetition_penalty": p.RepetitionPenalty,
		"presence_penalty": p.PresencePenalty, "frequency_penalty": p.FrequencyPenalty,
	}
	set := func(name string, v any, given bool) {
		if given {
			b[name] = v
		}
	}
	switch {
	case q.Chat:
		b["messages"] = []map[string]string{{"role": "user", "content": q.Prompt}}
		set("logprobs", true, q.Logprobs)
		set("top_logprobs", q.Top, q.Logprobs)
	case q.Tokens != nil:
		b["prompt"] = q.Tokens
	default:
		b["prompt"] = q.Prompt
	}
	set("logprobs", q.Top, q.Logprobs && !q.Chat)
	set("echo", true, q.Echo)
	set("n", q.N, q.N > 1)
	set("stop", q.Stop, q.Stop != nil)
	set("stop_token_ids", q.StopIDs, q.StopIDs != nil)
	set("ignore_eos", true, q.IgnoreEOS)
	set("min_tokens", p.MinTokens, p.MinTokens > 0)
	switch q.Format.Kind {
	case constrain.JSON:
		b["response_format"] = map[string]string{"type": "json_object"}
	case constrain.Schema:
		b["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "x", "strict": true, "schema": json.RawMessage(q.Format.Text)}}
	case constrain.Regex:
		b["guided_regex"] = q.Format.Text
	case constrain.GBNF:
		b["structured_outputs"] = map[string]string{"grammar": q.Format.Text}
	}
	if p.LogitBias != nil {
		bias := map[string]float64{}
		for _, x := range p.LogitBias {
			bias[strconv.Itoa(int(x.Token))] = x.By
		}
		b["logit_bias"] = bias
	}
	set("stream", true, w.Stream)
	set("stream_options", map[string]bool{"include_usage": true}, w.Usage)
	set("priority", 1, w.Low)
	set("prediction", map[string]any{"type": "content", "content": w.Predict}, w.Predict != "")
	draft := map[string]any{}
	if w.Method != "" {
		draft["method"] = w.Method
	}
	if w.Off {
		draft["off"] = true
	}
	if w.Nodes > 0 {
		draft["nodes"] = w.Nodes
	}
	if w.Trace {
		draft["trace"] = true
	}
	set("talf", draft, len(draft) > 0)
	body, err := json.Marshal(b)
	if err != nil {
		panic(fmt.Sprintf("servetest: %v", err)) // strings and finite numbers
	}
	return body
}
