package e2e

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"talf/internal/await"
	"talf/internal/demo"
	"talf/internal/e2e/servetest"
	"talf/internal/e2e/talftest"
)

// A served is a process of talf serve.
type served struct {
	url   string
	cmd   *exec.Cmd
	log   *talftest.Log
	ended chan error
}

var servedAt = regexp.MustCompile(`http://([0-9.]+:[0-9]+)/v1`)

// serveProcess starts talf serve and waits until it takes requests.
func serveProcess(t *testing.T, listen string, args ...string) *served {
	t.Helper()
	s := &served{log: &talftest.Log{}, ended: make(chan error, 1)}
	s.cmd = talftest.Command(t, append([]string{"serve", "--listen", listen, "--served-model-name", "tiny", "--threads", "1"}, args...)...)
	s.cmd.Stderr = s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	for {
		if m := servedAt.FindStringSubmatch(s.log.String()); m != nil {
			s.url = "http://" + m[1]
			return s
		}
		select {
		case err := <-s.ended:
			t.Fatalf("talf serve: %v\n%s", err, s.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *served) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// code waits for the process and returns its exit code, −1 if a signal ended it.
func (s *served) code() int {
	<-s.ended
	return s.cmd.ProcessState.ExitCode()
}

// An exam is a question with its answer.
type exam struct {
	q    servetest.Question
	want *servetest.Answer
}

func exams(t *testing.T, dir string, n, maxTokens int) (all []exam) {
	t.Helper()
	o := servetest.NewOracle(t, dir)
	for i, prompt := range demo.Prompts(11, n) {
		q := servetest.Easy(prompt, maxTokens)
		q.IgnoreEOS, q.Chat, q.Seed = true, i%2 == 0, uint64(i)
		q.Sample.Temperature = float64(i % 3 / 2)
		want, err := o.Answer(t.Context(), &q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, exam{q, want})
	}
	return all
}

// A server that is killed again and again, while its clients try again, gives wrong answers to
// nobody: each gets its own in the end, and what it read before was the beginning of it.
func TestServeIsKilled(t *testing.T) {
	talftest.Interrupts(t)
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	head := talftest.TinyHead(t, dir, 1)
	all := exams(t, dir, 8, 100)
	args := []string{"--model", dir, "--head", head, "--method", "salf:paper,N=12", "--method", "goose:N=8", "--max-running", "4"}
	s := serveProcess(t, "127.0.0.1:0", args...)
	address := strings.TrimPrefix(s.url, "http://")
	client := servetest.NewClient(t, 8)
	var answered, broken atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for c := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 5))
			for ctx.Err() == nil {
				x := &all[rng.IntN(len(all))]
				w := servetest.Way{Stream: rng.IntN(2) == 0, Method: []string{"salf:paper,N=12", "goose:N=8"}[rng.IntN(2)]}
				w.Usage = w.Stream
				got, err := servetest.Ask(context.Background(), client, s.url, &x.q, w)
				switch {
				case err == nil:
					answered.Add(1)
				default:
					var r *servetest.Refusal
					if errors.As(err, &r) && r.Status != http.StatusServiceUnavailable { // as one that still loads answers
						t.Errorf("a response of %v", err)
					}
					if broken.Add(1); got == nil {
						time.Sleep(5 * time.Millisecond) // nobody is there
						continue
					}
				}
				if d := servetest.Differ(got, x.want, &w); d != "" {
					t.Error(d)
				}
			}
		})
	}
	for range 3 {
		before := answered.Load()
		await.Until(t, "six answers", func() bool { return answered.Load() >= before+6 })
		s.signal(t, syscall.SIGKILL)
		if s.code() != -1 {
			t.Errorf("exit code %d", s.cmd.ProcessState.ExitCode())
		}
		next := serveProcess(t, address, args...) // the port is free at once
		if next.url != s.url {
			t.Fatalf("%s, want %s", next.url, s.url)
		}
		s.cmd, s.ended, s.log = next.cmd, next.ended, next.log
	}
	before := answered.Load()
	await.Until(t, "six answers", func() bool { return answered.Load() >= before+6 })
	cancel()
	wg.Wait()
	t.Logf("%d answers, %d broken off or refused by the system", answered.Load(), broken.Load())
	if broken.Load() == 0 {
		t.Error("nobody noticed")
	}
}

// A server that is asked to stop under load answers whoever it let in, and refuses the others.
func TestServeDrains(t *testing.T) {
	talftest.Interrupts(t)
	conf := talftest.TinyConfig()
	conf.MaxPos = 1 << 20
	dir := talftest.TinyModel(t, conf, 1)
	all := exams(t, dir, 6, 150)
	s := serveProcess(t, "127.0.0.1:0", "--model", dir, "--method", "goose:N=8", "--max-running", "2", "--grace", "1h", "--max-time", "0")
	client := servetest.NewClient(t, 32)
	// One answer goes on until somebody has come while the server stops.
	endless := servetest.Easy("Once upon a time", 1<<20-100)
	endless.IgnoreEOS = true
	held, release := context.WithCancel(t.Context())
	defer release()
	ended := make(chan error, 1)
	go func() {
		_, err := servetest.Ask(held, client, s.url, &endless, servetest.Way{Stream: true})
		ended <- err
	}()
	running := regexp.MustCompile(`(?m)^vllm:num_requests_running\{.*\} 1$`)
	await.Until(t, "the endless request", func() bool { return running.MatchString(get(t, client, s.url+"/metrics")) })
	var answered, refused, unreachable atomic.Int64
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := c; ; i++ {
				x := &all[i%len(all)]
				w := servetest.Way{Stream: i%2 == 0, Usage: i%2 == 0}
				got, err := servetest.Ask(context.Background(), client, s.url, &x.q, w)
				var r *servetest.Refusal
				switch {
				case err == nil:
					answered.Add(1)
					if d := servetest.Differ(got, x.want, &w); d != "" {
						t.Error(d)
					}
					continue
				case errors.As(err, &r):
					if refused.Add(1); r.Status != http.StatusServiceUnavailable || r.Shape() != "" {
						t.Errorf("%v %s", err, r.Shape())
					}
					continue
				case got != nil && !got.Whole && got.ID != "":
					t.Errorf("an answer was lost: %v", err)
				default:
					unreachable.Add(1)
				}
				return
			}
		})
	}
	await.Until(t, "four answers", func() bool { return answered.Load() >= 4 })
	s.signal(t, syscall.SIGTERM)
	await.Until(t, "somebody to come while the server stops", func() bool { return refused.Load() > 0 })
	release()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the endless answer: %v", err)
	}
	wg.Wait()
	if code := s.code(); code != 0 {
		t.Errorf("exit code %d, want 0: %s", code, s.log)
	}
	t.Logf("%d answered, %d refused with status 503, then %d clients found nobody", answered.Load(), refused.Load(), unreachable.Load())
}

// What does not end within the grace period is cut off with a word, and a second signal waits for
// nothing.
func TestServeStopsInTheEnd(t *testing.T) {
	talftest.Interrupts(t)
	conf := talftest.TinyConfig()
	conf.MaxPos = 1 << 20
	dir := talftest.TinyModel(t, conf, 1)
	endless := servetest.Easy("Once upon a time", 1<<20-100) // for hours
	endless.IgnoreEOS = true
	for _, twice := range []bool{false, true} {
		grace := "1s"
		if twice {
			grace = "1h"
		}
		s := serveProcess(t, "127.0.0.1:0", "--model", dir, "--method", "goose:N=8", "--grace", grace, "--max-time", "0")
		client := servetest.NewClient(t, 2)
		got := make(chan error, 2)
		for _, stream := range []bool{true, false} {
			go func() {
				_, err := servetest.Ask(context.Background(), client, s.url, &endless, servetest.Way{Stream: stream})
				got <- err
			}()
		}
		running := regexp.MustCompile(`(?m)^vllm:num_requests_running\{.*\} 2$`)
		await.Until(t, "two requests", func() bool { return running.MatchString(get(t, client, s.url+"/metrics")) })
		s.signal(t, syscall.SIGTERM)
		if twice {
			await.Until(t, "the word that it stops", func() bool { return strings.Contains(s.log.String(), "stopping") })
			s.signal(t, syscall.SIGTERM)
		}
		if code := s.code(); code != 130 {
			t.Errorf("exit code %d, want 130: %s", code, s.log)
		}
		for range 2 {
			err := <-got
			var event *servetest.StreamError
			var r *servetest.Refusal
			switch {
			case twice:
				if err == nil {
					t.Error("an answer without end has one")
				}
			case errors.As(err, &event) && strings.Contains(event.Message, "stops"):
			case errors.As(err, &r) && r.Status == http.StatusServiceUnavailable && r.Shape() == "":
			default:
				t.Errorf("%v, want an error that says that the server stops", err)
			}
		}
	}
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
