// Package version reports what the running program was built from.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// An Info describes what this program was built from.
type Info struct {
	Version  string            `json:"version"`
	Revision string            `json:"revision,omitempty"` // the commit
	Time     string            `json:"time,omitempty"`     // of the commit, RFC 3339, UTC
	Modified bool              `json:"modified,omitempty"`
	Go       string            `json:"go"`
	Platform string            `json:"platform"`
	Tags     string            `json:"tags,omitempty"`
	Level    string            `json:"instruction_level,omitempty"` // GOAMD64 or GOARM64
	Deps     map[string]string `json:"dependencies,omitempty"`
}

// shownDeps are the dependencies whose version affects the contents of files or results.
var shownDeps = map[string]bool{
	"gorgonia.org/gorgonia":            true,
	"gorgonia.org/tensor":              true,
	"github.com/sugarme/tokenizer":     true,
	"github.com/parquet-go/parquet-go": true,
	"gonum.org/v1/gonum":               true,
}

// Read returns the version of the running program.
func Read() Info {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Of(&debug.BuildInfo{Main: debug.Module{Version: "unknown"}})
	}
	return Of(info)
}

// Of returns the version recorded in build info.
func Of(info *debug.BuildInfo) Info {
	v := Info{Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Deps: map[string]string{}}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		case "-tags":
			v.Tags = s.Value
		case "GOAMD64", "GOARM64":
			v.Level = s.Value
		}
	}
	for _, d := range info.Deps {
		if shownDeps[d.Path] {
			v.Deps[d.Path] = d.Version
		}
	}
	return v
}

// String returns what talf version prints: version, commit, date, Go and platform.
func (v Info) String() string {
	var of []string
	if v.Revision != "" {
		of = append(of, fmt.Sprintf("commit %.12s", v.Revision))
	}
	if v.Time != "" {
		of = append(of, v.Time)
	}
	if v.Modified {
		of = append(of, "modified")
	}
	s := "talf " + v.Version
	if len(of) > 0 {
		s += " (" + strings.Join(of, ", ") + ")"
	}
	return s + " " + v.Go + " " + v.Platform
}
