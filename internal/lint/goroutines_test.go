package lint_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/lint"
)

// Every goroutine recovers from panics, or lint.Goroutines says why it need not.
func TestGoroutinesAreGuarded(t *testing.T) {
	used := map[string]bool{}
	for _, name := range tracked(t) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
			continue
		}
		bad, err := lint.Unguarded(name, read(t, name), func(entry string) { used[entry] = true })
		if err != nil {
			t.Error(err)
		}
		for _, b := range bad {
			t.Error(b)
		}
	}
	for entry := range lint.Goroutines {
		if !used[entry] {
			t.Errorf("lint.Goroutines names %s, which starts none that needs it", entry)
		}
	}
}

func TestUnguardedGoroutinesAreFound(t *testing.T) {
	const text = `package p

func (p *pool) f(wg group) {
	go work()
	go func() {
		defer done()
		defer func() { failed(recover()) }()
		work()
	}()
	go func() {
		work()
		defer func() { recover() }()
	}()
	wg.Go(func() { work() })
	wg.Go(func() {
		var err error
		defer func() {
			if r := recover(); r != nil {
				err = nil
			}
		}()
		work()
	})
	time.AfterFunc(1, work)
	defer func() { go work() }()
}
`
	var want []string
	for _, at := range []string{"4:2", "10:2", "14:2", "24:2", "25:17"} {
		want = append(want, "data/p.go:"+at+": pool.f starts a goroutine that does not recover from panics, and lint.Goroutines has no reason")
	}
	got, err := lint.Unguarded("data/p.go", text, func(entry string) { t.Errorf("%s is used", entry) })
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("(-want +got) %v:\n%s", err, diff)
	}
	if got, err := lint.Unguarded("tools/p.go", text, nil); len(got) > 0 || err != nil {
		t.Errorf("test support: %v, %q", err, got)
	}
}
