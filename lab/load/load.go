// Package load measures servers of OpenAI's API under load, this project's or others': how long
// clients wait, how much all of them get, and what drafting gained. Several servers are measured in
// turn with the same requests at the same times, so that their figures can be compared in pairs.
package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Server is what is measured.
type Server struct {
	Name  string
	URL   string // of the API, such as http://127.0.0.1:8080/v1
	Model string // "" is the first that the server lists
	Key   string // for Authorization: Bearer; "": none
}

// A Prompt is a text to continue, or messages to answer.
type Prompt struct {
	Text     string
	Messages json.RawMessage // nil for a text
}

// A Config says what is sent and when.
type Config struct {
	// Rate is the mean number of requests per second, which arrive independently of each other (a
	// Poisson process) and of the answers: an open loop. With 0, Clients clients send a request as
	// soon as they have the answer to the last: a closed loop.
	Rate    float64 `json:"rate"`
	Clients int     `json:"clients"`
	// Arrivals are the times of an open loop's requests after its beginning, in place of Rate. They
	// are used from the first for every run.
	Arrivals []time.Duration `json:"-"`

	Requests int `json:"requests"` // of a run
	Warmup   int `json:"warmup"`   // requests, one after the other, before each server's first run
	Runs     int `json:"runs"`     // of each server

	MaxTokens   int           `json:"max_tokens"`
	Temperature float64       `json:"temperature"`
	IgnoreEOS   bool          `json:"ignore_eos"` // answers have MaxTokens tokens, if the server knows the field
	Seed        uint64        `json:"seed"`       // of arrivals, the choice of prompts and the requests
	Timeout     time.Duration `json:"timeout_ns"` // of a request

	// Dial makes connections; nil: as net.Dialer does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `json:"-"`

	// What a good answer keeps to, for goodput; 0: no bound.
	TTFT time.Duration `json:"good_ttft_ns"`
	TPOT time.Duration `json:"good_tpot_ns"`
	E2E  time.Duration `json:"good_e2e_ns"`
}

// Default returns a short run of a closed loop with one client.
func Default() Config {
	return Config{Clients: 1, Requests: 100, Warmup: 2, Runs: 3, MaxTokens: 128, Timeout: 2 * time.Minute, TTFT: 500 * time.Millisecond, TPOT: 50 * time.Millisecond}
}

// Validate reports the first field that cannot be used.
func (c *Config) Validate() error {
	switch {
	case !(c.Rate >= 0 && c.Rate <= 1e6):
		return fmt.Errorf("rate is %v requests per second, want 0 to 1e6", c.Rate)
	case c.Rate == 0 && len(c.Arrivals) == 0 && c.Clients < 1:
		return fmt.Errorf("%d clients, want at least 1", c.Clients)
	case c.Requests < 1 || c.Runs < 1 || c.Warmup < 0:
		return fmt.Errorf("%d runs of %d requests after %d for warm-up, want at least 1 of 1 after 0", c.Runs, c.Requests, c.Warmup)
	case len(c.Arrivals) > 0 && len(c.Arrivals) < c.Requests:
		return fmt.Errorf("%d times of arrival for %d requests", len(c.Arrivals), c.Requests)
	case c.MaxTokens < 1:
		return fmt.Errorf("max tokens is %d, want at least 1", c.MaxTokens)
	case c.Timeout <= 0:
		return fmt.Errorf("timeout is %v, want more than 0", c.Timeout)
	}
	return nil
}

// Open reports whether requests arrive whether or not earlier ones were answered.
func (c *Config) Open() bool { return c.Rate > 0 || len(c.Arrivals) > 0 }

// Load says what the load is, such as "4 clients" or "2.5 requests per second".
func (c *Config) Load() string {
	switch {
	case len(c.Arrivals) > 0:
		return "a trace"
	case c.Rate > 0:
		return fmt.Sprintf("%g requests per second", c.Rate)
	case c.Clients == 1:
		return "1 client"
	}
	return fmt.Sprintf("%d clients", c.Clients)
}

// Run measures the servers: the first run of each, then the second of each in the opposite order,
// and so on. It calls step before every run. A server that cannot be reached at all is an error;
// requests that fail are counted.
func (c *Config) Run(ctx context.Context, servers []Server, prompts []Prompt, step func(server string, run int)) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if len(servers) == 0 || len(prompts) == 0 {
		return nil, errors.New("nothing to measure: want a server and a prompt")
	}
	clients := make([]*client, len(servers))
	for i, s := range servers {
		cl, err := dial(ctx, s, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		defer cl.http.CloseIdleConnections()
		clients[i] = cl
	}
	r := &Report{Config: *c}
	for _, cl := range clients {
		r.Servers = append(r.Servers, Result{Name: cl.Name, URL: cl.URL, Model: cl.Model})
	}
	for run := range c.Runs {
		for k := range clients {
			i := k
			if run%2 == 1 { // what changes over time meets all servers alike
				i = len(clients) - 1 - k
			}
			if step(clients[i].Name, run); run == 0 {
				for j := range c.Warmup {
					clients[i].ask(ctx, c.request(prompts, -1, j))
				}
			}
			one, err := c.once(ctx, clients[i], prompts, run)
			if err != nil {
				return nil, err
			}
			r.Servers[i].Runs = append(r.Servers[i].Runs, one)
		}
	}
	r.summarise()
	return r, nil
}

// once is one run of one server. All servers get the same requests at the same times in their run
// of this number.
func (c *Config) once(ctx context.Context, cl *client, prompts []Prompt, run int) (Run, error) {
	before := cl.counters(ctx)
	answers := make([]answer, c.Requests)
	var wg sync.WaitGroup
	begin := time.Now()
	send := func(i int) { answers[i] = cl.ask(ctx, c.request(prompts, run, i)) }
	if c.Open() {
		for i, at := range c.arrivals(run) {
			select {
			case <-time.After(time.Until(begin.Add(at))):
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				break
			}
			wg.Go(func() { send(i) })
		}
	} else {
		next := make(chan int)
		for range min(c.Clients, c.Requests) {
			wg.Go(func() {
				for i := range next {
					send(i)
				}
			})
		}
		for i := 0; i < c.Requests && ctx.Err() == nil; i++ {
			next <- i
		}
		close(next)
	}
	wg.Wait()
	took := time.Since(begin)
	if err := ctx.Err(); err != nil {
		return Run{}, err
	}
	return c.measure(answers, took, cl.counters(ctx).since(before)), nil
}

// arrivals returns when the requests of a run are sent.
func (c *Config) arrivals(run int) []time.Duration {
	if len(c.Arrivals) > 0 {
		return c.Arrivals[:c.Requests]
	}
	rnd := rand.New(rand.NewPCG(c.Seed, uint64(run)))
	at := make([]time.Duration, c.Requests)
	var t float64
	for i := range at {
		at[i] = time.Duration(t * float64(time.Second))
		t += rnd.ExpFloat64() / c.Rate
	}
	return at
}

// request returns the i-th request of a run; the warm-up is run −1. Prompts are taken in order,
// each run going on where the last one ended.
func (c *Config) request(prompts []Prompt, run, i int) request {
	n := c.Warmup + max(run, 0)*c.Requests + i
	if run < 0 {
		n = i
	}
	return request{
		Prompt: prompts[n%len(prompts)], MaxTokens: c.MaxTokens, Temperature: c.Temperature, Seed: int64(c.Seed>>1) + int64(n), IgnoreEOS: c.IgnoreEOS,
	}
}

// newHTTP returns a client of many connections that follows no redirect and uses no proxy: what is
// measured is this server.
func (c *Config) newHTTP() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: c.Dial, MaxIdleConnsPerHost: 4096, MaxIdleConns: 4096, IdleConnTimeout: time.Minute, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Each returns a configuration like c for every load: closed loops of so many clients, or if there
// are rates, open loops of so many requests per second.
func (c Config) Each(clients []int, rates []float64) ([]Config, error) {
	var all []Config
	for _, n := range clients {
		c.Rate, c.Clients = 0, n
		all = append(all, c)
	}
	if len(rates) > 0 {
		all = nil
	}
	for _, r := range rates {
		if c.Rate, c.Clients = r, 0; r == 0 {
			return nil, errors.New("rate is 0 requests per second, want more")
		}
		all = append(all, c)
	}
	for i := range all {
		if err := all[i].Validate(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Message is a prompt of one message of a user's.
func Message(text string) Prompt {
	b, err := json.Marshal([]map[string]string{{"role": "user", "content": text}})
	if err != nil {
		panic("load: " + err.Error()) // strings marshal
	}
	return Prompt{Messages: b}
}
