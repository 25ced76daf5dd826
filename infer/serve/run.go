package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"talf/internal/limits"
)

// A Listener says how a server is reached.
type Listener struct {
	Address string // host:port
	// Certificate and Key are files of PEM; both or neither.
	Certificate, Key string
	// Grace is how long requests may go on once the server is to stop.
	Grace time.Duration
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

// Run serves until ctx ends. Then it takes no more requests, lets those that run end within the
// grace period, cuts off the rest and returns. ready is called with the address once requests are
// taken.
func (s *Server) Run(ctx context.Context, l Listener, ready func(address string)) error {
	var secure *tls.Config
	if l.Certificate != "" || l.Key != "" {
		pair, err := tls.LoadX509KeyPair(l.Certificate, l.Key)
		if err != nil {
			return fmt.Errorf("certificate %s with key %s: %w", l.Certificate, l.Key, err)
		}
		secure = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	}
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "tcp", l.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 * limits.KiB,
	}
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ln) }()
	ready(ln.Addr().String())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		s.Drain()
		return s.stop(h, l.Grace)
	}
}

// stop lets requests end within the grace period.
func (s *Server) stop(h *http.Server, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := h.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.c.Log.Warn("requests did not end within the grace period", "grace", grace)
		return h.Close()
	}
	return err
}
