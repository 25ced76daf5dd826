package serve

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"talf/internal/wire"
)

// A server on which nothing runs stops at once, whatever connections are open: one on which nothing was asked, one in the middle of
// its headers, and one that was asked and is kept.
func TestAnIdleServerStopsAtOnce(t *testing.T) {
	for _, text := range []string{"", "GET /health HTTP/1.1\r\n", "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			var lan wire.Net
			c := Default()
			c.Names = []string{"tiny"}
			s, err := New(nil, c)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ln, ended := lan.Listen(), make(chan error, 1)
			go func() {
				ended <- s.serve(ctx, ln, Listener{Grace: time.Minute}, &certificate{}, func(string) {})
			}()
			conn, err := lan.Dial(t.Context(), "tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			go drain(conn)
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			begin := time.Now()
			stop()
			if err := <-ended; err != nil || time.Since(begin) > time.Second {
				t.Errorf("after %q: it stopped after %v, %v", text, time.Since(begin), err)
			}
		})
	}
}

func drain(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
