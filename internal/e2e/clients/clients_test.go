package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"talf/cmd/talf/command"
	"talf/infer/decode"
	"talf/internal/demo"
	"talf/internal/e2e/talftest"
)

var installed = flag.String("clients", "", "directory that the step clients of .ci/run installed clients to")

func TestMain(m *testing.M) { talftest.Main(m, command.Run) }

// A client is a program that checks a server.
type client struct {
	name    string
	dir     string   // where it is installed, below -clients
	command []string // {} is the directory of the sources, <> that of -clients
	env     string   // which tells it where it is installed
	checks  []string
}

var all = []client{
	{"openai (Python)", "python", []string{"python3", "{}/python/with_openai.py"}, "PYTHONPATH=<>/python", []string{
		"models", "chat", "stream", "stream helper", "logprobs", "n", "stop", "prediction", "completions", "echo", "responses", "parse", "tools", "bad request",
		"wrong key", "not found", "busy",
	}},
	{"anthropic (Python)", "python", []string{"python3", "{}/python/with_anthropic.py"}, "PYTHONPATH=<>/python", []string{
		"messages", "stream", "stop", "count tokens", "parse", "tools", "bad request", "wrong key", "busy",
	}},
	{"llm", "python", []string{"python3", "{}/python/with_llm.py"}, "PYTHONPATH=<>/python", []string{"chat", "stream", "completions", "log"}},
	{"openai (Node)", "node", []string{"node", "<>/node/openai.mjs"}, "", []string{
		"models", "chat", "stream", "stream helper", "logprobs", "n", "stop", "completions", "responses", "parse", "tools", "bad request", "wrong key",
		"not found", "busy",
	}},
	{"@ai-sdk/openai-compatible", "node", []string{"node", "<>/node/aisdk.mjs"}, "", []string{
		"chat", "stream", "stop", "completions", "object", "tools", "bad request", "wrong key", "busy",
	}},
	{"openai-go", "official", []string{"<>/official"}, "", []string{
		"models", "chat", "stream", "logprobs", "n", "stop", "completions", "responses", "bad request", "wrong key", "not found", "busy",
	}},
	{"go-openai", "sashabaranov", []string{"<>/sashabaranov"}, "", []string{
		"models", "chat", "stream", "logprobs", "stop", "completions", "bad request", "wrong key", "not found", "busy",
	}},
	{"langchain-openai", "langchain", []string{"python3", "{}/python/with_langchain.py"}, "PYTHONPATH=<>/langchain", []string{
		"chat", "stream", "logprobs", "stop", "batch", "completions", "structured output", "tools", "bad request",
	}},
	{"instructor", "instructor", []string{"python3", "{}/python/with_instructor.py"}, "PYTHONPATH=<>/instructor", []string{"JSON Schema", "tools", "partial"}},
	{"pydantic-ai", "pydantic-ai", []string{"python3", "{}/python/with_pydantic_ai.py"}, "PYTHONPATH=<>/pydantic-ai", []string{"chat", "responses", "tools"}},
	{"litellm", "litellm", []string{"python3", "{}/python/with_litellm.py"}, "PYTHONPATH=<>/litellm", []string{
		"chat", "stream", "logprobs", "completions", "bad request", "wrong key", "busy",
	}},
}

// A plan says what to ask, and what the answers are.
type plan struct {
	Base        string   `json:"base"` // of a server that answers
	Busy        string   `json:"busy"` // of one that is nearly always full
	Key         string   `json:"key"`
	Model       string   `json:"model"`
	Prompt      string   `json:"prompt"`
	MaxTokens   int      `json:"max_tokens"`
	Text        string   `json:"text"` // at temperature 0
	Stop        string   `json:"stop"`
	Stopped     string   `json:"stopped"` // the text before Stop
	Temperature float64  `json:"temperature"`
	Seed        uint64   `json:"seed"`
	Sampled     []string `json:"sampled"` // at the temperature, of the seed
}

// template makes a conversation of one message its text, so that every route is asked the prompt
// that generate is asked. Of tools it says what they do, in few tokens; calls are as Hermes's.
const template = `{{ bos_token }}{% for t in tools or [] %}{{ t.function.description }} {% endfor %}{% for m in messages %}{{ m['content'] or '' }}` +
	`{% for c in m['tool_calls'] or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endfor %}`

// patience is how long a client may take. Its server is there for all of them, one after the other.
const patience = 3 * time.Minute

// contextLength is that of the model, in tokens. Prompts that explain formats are longer than the
// stories that it has learnt.
const contextLength = 2048

// A world is the demo model with what talf generate says about a prompt.
type world struct {
	model, template, keys string
	plan
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{model: filepath.Join(dir, "demo"), template: filepath.Join(dir, "template.jinja"), keys: filepath.Join(dir, "keys")}
	if err := demo.Unpack(w.model); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(w.model, "config.json")
	b, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, config, regexp.MustCompile(`("max_position_embeddings": *)\d+`).ReplaceAllString(string(b), fmt.Sprintf("${1}%d", contextLength)))
	talftest.Write(t, w.template, template)
	w.plan = plan{Key: "sk-secret", Model: "demo", Prompt: demo.Prompts(11, 1)[0], MaxTokens: 48, Temperature: 0.8, Seed: 5}
	talftest.Write(t, w.keys, w.Key+"\n")
	generate := func(temperature float64, seed uint64) string {
		t.Helper()
		var got decode.Answer
		out := talftest.OK(t, "", "generate", "--model", w.model, "--prompt", w.Prompt, "--max-tokens", fmt.Sprint(w.MaxTokens), "--json",
			"--temperature", fmt.Sprint(temperature), "--seed", fmt.Sprint(seed))
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return got.Text
	}
	w.Text = generate(0, 1)
	half := strings.Fields(w.Text[len(w.Text)/2:])
	w.Stop = half[1]
	w.Stopped, _, _ = strings.Cut(w.Text, w.Stop)
	for i := range 2 {
		w.Sampled = append(w.Sampled, generate(w.Temperature, decode.Seed(w.Seed, i)))
	}
	if w.Stopped == "" || w.Sampled[0] == w.Sampled[1] || w.Sampled[0] == w.Text {
		t.Fatalf("the demo model gives %q and %q, which tell little", w.Text, w.Sampled)
	}
	return w
}

// serve runs talf serve until the test ends and returns the URL of its API.
func (w *world) serve(t *testing.T, args ...string) string {
	t.Helper()
	within := time.Duration(len(all)+1) * patience // llm-comply asks, too
	c := talftest.CommandWithin(t, within, append([]string{
		"serve", "--model", w.model, "--listen", "127.0.0.1:0", "--served-model-name", w.Model, "--api-key-file", w.keys, "--chat-template", w.template,
	}, args...)...)
	log, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		if err := c.Wait(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	address := regexp.MustCompile(`http://[0-9.:]+/v1`)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if url := address.FindString(lines.Text()); url != "" {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return url
		}
	}
	t.Fatal("talf serve ended")
	return ""
}

// crowd returns a URL of the server at url, which is nearly always full to whoever asks there.
func (w *world) crowd(t *testing.T, url string) string {
	t.Helper()
	to, err := neturl.Parse(strings.TrimSuffix(url, "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	var asked atomic.Int64 // when, last
	pass := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked.Store(time.Now().UnixNano())
		pass.ServeHTTP(rw, r)
	}))
	t.Cleanup(front.Close)
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	body := fmt.Sprintf(`{"prompt":%q,"max_tokens":400,"ignore_eos":true,"temperature":1}`, w.Prompt)
	for range 6 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if time.Since(time.Unix(0, asked.Load())) > time.Second { // the machine is for others
					pause(10 * time.Millisecond)
					continue
				}
				r, err := http.NewRequestWithContext(ctx, "POST", url+"/completions", strings.NewReader(body))
				if err != nil {
					return
				}
				r.Header.Set("Authorization", "Bearer "+w.Key)
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests {
					pause(20 * time.Millisecond)
				}
			}
		})
	}
	return front.URL + "/v1"
}

// run runs a client and returns what it says of every check: "" if nothing is wrong.
func (c *client) run(t *testing.T, p *plan) map[string]string {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	talftest.Write(t, file, string(raw))
	out, err := c.start(t, file)
	if err != nil {
		t.Fatalf("%s: %v\n%s", c.name, err, out)
	}
	got := map[string]string{}
	for line := range bytes.Lines(out) {
		var report struct {
			Check string
			Error *string
		}
		if err := json.Unmarshal(line, &report); err != nil || report.Check == "" {
			t.Fatalf("%s says %q: %v", c.name, line, err)
		}
		got[report.Check] = ""
		if report.Error != nil {
			got[report.Check] = *report.Error
		}
	}
	for _, name := range c.checks {
		if _, ok := got[name]; !ok {
			t.Errorf("%s has not checked %q", c.name, name)
		}
	}
	if len(got) > len(c.checks) {
		t.Errorf("%s has %d checks, want %d", c.name, len(got), len(c.checks))
	}
	return got
}

// start runs a client's program to its end and returns what it printed.
func (c *client) start(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	there, err := filepath.Abs(*installed)
	if err != nil {
		t.Fatal(err)
	}
	places := strings.NewReplacer("{}", here, "<>", there)
	var all []string
	for _, a := range c.command[1:] {
		all = append(all, places.Replace(a))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, places.Replace(c.command[0]), append(all, args...)...)
	cmd.Env = append(os.Environ(), "NO_PROXY=127.0.0.1", places.Replace(c.env))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		out = append(out, errs.Bytes()...)
	}
	return out, err
}

// present returns the clients that are installed.
func present(t *testing.T) []client {
	t.Helper()
	if *installed == "" {
		t.Skip("clients of other languages are installed by the step clients of .ci/run")
	}
	there := slices.DeleteFunc(slices.Clone(all), func(c client) bool {
		_, err := os.Stat(filepath.Join(*installed, c.dir))
		return errors.Is(err, os.ErrNotExist)
	})
	if len(there) == 0 {
		t.Fatalf("%s has no clients", *installed)
	}
	return there
}

// Every client gets the text of talf generate on every route, and errors of its own types.
func TestClientsGetTheTextOfGenerate(t *testing.T) {
	there := present(t)
	w := newWorld(t)
	w.Base = w.serve(t)
	w.Busy = w.crowd(t, w.serve(t, "--max-running", "1", "--max-queue", "1"))
	for _, c := range there {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			for name, wrong := range c.run(t, &w.plan) {
				if wrong != "" {
					t.Errorf("%s: %s", name, wrong)
				}
			}
			t.Logf("%d checks in %.1f s", len(c.checks), time.Since(began).Seconds())
		})
	}
	t.Run("llm-comply", func(t *testing.T) {
		c := client{command: []string{"python3", "{}/comply/comply.py"}, env: "PYTHONPATH=<>/comply"}
		if out, err := c.start(t, w.Base, w.Model, w.Key); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
