package serve

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"talf/serve/wire/refuse"
)

// pages refuses requests from web pages of other origins, if the server needs no key. A browser sends
// the requests of any page, even if the page cannot read the answer; and a page whose own name resolves to
// this machine (DNS rebinding) could read it, too.
type pages struct {
	origins *http.CrossOriginProtection
	hosts   map[string]bool // of the allowed origins
}

func newPages(origins []string) (*pages, error) {
	p := &pages{http.NewCrossOriginProtection(), map[string]bool{}}
	for _, o := range origins {
		if err := p.origins.AddTrustedOrigin(o); err != nil {
			return nil, fmt.Errorf("serve: origin %q, want one such as http://localhost:3000: %w", o, err)
		}
		if u, err := url.Parse(o); err == nil {
			p.hosts[strings.ToLower(u.Hostname())] = true
		}
	}
	return p, nil
}

// refusal returns why a request is not answered, or nil.
func (p *pages) refusal(r *http.Request) *refuse.Error {
	if p == nil {
		return nil
	}
	if p.origins.Check(r) != nil {
		return refuse.Forbidden("a page of another origin asks, which this server was not told to answer")
	}
	if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return nil // not from a browser: the client chose the name itself
	}
	if host := hostname(r.Host); !fixed(host) && !p.hosts[host] {
		return refuse.Forbidden(fmt.Sprintf("a page of host %.100q asks, which this server was not told to answer: want an address, localhost, or an allowed origin", host))
	}
	return nil
}

// hostname is the name in a Host header, without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// fixed reports whether a host needs no name server.
func fixed(host string) bool {
	return net.ParseIP(host) != nil || host == "localhost" || strings.HasSuffix(host, ".localhost")
}
