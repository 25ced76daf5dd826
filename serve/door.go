package serve

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"talf/internal/limits"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
)

// A Door is an address that is bound before there is a server behind it: while a model is loaded,
// every request is answered with status 503, and what the load does.
type Door struct {
	ln    *net.TCPListener
	h     *http.Server
	ended chan struct{} // closed when h accepts no more
	now   atomic.Pointer[stage]
}

// A stage is what a load does.
type stage struct {
	Phase   string `json:"phase"`
	Percent int    `json:"percent"`
}

// handed is a listener that a door passes on: closing it only ends waiting.
type handed struct{ *net.TCPListener }

func (h handed) Close() error { return h.SetDeadline(time.Now()) }

// Open binds l's address, or says why it can't, and answers until Run takes the door over, or Close.
// c has the bounds and the log.
func (l *Listener) Open(ctx context.Context, c Config) error {
	shown := &certificate{file: l.Certificate, key: l.Key}
	secure, err := shown.config()
	if err != nil {
		return err
	}
	ln, err := l.listen(ctx)
	if err != nil {
		return err
	}
	d := &Door{ln: ln, ended: make(chan struct{})}
	d.Tell("loading", 0, 0)
	d.h = &http.Server{
		Handler: d, ReadTimeout: c.HeaderTime, WriteTimeout: c.HeaderTime, MaxHeaderBytes: 64 * limits.KiB,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
	}
	d.h.SetKeepAlivesEnabled(false) // the server behind the door has connections of its own
	var on net.Listener = handed{ln}
	if secure != nil {
		on = tls.NewListener(on, secure)
	}
	go func() {
		defer close(d.ended)
		if err := d.h.Serve(on); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
			c.Log.Error("nobody is told that the model is loaded", "error", err)
		}
	}()
	l.door = d
	c.Log.Info("listening; requests are answered once the model is loaded", "address", ln.Addr().String())
	return nil
}

// Bound returns the address of an open door.
func (l *Listener) Bound() string { return l.door.ln.Addr().String() }

// Tell sets the progress of a phase of loading, which responses report; a total of 0 is unknown. It does nothing
// without an open door.
func (l *Listener) Tell(phase string, done, total int64) {
	if l.door != nil {
		l.door.Tell(phase, done, total)
	}
}

// Tell is Listener.Tell.
func (d *Door) Tell(phase string, done, total int64) {
	s := &stage{Phase: phase}
	if total > 0 {
		s.Percent = int(100 * done / total)
	}
	d.now.Store(s)
}

// Close gives the address of an open door back, unless Run has it.
func (l *Listener) Close() error {
	if l.door == nil {
		return nil
	}
	return l.pass().Close()
}

// pass ends the door and returns its listener.
func (l *Listener) pass() *net.TCPListener {
	d := l.door
	l.door = nil
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if d.h.Shutdown(ctx) != nil {
		_ = d.h.Close()
	}
	<-d.ended
	_ = d.ln.SetDeadline(time.Time{}) // it is open
	return d.ln
}

// ServeHTTP refuses a request.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := d.now.Load()
	e := refuse.Unavailable("the model is not ready yet: %s, %d%%", s.Phase, s.Percent)
	e.Code = "loading"
	var body []byte
	if strings.HasPrefix(r.URL.Path, "/v1/messages") {
		body = wire.MessagesError(e, "")
	} else {
		var fields map[string]any
		b, err := json.Marshal(e)
		if err == nil {
			err = json.Unmarshal(b, &fields)
		}
		if err == nil {
			fields["talf"] = s
			body, err = json.Marshal(fields)
		}
		if err != nil {
			http.Error(w, e.Message, e.Status)
			return
		}
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Retry-After", "1")
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // the client may have gone
}

// listen binds the address.
func (l *Listener) listen(ctx context.Context) (*net.TCPListener, error) {
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "tcp", l.Address)
	if err != nil {
		return nil, err // names the address
	}
	t, ok := ln.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("listen at %s: a %T is not of TCP", l.Address, ln)
	}
	return t, nil
}
