package serve_test

import (
	"strings"
	"sync"
	"testing"

	"talf/infer"
	"talf/infer/loop"
	"talf/internal/await"
	"talf/serve"
)

// A paced core has a pace that a test sets.
type paced struct {
	*core
	mu   sync.Mutex
	pace loop.Pace
}

func (c *paced) Stats() loop.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return loop.Stats{Running: 1, Waiting: 2, Pace: c.pace}
}

func (c *paced) set(p loop.Pace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pace = p
}

var _ serve.Measured = (*paced)(nil)

func TestTheAlarmIsALineAChange(t *testing.T) {
	c := &paced{core: &core{words: []string{"x"}, end: infer.EOS}}
	url, log := startLogged(t, c, nil)
	const (
		on  = `"msg":"drafting is slower than plain decoding`
		off = `"msg":"drafting is no longer slower`
	)
	// until asks, as clients do, until the log has n lines of the alarm.
	until := func(n int) string {
		t.Helper()
		await.Until(t, "a line of the alarm", func() bool {
			do(t, "POST", url+"/v1/completions", `{"prompt":"a"}`)
			return strings.Count(log.String(), on)+strings.Count(log.String(), off) >= n
		})
		return log.String()
	}
	if _, _, body := do(t, "GET", url+"/ready", ""); body != `{"status":"ready","running":1,"waiting":2}` {
		t.Errorf("nothing is measured: %s", body)
	}
	c.set(loop.Pace{Tau: 1.104, Even: 1.5, Drafted: 0.9, Losing: true})
	text := until(1)
	if !strings.Contains(text, `"tau":1.1,"even_at":1.5,"drafted":0.9`) {
		t.Errorf("%s", text)
	}
	if status, _, body := do(t, "GET", url+"/ready", ""); status != 200 ||
		!strings.Contains(body, `"drafting":{"tau":1.1,"even_at":1.5,"drafted":0.9,"speedup":0.74,"alarm":"drafting is slower than plain decoding"}`) {
		t.Errorf("%d %s", status, body)
	}
	c.set(loop.Pace{Tau: 3, Even: 1.5, Drafted: 0.9})
	if text = until(2); strings.Count(text, on) != 1 || strings.Count(text, off) != 1 {
		t.Errorf("%s", text)
	}
	if _, _, body := do(t, "GET", url+"/ready", ""); !strings.Contains(body, `"speedup":2}`) {
		t.Errorf("%s", body)
	}
}
