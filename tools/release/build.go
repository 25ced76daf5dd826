package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// binary is the program's file name.
func (p platform) binary() string {
	if p.os == "windows" {
		return "talf.exe"
	}
	return "talf"
}

// A release is what all of its files have in common.
type release struct {
	src     string // a clone of the commit, with nothing else in it
	commit  string
	time    time.Time // of the commit: the time of every file
	version string    // without the v
	cache   string    // GOCACHE; "" is the usual one
}

// build clones a commit of root into work and writes a release of it to out.
func build(ctx context.Context, root, commit, work, out, cache string, platforms []platform) error {
	r := release{src: filepath.Join(work, "src"), commit: commit, cache: cache}
	if err := r.clone(ctx, root); err != nil {
		return err
	}
	if err := vacate(out); err != nil {
		return err
	}
	bins := map[platform]string{}
	for _, p := range platforms {
		bin := filepath.Join(work, "bin", p.os+"_"+p.arch, p.binary())
		if err := r.compile(ctx, p, bin); err != nil {
			return err
		}
		info, err := buildinfo.ReadFile(bin)
		if err != nil {
			return err
		}
		if err := r.matches(info); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		bins[p] = bin
	}
	shared, err := r.extras(ctx, filepath.Join(work, "extras"), bins[platform{runtime.GOOS, runtime.GOARCH}])
	if err != nil {
		return err
	}
	for _, p := range platforms {
		name := fmt.Sprintf("talf_%s_%s_%s", r.version, p.os, p.arch)
		program, err := os.ReadFile(bins[p])
		if err != nil {
			return err
		}
		files := append([]entry{{p.binary(), 0o755, program}}, shared...)
		if err := r.archive(out, name, p, files); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		info, err := buildinfo.Read(bytes.NewReader(program))
		if err != nil {
			return err
		}
		if err := r.components(filepath.Join(out, name+".cdx.json"), info, sha256.Sum256(program)); err != nil {
			return fmt.Errorf("list the components of %s: %w", name, err)
		}
	}
	if slices.ContainsFunc(platforms, func(p platform) bool { return p.os == "linux" }) {
		if err := r.image(out, bins, shared); err != nil {
			return fmt.Errorf("make the image: %w", err)
		}
	}
	return sums(out)
}

// vacate creates the directory out, or removes what an earlier release left there. One that
// contains anything else is refused and left as it is.
func vacate(out string) error {
	entries, err := os.ReadDir(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || e.Name() != sumsName && !strings.HasPrefix(e.Name(), "talf_") {
			return fmt.Errorf("%s holds %s, which is no file of a release: want a new directory", out, e.Name())
		}
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(out, e.Name())); err != nil {
			return err
		}
	}
	return os.MkdirAll(out, 0o755)
}

// clone makes a copy of the commit, so that nothing uncommitted can get into a release.
func (r *release) clone(ctx context.Context, root string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	stamp, err := output(ctx, root, nil, "git", "show", "-s", "--format=%ct", r.commit)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(stamp), 10, 64)
	if err != nil {
		return fmt.Errorf("read the commit's time: %w", err)
	}
	r.time = time.Unix(seconds, 0).UTC()
	if _, err := output(ctx, root, nil, "git", "clone", "--quiet", "--shared", "--no-checkout", root, r.src); err != nil {
		return err
	}
	_, err = output(ctx, r.src, nil, "git", "checkout", "--quiet", "--detach", r.commit)
	return err
}

// env returns the environment of a build for p: none of the caller's settings that would change
// the bytes.
func (r *release) env(p platform) []string {
	env := []string{
		"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-trimpath", "GOEXPERIMENT=", "GOWORK=off", "GOTOOLCHAIN=local", "GOENV=off",
	}
	if r.cache != "" {
		env = append(env, "GOCACHE="+r.cache)
	}
	return env
}

func (r *release) compile(ctx context.Context, p platform, bin string) error {
	_, err := output(ctx, r.src, r.env(p), "go", "build", "-buildvcs=true", "-ldflags=-s -w", "-o", bin, "./cmd/talf")
	return err
}

// matches checks that a binary describes itself as the release does.
func (r *release) matches(info *buildinfo.BuildInfo) error {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	switch version := strings.TrimPrefix(info.Main.Version, "v"); {
	case settings["vcs.revision"] != r.commit || settings["vcs.modified"] != "false":
		return fmt.Errorf("the binary is of commit %q, modified %q: want %s", settings["vcs.revision"], settings["vcs.modified"], r.commit)
	case settings["CGO_ENABLED"] != "0":
		return errors.New("the binary is not static: it was built with cgo")
	case r.version != "" && version != r.version:
		return fmt.Errorf("version %s, but another platform's is %s", version, r.version)
	default:
		r.version = version
	}
	return nil
}

// extras returns the files that go into every archive in addition to the program. host is a
// binary that runs here, or "" if none was built.
func (r *release) extras(ctx context.Context, dir, host string) ([]entry, error) {
	here := platform{runtime.GOOS, runtime.GOARCH}
	if host == "" {
		host = filepath.Join(dir, here.binary())
		if err := r.compile(ctx, here, host); err != nil {
			return nil, err
		}
	}
	var all []entry
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		b, err := os.ReadFile(filepath.Join(r.src, name))
		if err != nil {
			return nil, err
		}
		all = append(all, entry{name, 0o644, b})
	}
	notice, err := output(ctx, filepath.Join(r.src, "tools"), nil, "go", "run", "./licences", "-notice")
	if err != nil {
		return nil, err
	}
	all = append(all, entry{"NOTICE", 0o644, []byte(notice)})
	for shell, name := range map[string]string{"bash": "talf.bash", "zsh": "_talf", "fish": "talf.fish", "powershell": "talf.ps1"} {
		script, err := output(ctx, r.src, nil, host, "completion", shell)
		if err != nil {
			return nil, err
		}
		all = append(all, entry{"completions/" + name, 0o644, []byte(script)})
	}
	man := filepath.Join(dir, "man")
	if _, err := output(ctx, r.src, r.env(here), "go", "run", "./internal/manpages", man, r.time.Format(time.DateOnly)); err != nil {
		return nil, err
	}
	pages, err := filepath.Glob(filepath.Join(man, "*.1"))
	if err != nil || len(pages) == 0 {
		return nil, fmt.Errorf("no manual pages in %s: %w", man, err)
	}
	for _, page := range pages {
		b, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		all = append(all, entry{"man/man1/" + filepath.Base(page), 0o644, b})
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// output runs a command and returns its output; its error contains the command's messages.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var errb bytes.Buffer
	cmd.Stderr = &errb
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, bytes.TrimSpace(errb.Bytes()))
	}
	return string(out), nil
}
