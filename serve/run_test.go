package serve_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"talf/infer"
	"talf/internal/await"
	"talf/serve"
)

// run serves c until the returned function is called, which waits for the end.
func run(t *testing.T, c *core, l serve.Listener, change ...func(*serve.Config)) (address string, stop func() error) {
	t.Helper()
	conf := serve.Default()
	conf.Names = []string{"tiny"}
	for _, f := range change {
		f(&conf)
	}
	s, err := serve.New(c, conf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l.Address = "127.0.0.1:0"
	ended, ready := make(chan error, 1), make(chan string, 1)
	go func() { ended <- s.Run(ctx, &l, func(a string) { ready <- a }) }()
	select {
	case address = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	return address, func() error {
		cancel()
		return <-ended
	}
}

// Who was let in before the end has a whole answer; who comes later is refused.
func TestAServerStopsWhenItsRequestsHaveEnded(t *testing.T) {
	c := &core{words: []string{"Hello", " there"}, end: infer.EOS, hold: make(chan struct{})}
	address, stop := run(t, c, serve.Listener{Grace: time.Minute})
	type result struct {
		body string
		err  error
	}
	got := make(chan result, 1)
	go func() {
		resp, err := http.Post("http://"+address+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a","stream":true}`))
		if err != nil {
			got <- result{err: err}
			return
		}
		b, err := io.ReadAll(resp.Body)
		got <- result{string(b), errors.Join(err, resp.Body.Close())}
	}()
	await.Until(t, "the request", func() bool { return c.open() > 0 })
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for status := 0; status != http.StatusServiceUnavailable; { // soon nobody is let in
		r, err := http.Get("http://" + address + "/ready")
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		status = r.StatusCode
	}
	if status, h, body := do(t, "POST", "http://"+address+"/v1/completions", `{"prompt":"a"}`); status != 503 || h.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", status, h, body)
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a request in progress: %v", err)
	default:
	}
	close(c.hold)
	if r := <-got; r.err != nil || !strings.Contains(r.body, " there") || !strings.HasSuffix(r.body, "[DONE]\n\n") {
		t.Errorf("%+v", r)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	// Those that do not end are told so after the grace period.
	for _, stream := range []bool{false, true} {
		c = &core{words: []string{"Hello", "x"}, hold: make(chan struct{})}
		address, stop = run(t, c, serve.Listener{Grace: 10 * time.Millisecond})
		go func() {
			resp, err := http.Post("http://"+address+"/v1/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"prompt":"a","stream":%v}`, stream)))
			if err != nil {
				got <- result{err: err}
				return
			}
			b, err := io.ReadAll(resp.Body)
			got <- result{fmt.Sprint(resp.StatusCode, " ", string(b)), errors.Join(err, resp.Body.Close())}
		}()
		await.Until(t, "the request", func() bool { return c.open() > 0 })
		if err := stop(); !errors.Is(err, serve.ErrCut) {
			t.Errorf("%v, want %v", err, serve.ErrCut)
		}
		want := "503 {"
		if stream {
			want = "200 data: {"
		}
		if r := <-got; r.err != nil || !strings.HasPrefix(r.body, want) || !strings.Contains(r.body, `"the server stops"`) || strings.Contains(r.body, "[DONE]") {
			t.Errorf("%+v", r)
		}
		await.Until(t, "the end of its answer", func() bool { return c.open() == 0 })
	}
}

// A client that reads nothing loses its connection, and its request ends.
func TestAClientThatReadsNothingIsCutOff(t *testing.T) {
	c := &core{words: make([]string, 1<<14), end: infer.EOS}
	for i := range c.words {
		c.words[i] = strings.Repeat("x", 1<<12)
	}
	_, url := start(t, c, func(conf *serve.Config) { conf.WriteTime = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"prompt":"a","stream":true}`
	if _, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 28\r\n\r\n"+body); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the end of the request", func() bool { return c.ever() > 0 && c.open() == 0 })
}

// writeCertificate writes a certificate of 127.0.0.1 with its key to the files of l.
func writeCertificate(t *testing.T, l *serve.Listener) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{l.Certificate: {Type: "CERTIFICATE", Bytes: cert}, l.Key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// reaches reports whether a client that trusts a certificate alone reaches a server.
func reaches(address string, trusted *x509.Certificate) error {
	pool := x509.NewCertPool()
	pool.AddCert(trusted)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + address + "/health")
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// A server shows a new certificate when it is told to, and keeps the old one if the new is none.
func TestRequestsOverTLS(t *testing.T) {
	dir := t.TempDir()
	reload := make(chan struct{})
	l := serve.Listener{Certificate: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Grace: time.Second, Reload: reload}
	first := writeCertificate(t, &l)
	address, stop := run(t, &core{}, l)
	if err := reaches(address, first); err != nil {
		t.Error(err)
	}
	// The channel has no buffer: what it hands over second has been read when it takes the third.
	again := func() {
		reload <- struct{}{}
		reload <- struct{}{}
	}
	second := writeCertificate(t, &l)
	if err := reaches(address, second); err == nil {
		t.Error("the certificate changed by itself")
	}
	again()
	if err := reaches(address, second); err != nil {
		t.Error(err)
	}
	if err := reaches(address, first); err == nil {
		t.Error("the old certificate is shown")
	}
	if err := os.WriteFile(l.Key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	again()
	if err := reaches(address, second); err != nil {
		t.Errorf("after a bad key: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for address, want := range map[string]bool{"127.0.0.1:80": true, "localhost:80": true, "[::1]:80": true, "0.0.0.0:80": false, ":80": false, "example.org:80": false, "x": false} {
		if serve.Loopback(address) != want {
			t.Errorf("%s: loopback is %v", address, !want)
		}
	}
}
