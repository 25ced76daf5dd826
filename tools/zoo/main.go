// Command zoo gets the real models of internal/zoo/models.json from PyPI, by its ordinary client pip,
// into the cache directory: $TALF_ZOO, or talf-models in the user's. They are published by others
// under their own licences, which it names.
//
//	go run -C tools ./zoo         # all four, 2 GB
//	go run -C tools ./zoo -small  # the two small ones, 350 MB
//
// A model appears whole and with its pinned checksum, or not at all. What was downloaded when the
// program was interrupted is used by the next run.
//
// The exit status is 69 if a package could not be downloaded, and 1 after any other error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// A model is an entry of models.json, which package internal/zoo describes.
type model struct {
	Name, File, Licence string
	Small               bool
	Bytes               int64
	SHA256, Part        string
	Packages            []string
}

func main() {
	small := flag.Bool("small", false, "get the two small models alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *small)
	var failed *downloadError
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "zoo: interrupted; the next run goes on from here")
		os.Exit(130)
	case errors.As(err, &failed):
		fmt.Fprintln(os.Stderr, "zoo:", err)
		os.Exit(69)
	case err != nil:
		fmt.Fprintln(os.Stderr, "zoo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, small bool) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there is only the flag -small", flag.Arg(0))
	}
	models, err := pinned()
	if err != nil {
		return err
	}
	dir := os.Getenv("TALF_ZOO")
	if dir == "" {
		if dir, err = os.UserCacheDir(); err != nil {
			return err
		}
		dir = filepath.Join(dir, "talf-models")
	}
	s := store{dir: dir, download: pip, say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	for _, m := range models {
		if small && !m.Small {
			continue
		}
		if err := s.get(ctx, m); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

// pinned reads the table of models from the repository around the working directory.
func pinned() ([]model, error) {
	wd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		name := filepath.Join(dir, "internal", "zoo", "models.json")
		b, err := os.ReadFile(name)
		if err == nil {
			var models []model
			if err := json.Unmarshal(b, &models); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			return models, nil
		}
		if dir == filepath.Dir(dir) {
			return nil, fmt.Errorf("%s is not inside the repository of talf: no internal/zoo/models.json", wd)
		}
	}
}

// A downloadError says that a package could not be downloaded.
type downloadError struct {
	pkg string
	err error
}

func (e *downloadError) Error() string { return fmt.Sprintf("pip download %s: %v", e.pkg, e.err) }
func (e *downloadError) Unwrap() error { return e.err }

// pip downloads the wheel of a package, name==version, to a directory. A package without a wheel is
// refused, since pip would run its code to learn its name.
func pip(ctx context.Context, pkg, dir string) error {
	cmd := exec.CommandContext(ctx, "python3", "-m", "pip", "download", "-q", "--disable-pip-version-check",
		"--no-deps", "--only-binary", ":all:", "-d", dir, pkg)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	return cmd.Run()
}
