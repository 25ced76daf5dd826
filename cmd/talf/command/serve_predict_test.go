package command

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
)

// A prediction changes how an answer is drafted, and nothing else.
func TestServeDraftsPredictions(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	url, _ := startServer(t, "--model", dir, "--head", ckpt, "--method", "ar", "--method", "salf:paper,N=12", "--method", "auto", "--budget", "sequence") // drafts whatever they cost
	type response struct {
		Choices []struct {
			Text     string
			Logprobs json.RawMessage
			Talf     struct{ Rounds, Drafted int }
		}
		Usage struct {
			Completion int `json:"completion_tokens"`
			Total      int `json:"total_tokens"`
			Prompt     int `json:"prompt_tokens"`
			Details    *struct {
				Accepted int `json:"accepted_prediction_tokens"`
				Rejected int `json:"rejected_prediction_tokens"`
			} `json:"completion_tokens_details"`
		}
	}
	complete := func(temperature float64, fields string) (r response) {
		t.Helper()
		status, body := ask(t, url+"/completions", fmt.Sprintf(`{"prompt":"The cat","max_tokens":40,"ignore_eos":true,"seed":5,"logprobs":2,"temperature":%v%s}`, temperature, fields))
		if err := json.Unmarshal([]byte(body), &r); err != nil || status != 200 || len(r.Choices) != 1 {
			t.Fatalf("%s: %d, %v: %s", fields, status, err, body)
		}
		return r
	}
	for _, temperature := range []float64{0, 0.8} {
		plain := complete(temperature, `,"talf":{"off":true}`)
		if plain.Usage.Details != nil || plain.Usage.Completion != 40 {
			t.Errorf("without a prediction: %+v", plain.Usage)
		}
		text := plain.Choices[0].Text
		for name, x := range map[string]struct {
			prediction       string
			accepted, rounds int // at least, at most
		}{
			"right": {text, 25, 20}, "wrong": {strings.Repeat("?", 90), 0, 40}, "half": {text[:len(text)/2] + "...", 5, 36},
		} {
			content, err := json.Marshal(x.prediction)
			if err != nil {
				t.Fatal(err)
			}
			for _, method := range []string{"ar", "salf:paper,N=12", "auto"} {
				got := complete(temperature, fmt.Sprintf(`,"talf":{"method":%q},"prediction":{"type":"content","content":%s}`, method, content))
				c, u := got.Choices[0], got.Usage
				if c.Text != text || string(c.Logprobs) != string(plain.Choices[0].Logprobs) {
					t.Errorf("%s, %s, temperature %v: %q, want %q", name, method, temperature, c.Text, text)
				}
				if u.Details == nil || u.Details.Accepted < x.accepted || u.Completion != 40+u.Details.Rejected || u.Total != u.Prompt+u.Completion {
					t.Errorf("%s, %s, temperature %v: %+v, %+v", name, method, temperature, u, u.Details)
				} else if c.Talf.Rounds > x.rounds && method != "auto" { // which drafts as far as that pays here
					t.Errorf("%s, %s, temperature %v: %d rounds, %d accepted", name, method, temperature, c.Talf.Rounds, u.Details.Accepted)
				}
			}
			if off := complete(temperature, fmt.Sprintf(`,"talf":{"off":true},"prediction":{"type":"content","content":%s}`, content)); off.Choices[0].Talf.Drafted != 0 {
				t.Errorf("%s: plain decoding drafted %d tokens", name, off.Choices[0].Talf.Drafted)
			}
		}
	}
	long, _ := json.Marshal(strings.Repeat("The cat sat. ", 500))
	if status, body := ask(t, url+"/completions", `{"prompt":"a","prediction":{"type":"content","content":`+string(long)+`}}`); status != 200 {
		t.Errorf("a prediction longer than the context: %d %s", status, body)
	}
}
