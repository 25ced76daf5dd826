package serve_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"talf/infer"
	"talf/serve"
	"talf/serve/wire/refuse"
)

// A crowded core has places for most answers at once.
type crowded struct {
	*core
	most int
}

func (c crowded) Submit(ctx context.Context, j serve.Job) (serve.Answer, *refuse.Error) {
	runtime.Gosched() // another request comes in between
	if c.open() >= c.most {
		return nil, refuse.Busy("full")
	}
	return c.core.Submit(ctx, j)
}

// Of two requests for most of the queue, one is answered.
func TestRequestsOfSeveralAnswersDoNotRefuseEachOther(t *testing.T) {
	const n = 100
	for range 20 {
		c := crowded{&core{words: []string{"x"}, end: infer.EOS, hold: make(chan struct{})}, 3 * n / 2}
		_, url := start(t, c, nil)
		statuses := make(chan int, 2)
		for range 2 {
			go func() {
				resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt":"a","n":%d}`, n)))
				if err != nil {
					t.Error(err)
					statuses <- 0
					return
				}
				_ = resp.Body.Close()
				statuses <- resp.StatusCode
			}()
		}
		if status := <-statuses; status != http.StatusTooManyRequests { // the other one holds its places
			t.Fatalf("status %d, want 429", status)
		}
		close(c.hold)
		if status := <-statuses; status != http.StatusOK {
			t.Fatalf("status %d: both were refused", status)
		}
	}
}
