package serve_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/internal/e2e/servetest"
	"talf/internal/e2e/talftest"
)

// infillMarks gives a model tokens of fill-in-the-middle, which are those of words, and returns them: of what is before, after
// and in the middle. A server of the model is at url.
func infillMarks(t *testing.T, dir, url string) []int32 {
	t.Helper()
	path := filepath.Join(dir, "tokenizer_config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := json.Unmarshal(b, &config); err != nil {
		t.Fatal(err)
	}
	_, _, pieces := do(t, "POST", url+"/tokenize", `{"prompt":"there was a cat","add_special_tokens":false,"return_token_strs":true}`)
	marks := decode[struct {
		Tokens []int32
		Pieces []string `json:"token_strs"`
	}](t, []byte(pieces))
	for i, key := range []string{"prefix_token", "suffix_token", "middle_token"} {
		config[key] = marks.Pieces[i]
	}
	if b, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return marks.Tokens
}

// A completion with a suffix is that of the tokens of fill-in-the-middle; a model without them ignores it, and says so.
func TestSuffixesAreWrittenUpTo(t *testing.T) {
	dir := talftest.ChatModel(t)
	parts := servetest.Default()
	ask := func(url, body string) (text string, raw string) {
		t.Helper()
		status, _, b := do(t, "POST", url+"/v1/completions", `{"max_tokens":12,"temperature":0.8,"seed":5,"ignore_eos":true,`+body+`}`)
		if status != 200 {
			t.Fatalf("%s: %d %s", body, status, b)
		}
		return decode[chatAnswer](t, []byte(b)).Choices[0].Text, b
	}
	tokens := func(url, text string) []int32 {
		t.Helper()
		_, _, b := do(t, "POST", url+"/tokenize", fmt.Sprintf(`{"prompt":%q,"add_special_tokens":false}`, text))
		return decode[struct{ Tokens []int32 }](t, []byte(b)).Tokens
	}
	plain := servetest.Start(t, servetest.Setup{Dir: dir, Parts: parts}).URL
	without, _ := ask(plain, `"prompt":"Once upon"`)
	if text, b := ask(plain, `"prompt":"Once upon","suffix":" a time"`); text != without || !strings.Contains(b, `"ignored":["suffix"]`) {
		t.Errorf("a model without tokens for it: %s, want %q", b, without)
	}

	m := infillMarks(t, dir, plain)
	url := servetest.Start(t, servetest.Setup{Dir: dir, Parts: parts}).URL
	_, _, with := do(t, "POST", url+"/tokenize", `{"prompt":"Once upon"}`)
	before := decode[struct{ Tokens []int32 }](t, []byte(with)).Tokens
	before = before[:len(before)-len(tokens(url, "Once upon"))]
	inner := slices.Concat(m[:1], tokens(url, "Once upon"), m[1:2], tokens(url, " a time"), m[2:3])
	for body, ids := range map[string][]int32{
		`"prompt":"Once upon","suffix":" a time"`:                            slices.Concat(before, inner),
		`"prompt":"Once upon","suffix":" a time","add_special_tokens":false`: inner,
		`"prompt":"","suffix":" a time"`:                                     slices.Concat(before, m[:2], tokens(url, " a time"), m[2:3]),

		fmt.Sprintf(`"prompt":%s,"suffix":" a time"`, strings.ReplaceAll(fmt.Sprint(tokens(url, "Once upon")), " ", ",")): slices.Concat(before, inner),
	} {
		list, err := json.Marshal(ids)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := ask(url, fmt.Sprintf(`"prompt":%s`, list))
		if text, b := ask(url, body); text != want || text == "" || strings.Contains(b, "ignored") {
			t.Errorf("%s: %s, want %q", body, b, want)
		}
	}
	if text, b := ask(url, `"prompt":"Once upon","suffix":""`); text != without || strings.Contains(b, "ignored") {
		t.Errorf("an empty suffix: %s, want %q", b, without)
	}
	for body, param := range map[string]string{`"prompt":"a","suffix":7`: "suffix", `"prompt":"a","suffix":"b","echo":true`: "suffix"} {
		if status, _, b := do(t, "POST", url+"/v1/completions", `{`+body+`}`); status != 400 || !strings.Contains(b, `"param":"`+param+`"`) {
			t.Errorf("%s: %d %s", body, status, b)
		}
	}
}

// What stands between two texts is that of the tokens of fill-in-the-middle, with files before them if the model has tokens for
// these, as llama.cpp writes prompts; a model without tokens for it refuses.
func TestInfillAsksAsLlamaCppDoes(t *testing.T) {
	dir := talftest.ChatModel(t)
	parts := servetest.Default()
	plain := servetest.Start(t, servetest.Setup{Dir: dir, Parts: parts}).URL
	if status, _, b := do(t, "POST", plain+"/infill", `{"input_prefix":"Once","input_suffix":"time"}`); status != 400 || !strings.Contains(b, "no tokens for fill-in-the-middle") {
		t.Errorf("a model without tokens for it: %d %s", status, b)
	}
	marks := infillMarks(t, dir, plain)
	url := servetest.Start(t, servetest.Setup{Dir: dir, Parts: parts}).URL
	tokens := func(text string, special bool) []int32 {
		t.Helper()
		_, _, b := do(t, "POST", url+"/tokenize", fmt.Sprintf(`{"prompt":%q,"add_special_tokens":%v}`, text, special))
		return decode[struct{ Tokens []int32 }](t, []byte(b)).Tokens
	}
	text := func(s string) []int32 { return tokens(s, false) }
	with := tokens("Once upon", true)
	before := with[:len(with)-len(text("Once upon"))]
	type answer struct {
		Content, Model  string
		Stop            bool
		Predicted       int    `json:"tokens_predicted"`
		Evaluated       int    `json:"tokens_evaluated"`
		Type            string `json:"stop_type"`
		Word            string `json:"stopping_word"`
		Talf            struct{ Ignored []string }
		Finish, Choices any
	}
	const same = `"temperature":0.8,"seed":5,"ignore_eos":true`
	for body, ids := range map[string][]int32{
		`"input_prefix":"Once","input_suffix":" a time","prompt":" upon"`:                               slices.Concat(before, marks[:1], text("Once upon"), marks[1:2], text(" a time"), marks[2:3]),
		`"input_prefix":"","input_suffix":""`:                                                           slices.Concat(before, marks[:3]),
		`"input_prefix":"a","input_suffix":"","input_extra":[{"filename":"b","text":"c"},{"text":"d"}]`: slices.Concat(before, text("c"), text("d"), marks[:1], text("a"), marks[1:3]),
	} {
		list, err := json.Marshal(ids)
		if err != nil {
			t.Fatal(err)
		}
		_, _, b := do(t, "POST", url+"/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":12,%s}`, list, same))
		want := decode[chatAnswer](t, []byte(b)).Choices[0].Text
		status, _, b := do(t, "POST", url+"/infill", `{`+body+`,"n_predict":12,"samplers":["top_k"],`+same+`}`)
		got := decode[answer](t, []byte(b))
		if status != 200 || got.Content != want || want == "" || !got.Stop || got.Predicted != 12 || got.Evaluated != len(ids) || got.Type != "limit" || !slices.Equal(got.Talf.Ignored, []string{"samplers"}) || got.Choices != nil {
			t.Errorf("%s: %d %s, want %q of %d tokens", body, status, b, want, len(ids))
		}
		_, _, b = do(t, "POST", url+"/infill", `{`+body+`,"n_predict":12,"stream":true,`+same+`}`)
		streamed, ends := "", 0
		for line := range strings.SplitSeq(strings.TrimSpace(b), "\n\n") {
			part := decode[answer](t, []byte(strings.TrimPrefix(line, "data: ")))
			streamed += part.Content
			if part.Stop {
				if ends++; part.Predicted != 12 || part.Evaluated != len(ids) || part.Type != "limit" {
					t.Errorf("the end of a stream: %s", line)
				}
			}
		}
		if streamed != want || ends != 1 {
			t.Errorf("streamed: %s, want %q and one end", b, want)
		}
	}
	const ask = `{"input_prefix":"Once","input_suffix":"time"`
	if _, _, b := do(t, "POST", url+"/infill", ask+`,"n_predict":0}`); decode[answer](t, []byte(b)).Content != "" || decode[answer](t, []byte(b)).Predicted != 0 {
		t.Errorf("nothing was asked for: %s", b)
	}
	_, _, b := do(t, "POST", url+"/infill", ask+`,"n_predict":12,`+same+`}`)
	stop := decode[answer](t, []byte(b)).Content
	stop = stop[len(stop)/2 : len(stop)/2+1]
	_, _, b = do(t, "POST", url+"/infill", ask+fmt.Sprintf(`,"n_predict":12,"stop":[%q],`, stop)+same+`}`)
	if got := decode[answer](t, []byte(b)); got.Type != "word" || got.Word != stop || strings.Contains(got.Content, stop) {
		t.Errorf("stopped at %q: %s", stop, b)
	}
	for body, param := range map[string]string{
		`{"input_suffix":"a"}`: "input_prefix", `{"input_prefix":"a"}`: "input_suffix", ask + `,"prompt":["a"]}`: "prompt",
		ask + `,"input_extra":{}}`: "input_extra", ask + `,"input_extra":[{"filename":"a"}]}`: "input_extra[0].text",
	} {
		if status, _, b := do(t, "POST", url+"/infill", body); status != 400 || !strings.Contains(b, `"param":"`+param+`"`) {
			t.Errorf("%s: %d %s", body, status, b)
		}
	}
}

// best_of makes more answers than it gives, and gives those that the model finds likeliest by token.
func TestTheBestAnswersAreGiven(t *testing.T) {
	url := servetest.Start(t, servetest.Setup{Dir: talftest.ChatModel(t), Parts: servetest.Default()}).URL
	type answer struct {
		Choices []struct {
			Index    int
			Text     string
			Logprobs *struct {
				Values []float64 `json:"token_logprobs"`
			}
		}
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
	}
	ask := func(body string) answer {
		t.Helper()
		status, _, b := do(t, "POST", url+"/v1/completions", `{"prompt":["Once upon","There was"],"max_tokens":12,"temperature":1.2,"seed":5,"ignore_eos":true,`+body+`}`)
		if status != 200 {
			t.Fatalf("%s: %d %s", body, status, b)
		}
		return decode[answer](t, []byte(b))
	}
	all := ask(`"n":5,"logprobs":0`)
	best := ask(`"n":2,"best_of":5`)
	if len(best.Choices) != 4 || best.Usage != all.Usage || len(all.Choices) != 10 {
		t.Fatalf("%+v of %+v", best, all)
	}
	for prompt := range 2 {
		of := all.Choices[5*prompt : 5*prompt+5]
		mean := func(i int) (sum float64) {
			for _, v := range of[i].Logprobs.Values {
				sum += v
			}
			return sum / float64(len(of[i].Logprobs.Values))
		}
		order := []int{0, 1, 2, 3, 4}
		slices.SortFunc(order, func(a, b int) int {
			if mean(a) > mean(b) {
				return -1
			}
			return 1
		})
		for k := range 2 {
			if got := best.Choices[2*prompt+k]; got.Text != of[order[k]].Text || got.Index != 2*prompt+k || got.Logprobs != nil {
				t.Errorf("answer %d to prompt %d is %+v, want %q", k, prompt, got, of[order[k]].Text)
			}
		}
	}
	if with := ask(`"n":1,"best_of":5,"logprobs":0`); with.Choices[0].Text != best.Choices[0].Text || len(with.Choices[0].Logprobs.Values) != 12 {
		t.Errorf("%+v, want %+v first", with, best.Choices[0])
	}
	if one := ask(`"n":2,"best_of":2`); len(one.Choices) != 4 || one.Choices[0].Text != all.Choices[0].Text {
		t.Errorf("%+v", one)
	}
	for _, body := range []string{`"n":3,"best_of":2`, `"best_of":2,"stream":true`, `"best_of":129`, `"best_of":"2"`} {
		if status, _, b := do(t, "POST", url+"/v1/completions", `{"prompt":"a",`+body+`}`); status != 400 || !strings.Contains(b, `"param":"best_of"`) {
			t.Errorf("%s: %d %s", body, status, b)
		}
	}
}
