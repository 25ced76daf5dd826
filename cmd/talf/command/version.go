package command

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// A buildVersion says what this binary was made of.
type buildVersion struct {
	Version  string            `json:"version"`
	Revision string            `json:"revision,omitempty"`
	Modified bool              `json:"modified,omitempty"`
	Go       string            `json:"go"`
	Platform string            `json:"platform"`
	Tags     string            `json:"tags,omitempty"`
	Level    string            `json:"instruction_level,omitempty"` // GOAMD64 or GOARM64
	Deps     map[string]string `json:"dependencies,omitempty"`
}

// shownDeps are the dependencies whose version decides what a file holds or how
// a result came to be.
var shownDeps = map[string]bool{
	"gorgonia.org/gorgonia":            true,
	"gorgonia.org/tensor":              true,
	"github.com/sugarme/tokenizer":     true,
	"github.com/parquet-go/parquet-go": true,
	"gonum.org/v1/gonum":               true,
}

func readVersion() buildVersion {
	v := buildVersion{
		Version: "unknown", Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Deps: map[string]string{},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
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

func newVersion(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of talf and of the Go that built it",
		Example: "  talf version\n  talf version --json",
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if asJSON {
				return a.printJSON(v)
			}
			a.printf("talf %s", v.Version)
			if v.Revision != "" {
				a.printf(" (%.12s", v.Revision)
				if v.Modified {
					a.printf(", modified")
				}
				a.printf(")")
			}
			a.printf(" %s %s\n", v.Go, v.Platform)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
