package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"talf/internal/limits"
	"talf/serve/wire/refuse"
)

// A Listener says how a server is reached.
type Listener struct {
	Address string // host:port
	// Certificate and Key are files of PEM; both or neither.
	Certificate, Key string
	// Grace is how long requests may go on once the server is to stop.
	Grace time.Duration
	// Reload asks, with every value, to read the files of keys and of the certificate again; nil:
	// never. What cannot be read stays as it was.
	Reload <-chan struct{}

	door *Door // nil: there is none; Run binds Address
}

// A certificate is the one that a server shows, which can be exchanged while it runs.
type certificate struct {
	file, key string
	pair      atomic.Pointer[tls.Certificate]
}

// mostPEM bounds a file of PEM: a long chain of certificates takes some 20 KB.
const mostPEM = limits.MiB

func (c *certificate) load() error {
	pair, err := func() (tls.Certificate, error) {
		cert, err := limits.ReadFile(c.file, mostPEM)
		if err != nil {
			return tls.Certificate{}, err
		}
		key, err := limits.ReadFile(c.key, mostPEM)
		if err != nil {
			return tls.Certificate{}, err
		}
		return tls.X509KeyPair(cert, key)
	}()
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", c.file, c.key, err)
	}
	c.pair.Store(&pair)
	return nil
}

// config returns what TLS needs to show the certificate; nil if there is none.
func (c *certificate) config() (*tls.Config, error) {
	if c.file == "" && c.key == "" {
		return nil, nil
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil },
	}, c.load()
}

// CheckCertificate returns why the certificate, if there is one, cannot be used.
func (l *Listener) CheckCertificate() error {
	if l.Certificate == "" && l.Key == "" {
		return nil
	}
	return (&certificate{file: l.Certificate, key: l.Key}).load()
}

// reload reads what may change while the server runs.
func (s *Server) reload(c *certificate) {
	say := func(what string, err error) {
		if err != nil {
			s.c.Log.Error("cannot reload; the old stays", "what", what, "error", err)
		} else {
			s.c.Log.Info("reloaded", "what", what)
		}
	}
	if s.c.Keys != nil && s.c.Keys.path != "" {
		say("keys", s.c.Keys.Reload())
	}
	if c.file != "" {
		say("certificate", c.load())
	}
}

// CheckAddress returns why nothing can listen at an address of TCP, whose host may be empty: all of
// this machine's.
func CheckAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("%q, want HOST:PORT, such as 127.0.0.1:8080", address)
	}
	return nil
}

// Loopback reports whether only this machine can reach the address.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Run serves until ctx ends. Then it refuses new requests with status 503, lets those that run end
// within the grace period, and returns. Of those that do not end, streams get an error as their last
// event and the others status 503, and the error is ErrCut. ready is called with the address once
// requests are taken. An open door of l's is taken over.
func (s *Server) Run(ctx context.Context, l *Listener, ready func(address string)) (err error) {
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), spanTime)
		defer cancel()
		err = errors.Join(err, s.tracer.Close(last))
	}()
	shown := &certificate{file: l.Certificate, key: l.Key}
	secure, err := shown.config()
	if err != nil {
		return err
	}
	var ln net.Listener
	if l.door != nil {
		ln = l.pass()
	} else if ln, err = l.listen(ctx); err != nil {
		return err
	}
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	return s.serve(ctx, ln, *l, shown, ready)
}

// serve is Run for a listener and the certificate that it shows.
func (s *Server) serve(ctx context.Context, ln net.Listener, l Listener, shown *certificate, ready func(address string)) error {
	base, cut := context.WithCancelCause(context.Background())
	defer cut(nil)
	h := &http.Server{
		BaseContext: func(net.Listener) context.Context { return base },
		Handler:     s, ReadHeaderTimeout: s.c.HeaderTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 * limits.KiB,
		ErrorLog: slog.NewLogLogger(s.c.Log.Handler(), slog.LevelWarn),
	}
	silent := &silent{conns: map[net.Conn]bool{}}
	h.ConnState = silent.see
	h.RegisterOnShutdown(silent.close)
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ln) }()
	ready(ln.Addr().String())
	for {
		select {
		case err := <-ended:
			return err
		case <-l.Reload:
			s.reload(shown)
		case <-ctx.Done():
			return s.stop(h, cut, l.Grace)
		}
	}
}

// silent are the connections on which no request has begun, as browsers keep one ready. http.Server.Shutdown waits five seconds for
// one of these.
type silent struct {
	mu    sync.Mutex
	conns map[net.Conn]bool // nil: the server stops
}

func (s *silent) see(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(s.conns, c)
	case s.conns == nil:
		_ = c.Close()
	default:
		s.conns[c] = true
	}
}

func (s *silent) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close() // nothing was written to it
	}
	s.conns = nil
}

// ErrCut is wrapped by the error of a server that stopped before its requests had ended.
var ErrCut = errors.New("requests did not end within the grace period")

// farewell is how long a server that stops waits for clients to take their last bytes.
const farewell = 5 * time.Second

// spanTime is how long the last spans may take to be sent.
const spanTime = 5 * time.Second

// stop lets requests end within the grace period. The port stays open until they have: a client that
// comes while a balancer does not know yet is told to try elsewhere.
func (s *Server) stop(h *http.Server, cut context.CancelCauseFunc, grace time.Duration) (err error) {
	h.SetKeepAlivesEnabled(false)
	over := time.NewTimer(grace)
	defer over.Stop()
	select {
	case <-s.Drain():
	case <-over.C:
		select {
		case <-s.Drain(): // by now, or from the beginning
		default:
			err = fmt.Errorf("%w of %v", ErrCut, grace)
			s.c.Log.Warn("requests did not end within the grace period", "grace", grace)
			cut(refuse.Unavailable("the server stops"))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if last := h.Shutdown(ctx); errors.Is(last, context.DeadlineExceeded) {
		return errors.Join(err, h.Close())
	} else if last != nil {
		return errors.Join(err, last)
	}
	return err
}
