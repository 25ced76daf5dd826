package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/e2e/talftest"
	"talf/lab/load"
)

func TestLoadComparesServers(t *testing.T) {
	var bodies []string
	var mu sync.Mutex
	var gone atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/chat/completions" && !gone.Load() {
			b, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			bodies = append(bodies, r.Header.Get("Authorization")+string(b))
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n")
			return
		}
		http.NotFound(w, r)
	}))
	defer s.Close()
	dir := t.TempDir()
	prompts, key, out := filepath.Join(dir, "p.jsonl"), filepath.Join(dir, "key"), filepath.Join(dir, "out.json")
	for path, text := range map[string]string{prompts: "{\"question\":\"one\"}\n{\"question\":\"two\"}\n", key: "secret\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{
		"load", "--url", "a=" + s.URL + "/v1", "--url", "b=" + s.URL + "/v1", "--model", "m", "--chat", "--prompts", prompts, "--template", "Q: {question}",
		"--api-key-file", key, "--requests", "4", "--runs", "2", "--warmup", "0", "--out", out, "--plot", filepath.Join(dir, "x.svg"),
	}
	text := talftest.OK(t, "", append(args, "--clients", "1,2", "--markdown")...)
	if strings.Count(text, "| a | 8 | 0 |") != 2 || strings.Count(text, "| b | 8 | 0 |") != 2 {
		t.Errorf("%s", text)
	}
	if len(bodies) != 32 || !strings.HasPrefix(bodies[0], "Bearer secret{") || !strings.Contains(bodies[0], `"messages":[{"content":"Q: one","role":"user"}]`) {
		t.Errorf("%d requests, the first %s", len(bodies), bodies[0])
	}
	var rs []load.Report
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &rs); err != nil || len(rs) != 2 || rs[1].Config.Clients != 2 || rs[1].Servers[1].Throughput == nil || rs[0].Machine == "" {
		t.Errorf("%v: %s", err, b)
	}
	gone.Store(true)
	talftest.Run(t, "", args...).Refuses(t, command.ExitFailure, "a, 1 client: no answer from "+s.URL+"/v1: 404: 8")
	talftest.Run(t, "", "load", "--prompts", prompts).Refuses(t, command.ExitUsage, "missing --url")
	for want, more := range map[string][]string{
		"rate":      {"--rate", "0"},
		"clients":   {"--clients", "0"},
		"--url":     {"--url", "a=x"},
		"NAME=URL":  {"--url", "=x"},
		"not exist": {"--api-key-file", "none"},
	} {
		code := command.ExitUsage
		if want == "not exist" {
			want, code = "none", command.ExitFailure
		}
		talftest.Run(t, "", append(args[:len(args):len(args)], more...)...).Refuses(t, code, want)
	}
}
