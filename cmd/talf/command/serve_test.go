package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"talf/infer/trace"
	"talf/internal/e2e/talftest"
)

// startServer runs talf serve until the test ends, and returns the URL of its API.
func startServer(t *testing.T, args ...string) (url string, log *talftest.Log) {
	t.Helper()
	log = &talftest.Log{}
	a := &app{out: io.Discard, err: log}
	root := newRoot(a)
	root.SetArgs(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v\n%s", err, log)
		}
	})
	at := regexp.MustCompile(`http://[0-9.:]+/v1`)
	for range 3000 {
		if url := at.FindString(log.String()); url != "" {
			return url, log
		}
		select {
		case err := <-done:
			done <- nil
			t.Fatalf("serve: %v\n%s", err, log)
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatalf("no address: %s", log)
	return "", nil
}

func ask(t *testing.T, url, body string) (status int, answer string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// Answers are those of generate, whatever drafts them and however many there are at once.
func TestServeAnswersAsGenerate(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	type question struct {
		prompt      string
		temperature float64
		seed        int
		want        string
	}
	var qs []question
	for i, p := range []string{"Once upon a time", "Once upon a", "The cat", "Once upon a time there was"} {
		q := question{prompt: p, temperature: float64(i%2) * 0.8, seed: 3 + i}
		q.want = talftest.OK(t, "", "generate", "--model", dir, "--prompt", p, "--max-tokens", "24", "--ignore-eos",
			"--temperature", fmt.Sprint(q.temperature), "--seed", fmt.Sprint(q.seed))
		qs = append(qs, q)
	}
	url, _ := startServer(t, "--model", dir, "--head", ckpt, "--method", "auto", "--method", "salf:paper,N=12", "--method", "goose:N=8", "--max-running", "5", "--served-model-name", "tiny")
	methods := []string{`{}`, `{"method":"salf:paper,N=12"}`, `{"method":"goose:N=8"}`, `{"off":true}`, `{"nodes":2}`}
	logged := make([]string, len(qs))
	var mu sync.Mutex // of logged
	var wg sync.WaitGroup
	for i := range 60 {
		q := &qs[i%len(qs)]
		method := methods[i/len(qs)%len(methods)]
		wg.Go(func() {
			status, body := ask(t, url+"/completions", fmt.Sprintf(
				`{"prompt":%q,"max_tokens":24,"ignore_eos":true,"temperature":%v,"seed":%d,"talf":%s,"logprobs":2}`, q.prompt, q.temperature, q.seed, method))
			var got struct {
				Choices []struct {
					Text     string
					Logprobs json.RawMessage
					Finish   string `json:"finish_reason"`
					Talf     struct {
						Method  string
						Rounds  int
						Drafted int
					}
				}
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || len(got.Choices) != 1 {
				t.Errorf("%d, %v: %s", status, err, body)
				return
			}
			c := got.Choices[0]
			if c.Text+"\n" != q.want || c.Finish != "length" || c.Talf.Rounds == 0 || c.Talf.Rounds > 24 {
				t.Errorf("%s: %q, want %q: %s", method, c.Text, q.want, body)
			}
			if method == `{"off":true}` && (c.Talf.Method != "ar" || c.Talf.Rounds != 24) {
				t.Errorf("plain decoding: %s", body)
			}
			if method == `{"nodes":2}` && c.Talf.Drafted > c.Talf.Rounds {
				t.Errorf("trees of more than two nodes: %s", body)
			}
			// Log probabilities are the same bits, too.
			mu.Lock()
			defer mu.Unlock()
			if l := &logged[i%len(qs)]; *l == "" {
				*l = string(c.Logprobs)
			} else if *l != string(c.Logprobs) {
				t.Errorf("%s: log probabilities %s, otherwise %s", method, c.Logprobs, *l)
			}
		})
	}
	wg.Wait()
	if status, body := ask(t, url+"/completions", `{"prompt":"a","talf":{"method":"rest:/etc/passwd"}}`); status != 400 || !strings.Contains(body, "talf.method") {
		t.Errorf("a method that is not offered: %d %s", status, body)
	}
	if status, body := ask(t, url+"/completions", `{"prompt":"a","logit_bias":{"100000":1}}`); status != 400 || !strings.Contains(body, "logit_bias.100000") {
		t.Errorf("a bias of no token: %d %s", status, body)
	}
	status, body := ask(t, url+"/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":4,"stream":true,"stream_options":{"include_usage":true}}`)
	if status != 200 || !strings.HasSuffix(body, "data: [DONE]\n\n") || !strings.Contains(body, `"prompt_tokens":`) || strings.Contains(body, "error") {
		t.Errorf("%d %s", status, body)
	}
	_, biased := ask(t, url+"/completions", `{"prompt":"a","max_tokens":3,"temperature":0,"logit_bias":{"65":100},"ignore_eos":true,"logprobs":0}`)
	if strings.Count(biased, `"tokens":["`) != 1 {
		t.Errorf("%s", biased)
	}
}

// A trace changes nothing of an answer, and its accepted paths spell it.
func TestServeTracesRounds(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	url, _ := startServer(t, "--model", dir, "--head", ckpt, "--method", "salf:paper,N=12", "--method", "goose:N=8", "--budget", "sequence")
	for i, method := range []string{"salf:paper,N=12", "goose:N=8", "ar", "salf:paper,N=12"} {
		temperature := []float64{0, 0, 0, 0.8}[i]
		body := fmt.Sprintf(`{"prompt":"Once upon a time","max_tokens":40,"ignore_eos":true,"temperature":%v,"seed":4,"stream":true,"stream_options":{"include_usage":true},"talf":{"method":%q`, temperature, method)
		type stream struct {
			text   string
			tokens int
			rounds int
			tau    float64
			file   bytes.Buffer // as a trace file
		}
		read := func(body string) *stream {
			_, all := ask(t, url+"/completions", body)
			s := &stream{}
			s.file.WriteString(`{"talf_trace":1}` + "\n")
			for line := range strings.SplitSeq(all, "\n") {
				var event struct {
					Choices []struct {
						Text string
						Talf struct {
							Number int
							Round  json.RawMessage
							Rounds int
							Tau    float64
							Drop   int `json:"trace_dropped"`
						}
					}
					Usage struct {
						Tokens int `json:"completion_tokens"`
					}
				}
				data, ok := strings.CutPrefix(line, "data: {")
				if !ok {
					continue
				}
				if err := json.Unmarshal([]byte("{"+data), &event); err != nil {
					t.Fatalf("%v: %s", err, data)
				}
				s.tokens += event.Usage.Tokens
				for _, c := range event.Choices {
					s.text += c.Text
					if c.Talf.Round != nil {
						s.rounds++
						s.file.Write(append(c.Talf.Round, '\n'))
						if c.Talf.Number != s.rounds {
							t.Errorf("%s: round %d after %d", method, c.Talf.Number, s.rounds-1)
						}
					}
					if c.Talf.Rounds > 0 {
						s.tau = c.Talf.Tau
						if s.rounds > 0 && (c.Talf.Rounds != s.rounds || c.Talf.Drop != 0) {
							t.Errorf("%s: %d rounds, want %d: %s", method, s.rounds, c.Talf.Rounds, data)
						}
					}
				}
			}
			return s
		}
		plain, traced := read(body+`}}`), read(body+`,"trace":true}}`)
		if plain.text != traced.text || plain.text == "" || plain.tau != traced.tau || plain.rounds != 0 || traced.rounds == 0 {
			t.Errorf("%s: %q in %d rounds, traced %q in %d", method, plain.text, plain.rounds, traced.text, traced.rounds)
		}
		var ids []int32
		var spelt strings.Builder
		deepest := 0
		_, err := trace.Read(&traced.file, func(s *trace.Step) error {
			for i := 1; i <= s.Kept; i++ {
				x := s.Next
				if i < len(s.Path) {
					x = s.Nodes[s.Path[i]].Token
				}
				ids = append(ids, x.ID)
				spelt.WriteString(x.Text)
			}
			deepest = max(deepest, len(s.Nodes))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		list, err := json.Marshal(ids)
		if err != nil {
			t.Fatal(err)
		}
		_, decoded := ask(t, strings.TrimSuffix(url, "/v1")+"/detokenize", fmt.Sprintf(`{"tokens":%s}`, list))
		var got struct{ Prompt string }
		if err := json.Unmarshal([]byte(decoded), &got); err != nil || got.Prompt != traced.text || len(ids) != 40 || traced.tokens != 40 {
			t.Errorf("%s: the rounds have %q of %d tokens, the answer is %q of %d: %v", method, got.Prompt, len(ids), traced.text, traced.tokens, err)
		}
		if !strings.ContainsRune(spelt.String(), '\uFFFD') && spelt.String() != traced.text {
			t.Errorf("%s: the rounds spell %q, the answer is %q", method, spelt.String(), traced.text)
		}
		if (method == "ar") != (deepest == 1) {
			t.Errorf("%s: the largest tree has %d nodes", method, deepest)
		}
	}
}

// Tools that know vLLM's metrics find the acceptance of drafts in ours.
func TestServeMeasuresAcceptance(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	url, _ := startServer(t, "--model", dir, "--method", "goose:N=8", "--budget", "sequence") // drafts whatever they cost
	for range 4 {
		if status, answer := ask(t, url+"/completions", `{"prompt":"a a a a a a a a a a a a","max_tokens":24,"temperature":0}`); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, answer)
		}
	}
	resp, err := http.Get(strings.TrimSuffix(url, "/v1") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`vllm:num_requests_running{engine="0",model_name=`, `talf_rounds_total{engine="0",method="goose:N=8",model_name=`, "go_goroutines", `vllm:kv_cache_usage_perc{`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	counted := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^vllm:spec_decode_num_(\w+)_total\{[^}]*\} (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		counted[m[1]], _ = strconv.ParseFloat(m[2], 64)
	}
	if drafts, drafted, accepted := counted["drafts"], counted["draft_tokens"], counted["accepted_tokens"]; drafts == 0 || drafted < drafts || accepted == 0 || accepted > drafted {
		t.Errorf("%v drafts of %v tokens, %v accepted", drafts, drafted, accepted)
	}
}

// Rounds show drafts, which must not be what the requests of another key have taught.
func TestServeTracesNoOtherKeysTokens(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	t.Setenv(keyVariable, "secret")
	url, _ := startServer(t, "--model", dir, "--method", "recycle", "--method", "recycle:table=keep", "--method", "suffix:table=keep")
	for method, want := range map[string]int{"recycle": http.StatusOK, "recycle:table=keep": http.StatusBadRequest, "suffix:table=keep": http.StatusBadRequest} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/completions", strings.NewReader(fmt.Sprintf(
			`{"prompt":"a","max_tokens":4,"ignore_eos":true,"stream":true,"talf":{"trace":true,"method":%q}}`, method)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer secret")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if body := string(b); resp.StatusCode != want || strings.Contains(body, `"round":`) != (want == http.StatusOK) || strings.Contains(body, `"param":"talf.trace"`) == (want == http.StatusOK) {
			t.Errorf("%s: %d %s", method, resp.StatusCode, body)
		}
	}
}

func TestServeRefusesWhatItCannotDo(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	empty := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	unknown, wrong := filepath.Join(t.TempDir(), "a.yaml"), filepath.Join(t.TempDir(), "b.yaml")
	talftest.Write(t, unknown, "model: x\nmax-runing: 4\n")
	talftest.Write(t, wrong, "max-running: many\n")
	strange := talftest.TinyHead(t, talftest.TinyModel(t, talftest.TinyConfig(), 2), 1)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, ExitUsage, "--model"},
		{[]string{"--model", dir, "--head", strange}, ExitFailure, "trained for another target"},
		{[]string{"--config", unknown}, ExitUsage, "a.yaml:2: max-runing: no such option"},
		{[]string{"--config", wrong}, ExitUsage, "b.yaml:1: max-running"},
		{[]string{"--config", empty}, ExitUsage, "--model"},
		{[]string{"--config", dir}, ExitFailure, "not a regular file"},
		{[]string{"--model", dir, "--listen", "0.0.0.0:0"}, ExitUsage, "--api-key-file"},
		{[]string{"--model", dir, "--tls-cert", "x"}, ExitUsage, "belong together"},
		{[]string{"--model", dir, "--listen", "nonsense"}, ExitUsage, `--listen is "nonsense", want HOST:PORT`},
		{[]string{"--model", dir, "--listen", "127.0.0.1:99999"}, ExitUsage, `--listen is "127.0.0.1:99999", want HOST:PORT`},
		{[]string{"--model", dir, "--listen", taken.Addr().String()}, ExitFailure, taken.Addr().String()},
		{[]string{"--model", dir, "--max-running", "0"}, ExitUsage, "--max-running is 0, want at least 1"},
		{[]string{"--model", dir, "--max-queue", "-1"}, ExitUsage, `--max-queue is "-1"`},
		{[]string{"--model", dir, "--max-time", "-1s"}, ExitUsage, `--max-time is "-1s"`},
		{[]string{"--model", dir, "--method", "nonsense"}, ExitUsage, "nonsense"},
		{[]string{"--model", "none", "--tool-format", "xml"}, ExitUsage, `"xml" is no format of calls, want one of deepseek, `},
		{[]string{"--model", dir, "--tool-format", "harmony"}, ExitUsage, "writes no channels"},
		{[]string{"--model", dir, "--method", "salf"}, ExitUsage, "draft model"},
		{[]string{"--model", dir, "--api-key-file", empty}, ExitFailure, "no keys"},
		{[]string{"--model", dir, "--api-key-file", "none"}, ExitFailure, "API keys: open none"},
		{[]string{"--model", "none", "--tls-cert", empty, "--tls-key", empty}, ExitFailure, "certificate"}, // before the model
	} {
		talftest.Run(t, "", append([]string{"serve"}, c.args...)...).Refuses(t, c.code, c.want)
	}
}

// A port that is taken is told before the model is loaded.
func TestATakenPortIsRefusedBeforeTheLoad(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	r := talftest.Run(t, "", "serve", dir, "--listen", ln.Addr().String(), "-v")
	r.Refuses(t, ExitFailure, ln.Addr().String(), "address already in use")
	if strings.Contains(r.Err, "loaded") {
		t.Errorf("the model was loaded first:\n%s", r.Err)
	}
}
