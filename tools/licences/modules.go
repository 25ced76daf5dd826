package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// accepted are the SPDX identifiers of licences whose terms a binary can meet by including their
// texts.
var accepted = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-4.0", "FTL", "ISC", "MIT", "OFL-1.1", "Unlicense", "Zlib"}

// choices decide where a text cannot be classified because it points to another text or offers a
// choice. The value is the licence that it stands for, or "" if the text is the one not chosen.
var choices = map[string]string{
	"github.com/ajstarks/svgo LICENSE-link.txt":    "CC-BY-4.0",
	"github.com/apache/arrow/go/arrow LICENSE.txt": "Apache-2.0", // and the licences of what its packages for other languages bundle
	"github.com/golang/freetype LICENSE":           "FTL",        // or GPL 2
	"github.com/golang/freetype licenses/gpl.txt":  "",
}

// builds are the ways to build talf that link different modules.
var builds = []struct{ os, arch, tags, cgo string }{
	{"linux", "amd64", "", "0"},
	{"linux", "arm64", "", "0"},
	{"darwin", "arm64", "", "0"},
	{"windows", "amd64", "", "0"},
	{"linux", "amd64", "purego", "0"},
	{"linux", "amd64", "gpu", "1"},
	{"linux", "amd64", "mpi", "1"},
}

// A module is one that some build of talf links.
type module struct {
	Path, Version, Dir string
	packages           []string // directories of the packages that are linked
	licences           []string // SPDX identifiers, sorted
	files              []file
}

type file struct{ name, text string }

// linked returns the modules of all builds, sorted by path.
func linked(root string) ([]module, error) {
	found := map[string]*module{}
	for _, b := range builds {
		cmd := exec.Command("go", "list", "-deps", "-tags="+b.tags, "-json=Dir,Module", "./cmd/talf")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GOOS="+b.os, "GOARCH="+b.arch, "CGO_ENABLED="+b.cgo)
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
			}
			return nil, fmt.Errorf("list what %s/%s links with tags %q: %w", b.os, b.arch, b.tags, err)
		}
		dec := json.NewDecoder(bytes.NewReader(out))
		for {
			var p struct {
				Dir    string
				Module *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("go list: %w", err)
			}
			if p.Module == nil || p.Module.Main {
				continue
			}
			m := found[p.Module.Path]
			if m == nil {
				m = &module{Path: p.Module.Path, Version: p.Module.Version, Dir: p.Module.Dir}
				found[m.Path] = m
			}
			if !slices.Contains(m.packages, p.Dir) {
				m.packages = append(m.packages, p.Dir)
			}
		}
	}
	var all []module
	for _, m := range found {
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// legal matches the names of licences, and notice those of files with other people's notices,
// which are passed on and not classified.
var (
	legal  = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|unlicense|ofl|ftl)\b`)
	notes  = regexp.MustCompile(`(?i)^(notice|copyright|patents)\b`)
	source = regexp.MustCompile(`\.(go|s|c|h|py|sh)$`)
)

// read collects the legal files between the module's root and its linked
// packages.
func (m *module) read() error {
	dirs := map[string]bool{}
	for _, dir := range m.packages {
		for ; strings.HasPrefix(dir, m.Dir); dir = filepath.Dir(dir) {
			dirs[dir] = true
		}
	}
	var sorted []string
	for dir := range dirs {
		sorted = append(sorted, dir)
	}
	slices.Sort(sorted)
	for _, dir := range sorted {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		for _, e := range entries {
			var names []string
			switch {
			case source.MatchString(e.Name()) || !legal.MatchString(e.Name()) && !notes.MatchString(e.Name()):
			case e.IsDir(): // freetype keeps its texts in "licenses"
				inner, err := os.ReadDir(filepath.Join(dir, e.Name()))
				if err != nil {
					return fmt.Errorf("%s: %w", m.Path, err)
				}
				for _, f := range inner {
					names = append(names, filepath.Join(e.Name(), f.Name()))
				}
			default:
				names = []string{e.Name()}
			}
			for _, name := range names {
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					return fmt.Errorf("%s: %w", m.Path, err)
				}
				rel, err := filepath.Rel(m.Dir, filepath.Join(dir, name))
				if err != nil {
					return err
				}
				if err := m.add(filepath.ToSlash(rel), string(text)); err != nil {
					return err
				}
			}
		}
	}
	if len(m.licences) == 0 {
		return fmt.Errorf("%s %s: no licence found", m.Path, m.Version)
	}
	return nil
}

// add keeps a text, and classifies it unless its name shows that it is a notice.
func (m *module) add(name, text string) error {
	text = strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n ")
	choice, chosen := choices[m.Path+" "+name]
	if chosen && choice == "" {
		return nil
	}
	if !notes.MatchString(filepath.Base(name)) {
		ids := []string{choice}
		if !chosen {
			var err error
			if ids, err = classify(text); err != nil {
				return fmt.Errorf("%s %s: %s: %w", m.Path, m.Version, name, err)
			}
		}
		m.licences = append(m.licences, ids...)
		slices.Sort(m.licences)
		m.licences = slices.Compact(m.licences)
	}
	m.files = append(m.files, file{name, text})
	return nil
}

// classify returns the SPDX identifiers of the licences in a text, all of them
// accepted.
func classify(text string) ([]string, error) {
	cov := licensecheck.Scan([]byte(text))
	if cov.Percent < 75 {
		return nil, fmt.Errorf("unknown licence: %.0f%% of the text belongs to known ones", cov.Percent)
	}
	var ids []string
	for _, m := range cov.Match {
		if m.IsURL {
			continue // a reference, not a grant
		}
		if !slices.Contains(accepted, m.ID) {
			return nil, fmt.Errorf("licence %s is not accepted", m.ID)
		}
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
