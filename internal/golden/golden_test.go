package golden_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"talf/internal/golden"
)

// outcome is a testing.TB that records how a test would have ended.
type outcome struct {
	testing.TB
	failed, skipped string
}

func (o *outcome) Helper() {}

func (o *outcome) Fatal(args ...any) { o.failed = fmt.Sprint(args...); runtime.Goexit() }

func (o *outcome) Fatalf(format string, args ...any) { o.Fatal(fmt.Sprintf(format, args...)) }

func (o *outcome) Skip(args ...any) { o.skipped = fmt.Sprint(args...); runtime.Goexit() }

// ends runs f as a separate test, so that it may stop early.
func ends(t *testing.T, f func(t testing.TB)) *outcome {
	o := &outcome{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(o)
	}()
	<-done
	return o
}

func TestAMissingGoldenFails(t *testing.T) {
	for name, f := range map[string]func(t testing.TB){
		"file": func(t testing.TB) { golden.File(t, "hf/none/config.json") },
		"dir":  func(t testing.TB) { golden.File(t, "none") },
		"read": func(t testing.TB) { golden.Read(t, "hf/none.json") },
	} {
		if o := ends(t, f); !strings.Contains(o.failed, "none") || o.skipped != "" {
			t.Errorf("%s: failed %q, skipped %q", name, o.failed, o.skipped)
		}
	}
}

// A truncated or altered archive is an error, not a shorter golden.
func TestADamagedGoldenFails(t *testing.T) {
	repo := t.TempDir()
	dir := filepath.Join(repo, "internal", "golden", "testdata")
	stored, err := os.ReadFile(filepath.Join("testdata", "chat", "chatml.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(repo, "go.mod"), []byte("module talf\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for name, b := range map[string][]byte{
		"whole":   stored,
		"short":   stored[:len(stored)-9],
		"altered": append(append([]byte{}, stored[:len(stored)-8]...), 0, 0, 0, 0, 0, 0, 0, 0),
		"text":    []byte("{}"),
	} {
		if err := os.WriteFile("x.gz", b, 0o644); err != nil {
			t.Fatal(err)
		}
		o := ends(t, func(t testing.TB) { golden.Read(t, "x") })
		if bad := o.failed != ""; bad != (name != "whole") {
			t.Errorf("%s: failed %q", name, o.failed)
		}
	}
}

func TestPublishedFilesAreDemandedWhereTheyMustBe(t *testing.T) {
	const name = "data/none.jinja"
	ask := func() *outcome { return ends(t, func(t testing.TB) { golden.Shared(t, name) }) }
	t.Setenv("CI", "")
	t.Setenv("TALF_SHARED", "")
	if o := ask(); !strings.Contains(o.skipped, name) || o.failed != "" {
		t.Errorf("on a reader's machine: failed %q, skipped %q", o.failed, o.skipped)
	}
	t.Setenv("CI", "true")
	if o := ask(); !strings.Contains(o.failed, name) {
		t.Errorf("under CI: failed %q, skipped %q", o.failed, o.skipped)
	}
	t.Setenv("CI", "")
	dir := t.TempDir()
	t.Setenv("TALF_SHARED", dir)
	if o := ask(); !strings.Contains(o.failed, name) {
		t.Errorf("with TALF_SHARED: failed %q, skipped %q", o.failed, o.skipped)
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if p := golden.Shared(t, name); p != filepath.Join(dir, name) {
		t.Errorf("found at %s", p)
	}
}

// A directory is returned with every file under its plain name.
func TestADirectoryIsUnpacked(t *testing.T) {
	dir := golden.File(t, "methods")
	var one struct {
		Runs []json.RawMessage `json:"runs"`
	}
	b, err := os.ReadFile(filepath.Join(dir, "recycling", "trace.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &one); err != nil || len(one.Runs) == 0 {
		t.Errorf("%d runs, %v", len(one.Runs), err)
	}
	if string(b) != string(golden.Read(t, "methods/recycling/trace.json")) {
		t.Error("File and Read differ")
	}
}

// Every golden is present and is what its generator wrote: the list is committed with them. It
// also bounds what a clone downloads.
func TestGoldensAreComplete(t *testing.T) {
	want := map[string]string{}
	for line := range strings.Lines(string(golden.Read(t, "SHA256SUMS"))) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			t.Fatalf("SHA256SUMS: %q", line)
		}
		want[name] = sum
	}
	var size int64
	err := filepath.WalkDir("testdata", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size += info.Size()
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(path), "testdata/"), ".gz")
		if name == "README.md" || name == "SHA256SUMS" {
			return nil
		}
		sum := sha256.Sum256(golden.Read(t, name))
		if got := hex.EncodeToString(sum[:]); got != want[name] {
			t.Errorf("%s: SHA-256 is %s, want %q", name, got, want[name])
		}
		delete(want, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
	if size > 25<<20 {
		t.Errorf("the goldens take %d bytes, at most 25 MiB are allowed", size)
	}
}
