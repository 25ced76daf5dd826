package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

var testFile = FlagFile{Without: []string{"config"}, Clashes: [][2]string{{"steps", "epochs"}}}

func testFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.String("config", "", "")
	f.String("name", "", "")
	f.Int("steps", 7, "")
	f.Float64("epochs", 0, "")
	f.Float64("lr", 0.5, "")
	f.Var(new(Files), "data", "")
	f.StringArray("method", nil, "")
	f.StringSlice("origin", []string{"none"}, "")
	f.IntSlice("clients", nil, "")
	return f
}

// A file has the flags of its command line; flags of the next command line win over it,
// and over what they exclude in it.
func TestAFileOfFlagsIsItsCommandLine(t *testing.T) {
	write := func(f *pflag.FlagSet) string {
		t.Helper()
		var b strings.Builder
		if err := testFile.Write(&b, f, func(name string) bool { return name == "lr" }); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	f := testFlags()
	if err := f.Parse([]string{"--name", "true", "--data", "a: b", "--data", "c", "--epochs", "2", "--config", "x", "--method", "a:b=1,c=2", "--method", "d", "--origin", "x,z"}); err != nil {
		t.Fatal(err)
	}
	text := write(f)
	want := "data:\n  - 'a: b'\n  - c\nepochs: 2\nmethod:\n  - a:b=1,c=2\n  - d\nname: \"true\"\norigin:\n  - x\n  - z\n"
	if text != want {
		t.Errorf("written:\n%s\nwant:\n%s", text, want)
	}
	file := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	again := testFlags()
	if err := testFile.Read(again, file); err != nil {
		t.Fatal(err)
	}
	if got := write(again); got != text {
		t.Errorf("read again:\n%s", got)
	}
	over := testFlags()
	if err := over.Parse([]string{"--steps", "3", "--data", "d", "--method", "e"}); err != nil {
		t.Fatal(err)
	}
	if err := testFile.Read(over, file); err != nil {
		t.Fatal(err)
	}
	if got, want := write(over), "data:\n  - d\nmethod:\n  - e\nname: \"true\"\norigin:\n  - x\n  - z\nsteps: 3\n"; got != want {
		t.Errorf("below a command line:\n%s\nwant:\n%s", got, want)
	}
}

// Lists of other types are checked like single values.
func TestAFileOfFlagsHasLists(t *testing.T) {
	for text, want := range map[string]string{
		"clients: [1, 2]": "", "clients: 1": "", "clients: [1, x]": "clients", "clients: [[1]]": "plain value", "steps: [1]": "plain value", "origin: {a: b}": "plain value",
	} {
		file := filepath.Join(t.TempDir(), "run.yaml")
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		f := testFlags()
		err := testFile.Read(f, file)
		if want == "" && (err != nil || !f.Changed("clients")) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzFlagFile(f *testing.F) {
	for _, s := range []string{"", "steps: 1", "data: [a, b]", "x: &a [*a]", "lr: !!float .nan", "? [a]\n: b", "&a lr: 1\n*a : 2", "config: x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		file := filepath.Join(t.TempDir(), "run.yaml")
		if err := os.WriteFile(file, []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := testFile.Read(testFlags(), file); err != nil && !strings.Contains(err.Error(), "run.yaml") {
			t.Errorf("%q: %v does not name the file", s, err)
		}
	})
}
