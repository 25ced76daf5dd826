package measurements

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"talf/lab/measurements/tables"
)

func TestAHeaderIsReadAsItWasWritten(t *testing.T) {
	want := tables.Header{
		Machine: "AMD EPYC, 2 cores, cpu avx512vnni, 2 threads", Date: "23 November 2026", Commit: "3945f63aa001", Load: 0.5,
		Took: 3*time.Minute + 7*time.Second, Code: []string{"infer", "model"}, Digest: "0123456789ab",
	}
	got, err := tables.ParseHeader(want.String() + "    talf bench\n")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != want.String() || !slices.Equal(got.Code, want.Code) || got.Took != want.Took {
		t.Errorf("read %+v, want %+v", got, want)
	}
	for _, s := range []string{"", "Measured by hand.\n", strings.Replace(want.String(), "`infer model`", "infer", 1)} {
		if _, err := tables.ParseHeader(s); err == nil {
			t.Errorf("%q is no header", s)
		}
	}
}

// What is written into a page keeps to internal/lint's length of lines.
func TestLongLinesOfABlockAreBroken(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("word ", 22))
	row, code := "| "+strings.Repeat("cell ", 40)+"|\n", "    talf "+strings.Repeat("--flag ", 40)+"\n"
	got, err := tables.ReplaceBlock(page, "one", long+" `code span` and more\n"+row+code)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := tables.Block(got, "one"); err != nil || body != long+"\n`code span` and more\n"+row+code {
		t.Errorf("%v, %q", err, body)
	}
}

const page = `# Page

<!-- measured: one -->
old
<!-- end of one -->
between
<!-- measured: two -->
| method | asks | τ | end to end |
|---|---|---|---|
| ` + "`ar`" + ` | – | 1.00 | 1.00 |
| ` + "`auto`" + ` | head | 2.00 | 1.50 [1.40, 1.60] |
| ` + "`auto`" + ` | LM | 3.00 | 1.70 [1.60, 1.80] |

| by set | asks | stories |
|---|---|---|
| ` + "`auto`" + ` | LM | 1.90 |
<!-- end of two -->
`

func TestBlocksOfAPage(t *testing.T) {
	if got := tables.Blocks(page); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("blocks %q", got)
	}
	got, err := tables.ReplaceBlock(page, "one", "new\n")
	if err != nil || got != strings.Replace(page, "old\n", "new\n", 1) {
		t.Errorf("%v\n%s", err, got)
	}
	for name, bad := range map[string]string{"three": page, "one": strings.Replace(page, "<!-- end of one -->\n", "", 1)} {
		if _, err := tables.ReplaceBlock(bad, name, ""); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want an error that names what is missing", name, err)
		}
	}
}

func TestCellsOfABlock(t *testing.T) {
	body, err := tables.Block(page, "two")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{
		{"auto, head", "end to end", "1.50 [1.40, 1.60]"}, {"auto, LM", "τ", "3.00"}, {"ar", "τ", "1.00"}, {"auto, LM", "stories", "1.90"}, {"auto, LM, 3.00", "end to end", "1.70 [1.60, 1.80]"},
	} {
		if got, err := tables.Cell(body, c[0], c[1]); err != nil || got != c[2] {
			t.Errorf("%s, %s: %q (%v), want %q", c[0], c[1], got, err, c[2])
		}
	}
	for _, c := range [][2]string{{"auto, head", "stories"}, {"salf", "τ"}, {"auto, LM", "tokens/s"}, {"auto", "τ"}, {"au", "τ"}} {
		if got, err := tables.Cell(body, c[0], c[1]); err == nil {
			t.Errorf("%s, %s: %q, want none", c[0], c[1], got)
		}
	}
}

// Every table has its place, and what the repository says of it can be read.
func TestEveryTableStandsInItsPage(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	stands := map[string]bool{}
	for _, x := range exhibits {
		b, err := os.ReadFile(filepath.Join(root, x.page))
		if err != nil {
			t.Fatal(err)
		}
		body, err := tables.Block(string(b), x.name)
		if err != nil {
			t.Errorf("%s: %v", x.page, err)
			continue
		}
		stands[filepath.Base(x.page)+" "+x.name] = true
		h, err := tables.ParseHeader(body)
		if err != nil {
			t.Errorf("%s: %s: %v", x.page, x.name, err)
			continue
		}
		if !slices.Equal(h.Code, x.code) {
			t.Errorf("%s: %s was measured for the code of %s, the table is of %s: measure it again", x.page, x.name, h.Code, x.code)
		}
		if !strings.Contains(body, "\n    talf ") && !strings.Contains(body, "\n    lab ") || !strings.Contains(body, "\n|---|") {
			t.Errorf("%s: %s has no command or no table", x.page, x.name)
		}
	}
	all, err := ages(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if !stands[a.page+" "+a.name] {
			t.Errorf("%s: no table %s is made by this program", a.page, a.name)
		}
	}
}

// README.md and docs/performance.md state what the tables say.
func TestQuotesAreThoseOfTheTables(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for i := range quotes {
		q := &quotes[i]
		figures, err := q.fill(root)
		if err != nil {
			t.Error(err)
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, q.file))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := q.write(string(b), figures); err != nil {
			t.Error(err)
		} else if got != string(b) {
			t.Errorf("%s: the row %q should state %q: lab measurements --quote", q.file, q.what, figures)
		}
	}
}

// history returns an empty repository, what runs git in it, and what commits a file.
func history(t *testing.T) (root string, do func(args ...string) string, put func(name, text string)) {
	root = t.TempDir()
	do = func(args ...string) string {
		t.Helper()
		args = append([]string{"-C", root, "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"}, args...)
		out, err := exec.Command("git", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	put = func(name, text string) {
		t.Helper()
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		do("add", "-A")
		do("commit", "-q", "-m", name)
	}
	do("init", "-q")
	return root, do, put
}

func TestATableIsOlderOnceItsCodeChanges(t *testing.T) {
	root, do, put := history(t)
	put("infer/a.go", "package infer\n")
	put("model/a.go", "package model\n")
	of := []string{"infer"}
	d, err := digest(t.Context(), root, of)
	if err != nil {
		t.Fatal(err)
	}
	h := tables.Header{Machine: "m", Date: "d", Commit: do("rev-parse", "--short=12", "HEAD"), Took: time.Second, Code: of, Digest: d}
	put("docs/measurements/p.md", "<!-- measured: x -->\n"+h.String()+"<!-- end of x -->\n")
	is := func(want string) {
		t.Helper()
		all, err := ages(t.Context(), root)
		if err != nil || len(all) != 1 || all[0].String() != want {
			t.Errorf("%v %v, want %q", all, err, want)
		}
	}
	is("current")
	put("model/a.go", "package model // changed\n") // not what it measures
	put("infer/a_test.go", "package infer\n")
	put("infer/README.md", "text\n")
	is("current")
	put("infer/b.go", "package infer\n")
	put("infer/c.go", "package infer\n")
	is("older: 2 commits touch infer since")
	// The history is written anew: that commit is gone, the contents are not.
	do("checkout", "-q", "--orphan", "anew")
	do("commit", "-q", "-m", "all")
	h.Commit = "00000000abcd"
	put("docs/measurements/p.md", "<!-- measured: x -->\n"+h.String()+"<!-- end of x -->\n")
	is("older: infer changed since")
	do("rm", "-q", "infer/b.go", "infer/c.go")
	do("commit", "-q", "-m", "back")
	is("current")
	if _, err := digest(t.Context(), root, []string{"none"}); err == nil {
		t.Error("a folder without code has a digest")
	}
}

func TestAStepIsTakenAgainOnlyForOtherCode(t *testing.T) {
	root, _, put := history(t)
	put("train/a.go", "package train\n")
	put("infer/a.go", "package infer\n")
	l := &lab{root: root, work: "w"}
	if err := os.Mkdir(filepath.Join(root, "w"), 0o755); err != nil {
		t.Fatal(err)
	}
	var did []string
	note := func(name string) func(context.Context, *lab) error {
		return func(context.Context, *lab) error { did = append(did, name); return nil }
	}
	first := &step{name: "first", of: "2", code: []string{"infer"}, run: note("first")}
	second := &step{name: "second", code: []string{"train"}, after: []*step{first}, run: note("second")}
	takes := func(want ...string) {
		t.Helper()
		did = nil
		if err := second.make(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(did, want) {
			t.Errorf("took %q, want %q", did, want)
		}
	}
	takes("first", "second")
	takes()
	put("train/a.go", "package train // changed\n")
	takes("second")
	first.of = "3"
	takes("first", "second") // what comes after it depends on it
	takes()
	// One that broke off may have replaced a part of what an earlier one made.
	broken := errors.New("broken off")
	second.of, second.run = "9", func(context.Context, *lab) error { return broken }
	if err := second.make(t.Context(), l); !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the step", err)
	}
	second.of, second.run = "", note("second")
	takes("second")
}

func TestTextIsWrappedBetweenWords(t *testing.T) {
	got := tables.Wrap("one\n\n" + strings.Repeat("τττττ ", 40) + "\n")
	want := "one\n\n" + strings.TrimSpace(strings.Repeat("τττττ ", 20)) + "\n" + strings.TrimSpace(strings.Repeat("τττττ ", 20)) + "\n"
	if got != want {
		t.Errorf("wrapped to\n%s\nwant\n%s", got, want)
	}
}

func TestCommandsAreShownAsTheyAreTyped(t *testing.T) {
	got := typed("talf", []string{"preprocess", "--template", `{prompt} it's`, "--data", strings.Repeat("x", 90), "--out", "labels", "--quiet"})
	want := `talf preprocess --template '{prompt} it'\''s' \` + "\n        --data " + strings.Repeat("x", 90) + " --out labels --quiet"
	if got != want {
		t.Errorf("typed\n%s\nwant\n%s", got, want)
	}
}
