package wire

import (
	"fmt"

	"talf/serve/wire/refuse"
)

// A File is a text that stands before the one that is asked for, for what it tells of it.
type File struct{ Name, Text string }

// maxFiles bounds input_extra.
const maxFiles = 1024

// parseInfill reads the body of POST /infill, as llama.cpp's server does.
func parseInfill(body []byte) (*Request, *refuse.Error) {
	o := open("", body)
	r := o.shared(maxTemperature)
	o.untraced(r)
	r.Stop = o.stops("stop")
	p := Prompt{Infill: true, Text: o.need("input_prefix"), Suffix: o.need("input_suffix")}
	p.Text += o.text("prompt") // what stands before the answer, and is no part of it
	for i, e := range o.list("input_extra", maxFiles) {
		f := open(fmt.Sprintf("input_extra[%d]", i), e)
		p.Files = append(p.Files, File{Name: f.text("filename"), Text: f.need("text")})
		if o.take(f); o.err != nil {
			break
		}
	}
	r.Prompts = []Prompt{p}
	if v, ok := o.has("n_predict"); ok && string(v) == "0" {
		r.NoAnswer = true // the prompt is read, for a request that begins with the same
	} else {
		o.length("n_predict", &r.MaxTokens)
	}
	return o.done(r)
}

// infills writes llama.cpp's answers: objects without choices.
type infills struct {
	*Head
	end Choice
}

func newInfills(h *Head, _ *Request) Writer { return &infills{Head: h} }

// An infill is an answer, or a part of one.
type infill struct {
	Index   int    `json:"index"`
	Content string `json:"content"`
	Stop    bool   `json:"stop"` // the whole answer, or its end
	*infillEnd
}

type infillEnd struct {
	Model     string    `json:"model"`
	Predicted int       `json:"tokens_predicted"`
	Evaluated int       `json:"tokens_evaluated"` // of the prompt
	Cached    int       `json:"tokens_cached"`
	Truncated bool      `json:"truncated"` // never: what is too long is refused
	StopType  string    `json:"stop_type"` // eos, limit or word
	Word      string    `json:"stopping_word"`
	Drafting  *Drafting `json:"talf,omitempty"`
}

func (w *infills) ended(c *Choice, u Usage) *infillEnd {
	e := &infillEnd{Model: w.Model, Predicted: u.Answer, Evaluated: u.Prompt, Cached: u.Cached, StopType: "eos", Word: c.Stopped, Drafting: c.Drafting}
	switch {
	case c.Finish == Length:
		e.StopType = "limit"
	case c.Stopped != "":
		e.StopType = "word"
	}
	return e
}

func (w *infills) Whole(cs []Choice, u Usage) []byte {
	return must(infill{Content: cs[0].Text, Stop: true, infillEnd: w.ended(&cs[0], u)})
}

func (w *infills) Begin([]Choice, Usage) []byte { return nil }

// Part keeps the end for the usage that comes with it.
func (w *infills) Part(c Choice) []byte {
	if c.Finish != "" {
		w.end = c
		return nil
	}
	return Event(must(infill{Content: c.Text}))
}

// End ends without [DONE].
func (w *infills) End(u Usage) []byte {
	return Event(must(infill{Stop: true, infillEnd: w.ended(&w.end, u)}))
}

func (w *infills) Fail(e *refuse.Error) []byte { return ErrorEvent(e) }

func (w *infills) Ping() []byte { return []byte(ping) }
