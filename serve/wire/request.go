package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"talf/model/sample"
	"talf/serve/wire/refuse"
)

// ParseChat reads the body of POST /v1/chat/completions.
func ParseChat(body []byte) (*Request, *refuse.Error) {
	o := open("", body)
	r := o.common()
	r.Prompts = []Prompt{o.conversation()}
	r.Prompts[0].Special = o.optionalBoolean("add_special_tokens")
	o.length("n_predict", &r.MaxTokens) // llama.cpp's
	o.length("max_tokens", &r.MaxTokens)
	o.length("max_completion_tokens", &r.MaxTokens) // the newer name wins
	r.Logprobs = o.boolean("logprobs")
	if n, ok := o.integer("top_logprobs", 0, maxTop); ok {
		if r.Top = int(n); n > 0 && !r.Logprobs {
			o.fail("top_logprobs", "is %d without logprobs, want \"logprobs\": true", n)
		}
	}
	o.refuse("audio", "this server writes text only")
	o.refuse("modalities", "this server writes text only", `["text"]`)
	o.refuse("web_search_options", "this server does not search")
	o.rendering()
	r.Prompts[0].Tools = o.tools()
	return o.done(r)
}

// ParseCompletion reads the body of POST /v1/completions.
func ParseCompletion(body []byte) (*Request, *refuse.Error) {
	o := open("", body)
	r := o.common()
	r.Prompts = o.prompts()
	special := o.optionalBoolean("add_special_tokens")
	for i := range r.Prompts {
		r.Prompts[i].Special = special
	}
	r.MaxTokens = 16 // OpenAI's default
	r.Echo = o.boolean("echo")
	if v, ok := o.has("max_tokens"); ok && string(v) == "0" && r.Echo {
		r.NoAnswer = true
	} else {
		o.length("n_predict", &r.MaxTokens) // llama.cpp's
		o.length("max_tokens", &r.MaxTokens)
	}
	if n, ok := o.integer("logprobs", 0, maxTop); ok {
		r.Logprobs, r.Top = true, int(n)
	}
	if suffix := o.text("suffix"); suffix != "" {
		if r.Echo {
			o.unsupported("suffix", "is given beside \"echo\": true, which repeats the prompt alone")
		}
		for i := range r.Prompts {
			r.Prompts[i].Suffix = suffix
		}
	}
	if n, ok := o.integer("best_of", 1, MaxChoices); ok && n != int64(r.N) {
		if r.BestOf = int(n); n < int64(r.N) {
			o.fail("best_of", "is %d, want at least the %d answers of n", n, r.N)
		}
		if r.Stream {
			o.unsupported("best_of", "is more than n beside \"stream\": true: which answers are best is known at their end")
		}
	}
	return o.done(r)
}

// length reads the most tokens of an answer. -1 is llama.cpp's word for as many as there is room for.
func (o *object) length(name string, to *int) {
	n, ok := o.integer(name, -1, math.MaxInt32)
	if ok && n == 0 {
		o.fail(name, "is 0, want at least 1, or -1 for as many as there is room for")
	} else if ok {
		*to = int(max(n, 0))
	}
}

// done ends the reading of a request, with what is between its fields. What nothing has asked for is ignored, and the answer says so.
func (o *object) done(r *Request) (*Request, *refuse.Error) {
	if r.MaxTokens > 0 && r.Sample.MinTokens > r.MaxTokens {
		o.fail("min_tokens", "is %d, want at most the %d that the answer may have", r.Sample.MinTokens, r.MaxTokens)
	}
	r.Ignored = append(r.Ignored, o.unread()...)
	for i, name := range r.Ignored {
		if len(name) > maxIgnoredBytes {
			r.Ignored[i] = strings.ToValidUTF8(name[:maxIgnoredBytes], "") + "…"
		}
	}
	if len(r.Ignored) > maxIgnored {
		r.Ignored = append(r.Ignored[:maxIgnored:maxIgnored], "…")
	}
	return r, o.err
}

// Of the names of fields that are ignored, an answer has so many of so many bytes: clients choose them.
const (
	maxIgnored      = 32
	maxIgnoredBytes = 64
)

// common reads the fields that chat and completions have in common.
func (o *object) common() *Request {
	r := o.shared(maxTemperature)
	if n, ok := o.integer("n", 1, MaxChoices); ok {
		r.N = int(n)
	}
	r.Stop = o.stops("stop")
	if s := o.object("stream_options"); s != nil {
		if r.Usage = s.boolean("include_usage"); !r.Stream {
			o.fail("stream_options", "is given without \"stream\": true")
		}
		o.take(s)
	}
	if f := o.object("response_format"); f != nil {
		f.format(&r.Format, "json_schema")
		o.take(f)
	}
	return r
}

// stops reads texts that end an answer.
func (o *object) stops(name string) []string {
	texts := o.texts(name, maxStops)
	for i, s := range texts {
		if s == "" || len(s) > maxStopBytes {
			o.fail(name, "text %d has %d bytes, want 1 to %d", i, len(s), maxStopBytes)
		}
	}
	return texts
}

// shared reads the fields that are the same in every dialect, vLLM's additions included. hottest
// is the highest temperature.
func (o *object) shared(hottest float64) *Request {
	r := &Request{Model: o.text("model"), N: 1, Sample: sample.Default()}
	o.sampling(&r.Sample, hottest)
	if n, ok := o.integer("seed", math.MinInt64, math.MaxInt64); ok {
		seed := uint64(n)
		r.Seed = &seed
	}
	var err error
	if r.StopIDs, err = ids(o.list("stop_token_ids", maxStopIDs)); err != nil {
		o.fail("stop_token_ids", "%v", err)
	}
	r.IgnoreEOS = o.boolean("ignore_eos")
	r.Stream = o.boolean("stream")
	if n, ok := o.integer("priority", math.MinInt32, math.MaxInt32); ok {
		r.Priority = int(n)
	}
	if d := o.object("talf"); d != nil {
		r.Draft = Draft{Method: d.text("method"), Off: d.boolean("off"), Trace: d.boolean("trace")}
		if n, ok := d.integer("nodes", 1, math.MaxInt32); ok {
			r.Draft.Nodes = int(n)
		}
		if r.Draft.Trace && !r.Stream {
			d.fail("trace", "is true without \"stream\": true")
		}
		o.take(d)
		r.Ignored = d.unread()
	}
	r.Prediction = o.prediction()
	o.guided(&r.Format)
	if n, ok := o.integer("min_tokens", 0, math.MaxInt32); ok {
		r.Sample.MinTokens = int(n)
	}
	o.refuse("use_beam_search", "this server does not search with beams")
	o.additions()
	o.refuse("allowed_token_ids", "this server does not restrict tokens")
	o.refuse("bad_words", "this server does not restrict words")
	o.refuse("prompt_logprobs", "this server gives the logprobs of a prompt to completions with \"echo\" and \"logprobs\"")
	return r
}

func (o *object) sampling(p *sample.Params, hottest float64) {
	o.float("temperature", &p.Temperature, 0, hottest)
	o.float("top_p", &p.TopP, 0, 1)
	if v, ok := o.has("top_p"); ok && p.TopP == 0 {
		o.fail("top_p", "is %s, want more than 0", v)
	}
	if k, ok := o.integer("top_k", -1, math.MaxInt32); ok {
		p.TopK = int(max(k, 0)) // -1: all
	}
	o.float("min_p", &p.MinP, 0, 1)
	o.float("presence_penalty", &p.PresencePenalty, -2, 2)
	o.float("frequency_penalty", &p.FrequencyPenalty, -2, 2)
	o.float("repetition_penalty", &p.RepetitionPenalty, 0.01, 100)
	bias := o.object("logit_bias")
	if bias == nil {
		return
	}
	if len(bias.fields) > maxBiases {
		o.fail("logit_bias", "has %d tokens, want at most %d", len(bias.fields), maxBiases)
	}
	for key := range bias.fields {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 || strconv.FormatInt(id, 10) != key { // "01" and "1" would be one token
			bias.fail(key, "is no token id")
			break
		}
		var by float64
		if bias.float(key, &by, -100, 100); by != 0 {
			p.LogitBias = append(p.LogitBias, sample.Bias{Token: int32(id), By: by})
		}
	}
	slices.SortFunc(p.LogitBias, func(a, b sample.Bias) int { return int(a.Token) - int(b.Token) })
	o.take(bias)
}

// untraced refuses traces in a dialect whose streams have no place for them.
func (o *object) untraced(r *Request) {
	if r.Draft.Trace {
		o.unsupported("talf.trace", "is true: only streams of chat and completions have rounds")
	}
}

// prediction reads OpenAI's predicted output: a text, or parts of one.
func (o *object) prediction() string {
	p := o.object("prediction")
	if p == nil {
		return ""
	}
	defer o.take(p)
	if t := p.text("type"); p.err == nil && t != "content" {
		p.fail("type", "is %q, want \"content\"", t)
	}
	v, ok := p.has("content")
	switch {
	case p.err == nil && !ok:
		p.fail("content", "is missing, want a text or a list of parts")
	case ok && v[0] == '"':
		return p.text("content")
	}
	var b strings.Builder
	for i, e := range p.list("content", maxMessages) {
		part := open(fmt.Sprintf("%scontent[%d]", p.at, i), e)
		if t := part.text("type"); part.err == nil && t != "text" {
			part.fail("type", "is %q, want \"text\"", t)
		}
		b.WriteString(part.text("text"))
		if p.take(part); p.err != nil {
			break
		}
	}
	return b.String()
}

// prompts reads a text, a list of texts, a list of token ids or a list of such lists.
func (o *object) prompts() []Prompt {
	v, ok := o.has("prompt")
	switch {
	case !ok:
		o.fail("prompt", "is missing")
		return nil
	case v[0] == '"':
		return []Prompt{{Text: o.text("prompt")}}
	}
	all := o.list("prompt", maxPromptList)
	if o.err != nil {
		return nil
	}
	if len(all) == 0 {
		o.fail("prompt", "is empty, want a text or token ids")
		return nil
	}
	if c := all[0][0]; c != '"' && c != '[' { // a single list of ids
		tokens, err := ids(all)
		if err != nil {
			o.fail("prompt", "%v", err)
		}
		return []Prompt{{Tokens: tokens}}
	}
	if len(all) > maxPrompts {
		o.fail("prompt", "has %d prompts, want at most %d", len(all), maxPrompts)
		return nil
	}
	out := make([]Prompt, len(all))
	for i, e := range all {
		var err error
		if out[i], err = prompt(e); err != nil {
			o.fail(fmt.Sprintf("prompt[%d]", i), "%v", err)
			return nil
		}
	}
	return out
}

func prompt(v json.RawMessage) (p Prompt, err error) {
	if v[0] == '"' {
		return p, json.Unmarshal(v, &p.Text)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(v, &list); err != nil || len(list) == 0 {
		return p, errors.New("is " + kind(v) + ", want a text or token ids")
	}
	p.Tokens, err = ids(list)
	return p, err
}

// additions refuses those of vLLM's fields that would change the answer.
func (o *object) additions() {
	o.refuse("truncate_prompt_tokens", "this server does not shorten prompts")
	o.refuse("include_stop_str_in_output", "this server ends an answer before the stop text")
	if skip := o.optionalBoolean("skip_special_tokens"); skip != nil && !*skip {
		o.unsupported("skip_special_tokens", "is false: this server's answers have no special tokens")
	}
	o.refuse("return_token_ids", "this server returns texts, and token ids at /tokenize alone")
	o.refuse("return_tokens_as_token_ids", "this server returns texts, and token ids at /tokenize alone")
	o.refuse("logits_processors", "this server runs no code of clients")
	o.refuse("cache_salt", "this server keeps the cached prompts of API keys apart, and of nothing else")
	o.refuse("lora_request", "this server has one model")
}

// rendering refuses what changes how a conversation is written.
func (o *object) rendering() {
	o.refuse("chat_template", "this server writes conversations with the model's template")
	o.refuse("documents", "this server gives a template messages alone")
	o.refuse("echo", "this server does not repeat messages")
}

// ParseTokenize reads the body of POST /tokenize: "prompt", or "messages" for the chat template.
// spelled asks for the tokens as the vocabulary has them.
func ParseTokenize(body []byte) (p *Prompt, spelled bool, _ *refuse.Error) {
	o := open("", body)
	p = &Prompt{}
	if _, ok := o.has("messages"); ok {
		*p = o.conversation()
		o.rendering()
		p.Tools = o.tools()
	} else if ps := o.prompts(); o.err == nil {
		if p = &ps[0]; len(ps) != 1 || p.Tokens != nil {
			o.fail("prompt", "want one text")
		}
	}
	p.Special = o.optionalBoolean("add_special_tokens")
	return p, o.boolean("return_token_strs"), o.err
}

// ParseDetokenize reads the body of POST /detokenize: "tokens".
func ParseDetokenize(body []byte) ([]int32, *refuse.Error) {
	o := open("", body)
	if _, ok := o.has("tokens"); !ok {
		o.fail("tokens", "is missing")
	}
	tokens, err := ids(o.list("tokens", maxPromptList))
	if err != nil {
		o.fail("tokens", "%v", err)
	}
	return tokens, o.err
}
