package wire_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"talf/internal/wire"
)

// A server's minute takes a client exactly a minute, and one that never answers is given up at the very end of
// the client's patience.
func TestTimeIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n wire.Net
		var urls []string
		for _, takes := range []time.Duration{time.Minute, 1 << 62} {
			urls = append(urls, n.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-time.After(takes):
					_, _ = io.WriteString(w, r.Host)
				case <-r.Context().Done():
				}
			})))
		}
		c := &http.Client{Transport: &http.Transport{DialContext: n.Dial}, Timeout: time.Hour}
		defer c.CloseIdleConnections()
		for i, want := range []time.Duration{time.Minute, time.Hour} {
			began := time.Now()
			resp, err := c.Get(urls[i])
			if took := time.Since(began); took != want || (err == nil) != (i == 0) || i == 1 && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v after %v, want %v", err, took, want)
			}
			if err == nil {
				b, err := io.ReadAll(resp.Body)
				if err != nil || "http://"+string(b) != urls[i] {
					t.Errorf("%q, %v", b, err)
				}
				_ = resp.Body.Close()
			}
		}
	})
}
