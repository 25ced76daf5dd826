package remote

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"talf/internal/leak"
	"talf/preprocess"
)

// Environment variables that make the test binary ask questions instead of running tests.
const (
	childURL = "TALF_TEST_URL"
	childDir = "TALF_TEST_DIR"
)

const questions = 40

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(leak.Main(m.Run))
}

func child() error {
	c := Default()
	c.URL, c.Model, c.Dir = os.Getenv(childURL), "m", os.Getenv(childDir)
	a, err := New(context.Background(), c)
	if err != nil {
		return err
	}
	for i := range questions {
		got, err := a.Answer(context.Background(), &preprocess.Question{Text: fmt.Sprint("question ", i)})
		if want := fmt.Sprintf("question %d!", i); err != nil || got.Text != want {
			return fmt.Errorf("%q, %w: want %q", got.Text, err, want)
		}
	}
	return a.Close()
}

// A process that is killed asks again for the one answer that it waited for, and for no other.
func TestKilledProcessesKeepTheirAnswers(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	hold, held := make(chan struct{}), make(chan struct{})
	url, calls := serve(t, func(n int, c *call, w http.ResponseWriter) {
		if n%10 == 0 {
			held <- struct{}{}
			<-hold
			return
		}
		completion(w, fmt.Sprint(c.Body["prompt"], "!"))
	})
	dir := t.TempDir()
	runs := 0
	for ended := false; !ended; runs++ {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childURL+"="+url, childDir+"="+dir)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			ended = true
		case <-held: // it waits for an answer, and has kept all others
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-done
			hold <- struct{}{}
		case <-time.After(9 * time.Minute):
			t.Fatal("no question for nine minutes")
		}
	}
	asked := map[any]int{}
	for _, c := range calls() {
		asked[c.Body["prompt"]]++
	}
	if len(calls()) != questions+runs-1 || len(asked) != questions || runs != 5 {
		t.Errorf("%d requests for %d questions in %d runs, want one more for each kill: %v", len(calls()), len(asked), runs, asked)
	}
	b, err := os.ReadFile(filepath.Join(dir, "answers.jsonl"))
	if n := strings.Count(string(b), "\n"); err != nil || n != questions+1 {
		t.Errorf("%d lines, %v; want %d answers after a header", n, err, questions)
	}
}
