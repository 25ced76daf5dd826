package lint_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/lint"
)

// No test's result depends on a clock, or lint.Clocks says why that may be.
func TestNoTestReadsAClock(t *testing.T) {
	used := map[string]bool{}
	for _, name := range tracked(t) {
		if !strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
			continue
		}
		bad, err := lint.Timed(name, read(t, name), func(entry string) { used[entry] = true })
		if err != nil {
			t.Error(err)
		}
		for _, b := range bad {
			t.Error(b)
		}
	}
	for entry := range lint.Clocks {
		if !used[entry] {
			t.Errorf("lint.Clocks names %s, which reads no clock", entry)
		}
	}
}

func TestClocksAreFound(t *testing.T) {
	const text = `package p

func TestIt(t *testing.T) {
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) { time.Sleep(time.Second); use(time.Now()) })
	s.Check(func() { time.Sleep(1) })
	if time.Since(begun) > time.Second || t.Now() {
		t.Error("slow")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
}

func measure(b *testing.B) { use(time.Now()) }
`
	got, err := lint.Timed("p/x_test.go", text, func(string) { t.Error("it has a reason") })
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i], _, _ = strings.Cut(got[i], " in a test")
	}
	if d := cmp.Diff([]string{"p/x_test.go:4:11: time.Now", "p/x_test.go:6:19: time.Sleep", "p/x_test.go:7:5: time.Since", "p/x_test.go:10:17: context.WithTimeout"}, got); d != "" {
		t.Error(d)
	}
	reasons := 0
	if got, err := lint.Timed("train/kill_test.go", text, func(string) { reasons++ }); err != nil || len(got) > 0 || reasons != 4 {
		t.Errorf("%q, %v, with %d reasons, want 4", got, err, reasons)
	}
}
