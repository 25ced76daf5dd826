package playground_test

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"talf/serve/playground"
)

func get(t *testing.T, h http.Handler, method, target string, headers ...string) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), w.Body.String()
}

func mux() http.Handler {
	m := http.NewServeMux()
	for pattern, h := range playground.Routes() {
		m.HandleFunc(pattern, h)
	}
	return m
}

// All files are there under their own media types, with headers that keep a browser to them.
func TestFilesHaveTheirHeaders(t *testing.T) {
	files, err := fs.ReadDir(os.DirFS("static"), ".")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	m := mux()
	for _, f := range files {
		targets := []string{"/playground/" + f.Name()}
		if f.Name() == "index.html" {
			targets = []string{"/", "/playground"}
		}
		want, err := os.ReadFile(path.Join("static", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			resp, body := get(t, m, "GET", target)
			if resp.StatusCode != 200 || body != string(want) {
				t.Fatalf("%s: %d, %d bytes", target, resp.StatusCode, len(body))
			}
			h := resp.Header
			for name, want := range map[string]string{
				"Content-Type": kinds[path.Ext(f.Name())], "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache", "Referrer-Policy": "no-referrer",
				"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			} {
				if h.Get(name) != want {
					t.Errorf("%s: %s is %q, want %q", target, name, h.Get(name), want)
				}
			}
			csp := h.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'self'", "object-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
				if !strings.Contains(csp, want) {
					t.Errorf("%s: the policy is %q, want %s", target, csp, want)
				}
			}
			if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") || strings.Contains(csp, "http") {
				t.Errorf("%s: the policy is %q", target, csp)
			}
			if resp, body := get(t, m, "HEAD", target); resp.StatusCode != 200 || body != "" {
				t.Errorf("HEAD %s: %d %q", target, resp.StatusCode, body)
			}
			// A browser that has the file gets no second copy.
			tag := h.Get("ETag")
			if resp, body := get(t, m, "GET", target, "If-None-Match", tag); tag == "" || resp.StatusCode != 304 || body != "" || resp.Header.Get("ETag") != tag {
				t.Errorf("%s with tag %s: %d, %d bytes", target, tag, resp.StatusCode, len(body))
			}
			if resp, _ := get(t, m, "GET", target, "If-None-Match", `"another"`); resp.StatusCode != 200 {
				t.Errorf("%s with another's tag: %d", target, resp.StatusCode)
			}
		}
	}
}

// Paths name files of the page and nothing else.
func TestNoOtherFileIsReached(t *testing.T) {
	m := mux()
	for _, target := range []string{
		"/playground/", "/playground/static", "/playground/static/app.js", "/playground/index.html", "/playground/playground.go", "/index.html", "/app.js",
		"/playground/..%2fplayground.go", "/playground/%2e%2e/playground.go", "/playground/app.js/", "/playground/app.js%00", "/playground/APP.JS", "/playground/../../etc/passwd",
	} {
		resp, body := get(t, m, "GET", target)
		if resp.StatusCode == 307 || resp.StatusCode == 301 { // the path without dots
			resp, body = get(t, m, "GET", resp.Header.Get("Location"))
		}
		if resp.StatusCode != 404 || strings.Contains(body, "package") {
			t.Errorf("%s: %d %q", target, resp.StatusCode, body)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		if resp, _ := get(t, m, method, "/playground/app.js"); resp.StatusCode != 405 {
			t.Errorf("%s: %d", method, resp.StatusCode)
		}
	}
}

// The sources stay within what the policy allows, so that no part of the page is switched off by
// it: nothing inline, nothing from elsewhere, no HTML made of strings.
func TestSourcesKeepToThePolicy(t *testing.T) {
	bad := map[string]*regexp.Regexp{
		".html": regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|javascript:|<script[^>]*>[^<]|(src|href)="(https?:)?//`),
		".css":  regexp.MustCompile(`(?i)@import|url\(|expression\(`),
		".js":   regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment|DOMParser|setAttribute\("(style|on)|import\(|https?://`),
	}
	ids := regexp.MustCompile(`\bid="([^"]+)"`)
	files, err := fs.Glob(os.DirFS("static"), "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(path.Join("static", name))
		if err != nil {
			t.Fatal(err)
		}
		if re := bad[path.Ext(name)]; re != nil {
			b := bytes.ReplaceAll(b, []byte("http://www.w3.org/2000/svg"), nil) // a name, not an address
			if at := re.FindIndex(b); at != nil {
				t.Errorf("%s has %q", name, b[at[0]:min(at[1]+40, len(b))])
			}
		}
		seen := map[string]bool{}
		for _, m := range ids.FindAllSubmatch(b, -1) {
			if id := string(m[1]); path.Ext(name) == ".html" && seen[id] {
				t.Errorf("%s has the id %s twice", name, id)
			} else {
				seen[id] = true
			}
		}
	}
}
