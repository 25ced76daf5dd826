package zoo

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

func TestModelsArePinned(t *testing.T) {
	pin := regexp.MustCompile(`^[a-z0-9-]+==[0-9.]+$`)
	var names []string
	last := int64(0)
	for _, m := range Models() {
		names = append(names, m.Name)
		if sum, err := hex.DecodeString(m.SHA256); err != nil || len(sum) != 32 {
			t.Errorf("%s: sha256 %q", m.Name, m.SHA256)
		}
		if m.Bytes <= last || m.Licence == "" || filepath.Ext(m.File) != ".gguf" || len(m.Packages) == 0 {
			t.Errorf("%+v", m)
		}
		last = m.Bytes
		if _, err := regexp.Compile(m.Part); err != nil || m.Part == "" {
			t.Errorf("%s: part %q: %v", m.Name, m.Part, err)
		}
		for _, p := range m.Packages {
			if !pin.MatchString(p) {
				t.Errorf("%s: package %q, want name==version", m.Name, p)
			}
		}
	}
	if got, want := strings.Join(names, " "), strings.Join([]string{SmolLM2, Gemma3, Qwen05, Qwen15}, " "); got != want {
		t.Errorf("models %s, want %s", got, want)
	}
}

// outcome records how a test ends.
type outcome struct {
	testing.TB
	skipped, failed bool
}

func (o *outcome) Helper()               {}
func (o *outcome) Skipf(string, ...any)  { o.skipped = true; runtime.Goexit() }
func (o *outcome) Fatalf(string, ...any) { o.failed = true; runtime.Goexit() }

func TestPath(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TALF_ZOO", dir)
	ask := func(name string) (path string, o outcome) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			path = Path(&o, name)
		}()
		<-done
		return path, o
	}
	if _, o := ask(SmolLM2); !o.skipped || o.failed {
		t.Errorf("an absent file: %+v, want a skipped test", o)
	}
	m := Models()[0]
	want := filepath.Join(dir, m.File)
	for size, whole := range map[int64]bool{m.Bytes - 1: false, m.Bytes: true} {
		f, err := os.Create(want)
		if err == nil {
			err = f.Truncate(size) // sparse
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		path, o := ask(SmolLM2)
		if o.skipped || o.failed == whole || whole && path != want {
			t.Errorf("a file of %d bytes: %q, %+v", size, path, o)
		}
	}
	if _, o := ask("smollm3"); !o.failed {
		t.Error("an unknown name does not fail")
	}
}
