// Package playground is the page of a server: chat and completions, the draft tree of every round
// as it is accepted, two methods side by side, and the replay of trace files.
//
// The page is a few files that are part of the program, and it talks only to the server it came
// from. Its headers forbid the rest: scripts and styles that are not those files, other origins,
// and HTML made of strings, because tokens are untrusted text. It is the same for everyone and
// needs no key; the requests that it makes do.
package playground

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed static
var static embed.FS

// policy is the Content-Security-Policy of all files. Under trusted-types 'none' a browser refuses
// every way to make HTML or scripts of strings.
const policy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// kinds are the media types of files by extension: those of the system may differ.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Routes returns the handlers of the page and its files, by patterns of http.ServeMux.
func Routes() map[string]http.HandlerFunc {
	files, err := fs.ReadDir(static, "static")
	if err != nil {
		panic(err) // it is part of the program
	}
	routes := map[string]http.HandlerFunc{}
	for _, f := range files {
		b, err := fs.ReadFile(static, path.Join("static", f.Name()))
		if err != nil {
			panic(err)
		}
		h := serve(f.Name(), b)
		if f.Name() == "index.html" {
			routes["GET /{$}"], routes["GET /playground"] = h, h
			continue
		}
		routes["GET /playground/"+f.Name()] = h
	}
	return routes
}

// serve is the handler of a file.
func serve(name string, b []byte) http.HandlerFunc {
	sum := sha256.Sum256(b)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	kind, ok := kinds[path.Ext(name)]
	if !ok {
		panic("playground: " + name + " has no media type")
	}
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("ETag", tag)
		h.Set("Cache-Control", "no-cache") // a browser asks whether its copy is that of this program
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}
