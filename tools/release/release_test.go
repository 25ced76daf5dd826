package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

func testRelease() *release {
	return &release{commit: strings.Repeat("ab", 20), version: "1.2.3", time: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)}
}

var testFiles = []entry{{"talf", 0o755, []byte("program")}, {"LICENSE", 0o644, []byte("licence")}, {"NOTICE", 0o644, []byte("notice")}}

func TestArchivesHaveOneTimeAndKeepModes(t *testing.T) {
	r, dir := testRelease(), t.TempDir()
	for _, p := range []platform{{"linux", "amd64"}, {"windows", "amd64"}} {
		if err := r.archive(dir, "talf_"+p.os, p, testFiles); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name string, at time.Time, mode os.FileMode, r io.Reader) {
		t.Helper()
		_, base, _ := strings.Cut(name, "/")
		for _, f := range testFiles {
			if f.name != base {
				continue
			}
			b, err := io.ReadAll(r)
			if err != nil || string(b) != string(f.data) || mode.Perm() != os.FileMode(f.mode) || !at.Equal(time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)) {
				t.Errorf("%s: %q, %v, %v, %v", name, b, mode, at, err)
			}
			return
		}
		t.Errorf("unexpected %s", name)
	}
	f, err := os.Open(filepath.Join(dir, "talf_linux.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for r := tar.NewReader(z); ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		check(h.Name, h.ModTime, h.FileInfo().Mode(), r)
	}
	w, err := zip.OpenReader(filepath.Join(dir, "talf_windows.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, e := range w.File {
		c, err := e.Open()
		if err != nil {
			t.Fatal(err)
		}
		check(e.Name, e.Modified, e.Mode(), c)
	}
	if n != len(testFiles) || len(w.File) != len(testFiles) {
		t.Errorf("%d and %d files, want %d", n, len(w.File), len(testFiles))
	}
}

// The image runs the program as an unprivileged user, with a home and a place for temporary
// files; the Containerfile describes the same.
func TestImage(t *testing.T) {
	img, err := testRelease().imageFor(platform{"linux", "arm64"}, rootfs([]byte("program"), testFiles))
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Architecture != "arm64" || c.Config.User != "65532:65532" || len(c.Config.Entrypoint) != 1 || c.Config.Entrypoint[0] != "/talf" {
		t.Errorf("config: %+v", c)
	}
	files := mutate.Extract(img)
	defer files.Close()
	found := map[string]*tar.Header{}
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimSuffix(h.Name, "/")] = h
	}
	for name, want := range map[string]struct {
		mode int64
		uid  int
	}{"talf": {0o755, 0}, "tmp": {0o1777, 0}, "data": {0o755, nonroot}, "usr/share/doc/talf/NOTICE": {0o644, 0}} {
		if h := found[name]; h == nil || h.Mode != want.mode || h.Uid != want.uid || h.Gid != want.uid {
			t.Errorf("%s: %+v, want %+v", name, h, want)
		}
	}
	b, err := os.ReadFile("Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"USER " + c.Config.User, "WORKDIR " + c.Config.WorkingDir, `ENTRYPOINT ["` + c.Config.Entrypoint[0] + `"]`} {
		if !strings.Contains(string(b), "\n"+line+"\n") {
			t.Errorf("the Containerfile lacks %q", line)
		}
	}
}

func TestComponentsComeFromTheBuild(t *testing.T) {
	info := &buildinfo.BuildInfo{
		GoVersion: "go1.26.8",
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.0.0"},
			{Path: "example.org/b", Version: "v2.0.0+incompatible", Replace: &debug.Module{Path: "example.org/c", Version: "v3.0.0+incompatible"}},
		},
		Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}},
	}
	name := filepath.Join(t.TempDir(), "x.json")
	if err := testRelease().components(name, info, [32]byte{6: 0xff, 8: 0xff}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(b), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	var purls []string
	for _, c := range *bom.Components {
		purls = append(purls, c.PackageURL)
	}
	if got, want := strings.Join(purls, " "), "pkg:golang/std@1.26.8 pkg:golang/example.org/a@v1.0.0 pkg:golang/example.org/c@v3.0.0%2Bincompatible"; got != want {
		t.Errorf("components %s, want %s", got, want)
	}
	if bom.SerialNumber != "urn:uuid:00000000-0000-8f00-bf00-000000000000" || bom.Metadata.Timestamp != "2026-11-22T10:00:00Z" || bom.Metadata.Component.Version != "1.2.3" {
		t.Errorf("serial %s, metadata %+v", bom.SerialNumber, bom.Metadata)
	}
}

func TestBinariesOfOtherSourcesAreRefused(t *testing.T) {
	good := func() *buildinfo.BuildInfo {
		return &buildinfo.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
			{Key: "CGO_ENABLED", Value: "0"}, {Key: "vcs.revision", Value: strings.Repeat("ab", 20)}, {Key: "vcs.modified", Value: "false"},
		}}
	}
	if err := testRelease().matches(good()); err != nil {
		t.Fatal(err)
	}
	for i, bad := range []string{"1", strings.Repeat("cd", 20), "true"} {
		info := good()
		info.Settings[i].Value = bad
		if testRelease().matches(info) == nil {
			t.Errorf("%s = %s is accepted", info.Settings[i].Key, bad)
		}
	}
	info := good()
	info.Main.Version = "v1.2.4"
	if testRelease().matches(info) == nil {
		t.Error("two versions in one release are accepted")
	}
}

func TestDifferencesAreFound(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := same(a, b); err == nil {
		t.Error("nothing equals nothing")
	}
	write(a, "x", "1")
	write(b, "x", "1")
	if n, err := same(a, b); n != 1 || err != nil {
		t.Errorf("%d files, %v", n, err)
	}
	write(b, "x", "2")
	if _, err := same(a, b); err == nil || !strings.Contains(err.Error(), "x differs") {
		t.Errorf("other bytes: %v", err)
	}
	write(b, "x", "1")
	write(b, "y", "1")
	if _, err := same(a, b); err == nil {
		t.Error("a file of one build alone is accepted")
	}
	if err := sums(a); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(a, "SHA256SUMS")); string(got) != "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b  x\n" {
		t.Errorf("sums: %s", got)
	}
}

func TestOnlyAnEarlierReleaseIsRemoved(t *testing.T) {
	out := filepath.Join(t.TempDir(), "a", "dist")
	for _, name := range []string{"talf_1_linux_amd64.tar.gz", sumsName, "thesis.txt"} {
		if err := vacate(out); err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(out); err != nil || len(entries) > 0 {
			t.Errorf("left behind: %v, %v", entries, err)
		}
		if err := os.WriteFile(filepath.Join(out, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(out, "talf_1.zip"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := vacate(out); err == nil || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("error %v", err)
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v, want both files as they were", entries, err)
	}
	source := filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(filepath.Join(source, "talf_source"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := vacate(source); err == nil || !strings.Contains(err.Error(), "talf_source") {
		t.Errorf("a directory: error %v", err)
	}
	if _, err := os.Stat(filepath.Join(source, "talf_source")); err != nil {
		t.Error(err)
	}
}
