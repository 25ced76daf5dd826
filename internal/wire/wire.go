// Package wire serves HTTP within a process and without a network, for tests in a bubble of time
// (testing/synctest): there, time stands still while anybody works, so that what a client waits for does not
// depend on how busy the machine is.
package wire

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// A Net connects the clients and servers of one test. Servers are added by one goroutine, before anybody dials.
type Net struct{ servers map[string]*listener }

// Serve serves h until the test ends and returns the URL, without a path.
func (n *Net) Serve(t testing.TB, h http.Handler) string {
	t.Helper()
	s := &httptest.Server{Listener: n.Listen(), Config: &http.Server{Handler: h}}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// Listen returns a listener whose address is dialled with Dial.
func (n *Net) Listen() net.Listener {
	l := &listener{name: fmt.Sprintf("wire-%d:80", len(n.servers)), calls: make(chan net.Conn), ended: make(chan struct{})}
	if n.servers == nil {
		n.servers = map[string]*listener{}
	}
	n.servers[l.name] = l
	return l
}

// Dial connects with a server. Addresses of other servers are dialled as ever. It is a DialContext of
// http.Transport.
func (n *Net) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	l := n.servers[address]
	if l == nil {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	mine, theirs := net.Pipe()
	select {
	case l.calls <- theirs:
		return mine, nil
	case <-l.ended:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A listener is that of one server, and its address.
type listener struct {
	name  string
	calls chan net.Conn
	close sync.Once
	ended chan struct{}
}

// Network implements net.Addr.
func (l *listener) Network() string { return "wire" }

// String implements net.Addr.
func (l *listener) String() string { return l.name }

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.close.Do(func() { close(l.ended) })
	return nil
}
