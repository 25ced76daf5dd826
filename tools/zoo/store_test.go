package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// published stands for the registry: the files of the wheels of packages.
type published map[string]map[string]string

func (p published) download(_ context.Context, pkg, dir string) error {
	files, ok := p[pkg]
	if !ok {
		return errors.New("no such package")
	}
	f, err := os.Create(filepath.Join(dir, strings.ReplaceAll(pkg, "==", "-")+"-py3-none-any.whl"))
	if err != nil {
		return err
	}
	z := zip.NewWriter(f)
	for name, text := range files {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(z.Close(), f.Close())
}

func whole() (model, published) {
	const text = "GGUF of four parts"
	sum := sha256.Sum256([]byte(text))
	m := model{Name: "m", File: "m.gguf", Bytes: int64(len(text)), SHA256: hex.EncodeToString(sum[:]), Part: `\.part[0-9]$`, Packages: []string{"x2==1", "x10==1"}}
	p := published{
		"x10==1": {"x10/data/a.part0": "four ", "x10/data/a.part1": "parts", "x10/__init__.py": "#"},
		"x2==1":  {"x2/data/a.part9": "of ", "x2/data/a.part0": "GGUF ", "x2/METADATA": "#"},
	}
	return m, p
}

// names lists what is in a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var s []string
	for _, e := range entries {
		s = append(s, e.Name())
	}
	return strings.Join(s, " ")
}

func TestPartsAreJoinedOnce(t *testing.T) {
	m, p := whole()
	asked := 0
	s := store{dir: t.TempDir(), say: t.Logf, download: func(ctx context.Context, pkg, dir string) error {
		asked++
		return p.download(ctx, pkg, dir)
	}}
	for range 2 {
		if err := s.get(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(s.dir, m.File))
		if err != nil || string(b) != "GGUF of four parts" {
			t.Errorf("%q, %v", b, err)
		}
	}
	if asked != 2 || names(t, s.dir) != m.File {
		t.Errorf("%d downloads, then %s; want 2 and the model alone", asked, names(t, s.dir))
	}
	// A file that is not the model, such as one of an older version, gives way to it.
	if err := os.WriteFile(filepath.Join(s.dir, m.File), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.get(t.Context(), m); err != nil || asked != 4 {
		t.Errorf("after damage: %v, %d downloads, want 4", err, asked)
	}
}

func TestAnInterruptedDownloadGoesOn(t *testing.T) {
	m, p := whole()
	ctx, cancel := context.WithCancel(t.Context())
	s := store{dir: t.TempDir(), say: t.Logf}
	s.download = func(ctx context.Context, pkg, dir string) error {
		if pkg == "x10==1" {
			cancel()
			return errors.Join(ctx.Err(), os.WriteFile(filepath.Join(dir, "half.whl"), []byte("PK"), 0o644))
		}
		return p.download(ctx, pkg, dir)
	}
	if err := s.get(ctx, m); err == nil {
		t.Fatal("no error")
	}
	if got := names(t, s.dir) + ": " + names(t, filepath.Join(s.dir, ".m")); got != ".m: x2==1.whl" {
		t.Errorf("an interrupted run leaves %s, want the first wheel alone", got)
	}
	s.download = func(ctx context.Context, pkg, dir string) error {
		if pkg != "x10==1" {
			t.Errorf("%s is downloaded again", pkg)
		}
		return p.download(ctx, pkg, dir)
	}
	if err := s.get(t.Context(), m); err != nil || names(t, s.dir) != m.File {
		t.Errorf("%v, %s", err, names(t, s.dir))
	}
}

func TestWhatIsNotTheModelLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(m *model, p published)
		want   string
	}{
		"another text": {func(_ *model, p published) { p["x2==1"]["x2/data/a.part9"] = "OF " }, "have sha256"},
		"too long":     {func(_ *model, p published) { p["x10==1"]["x10/data/a.part1"] = "parts and more" }, "more bytes than the model"},
		"too short":    {func(_ *model, p published) { p["x10==1"]["x10/data/a.part1"] = "part" }, "17 bytes, have sha256"},
		"no part":      {func(_ *model, p published) { p["x10==1"] = map[string]string{"x10/readme": "#"} }, `x10==1.whl holds no file \.part[0-9]$`},
	} {
		m, p := whole()
		c.damage(&m, p)
		s := store{dir: t.TempDir(), say: t.Logf, download: p.download}
		if err := s.get(t.Context(), m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		if left := names(t, s.dir); left != "" {
			t.Errorf("%s leaves %s", name, left)
		}
	}
}

func TestAPackageThatCannotBeHadIsTold(t *testing.T) {
	m, p := whole()
	delete(p, "x10==1")
	s := store{dir: t.TempDir(), say: t.Logf, download: p.download}
	err := s.get(t.Context(), m)
	var failed *downloadError
	if !errors.As(err, &failed) || failed.pkg != "x10==1" {
		t.Errorf("error %v, want that x10==1 cannot be downloaded", err)
	}
}
