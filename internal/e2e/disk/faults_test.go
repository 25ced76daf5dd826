package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/e2e/talftest"
	"talf/internal/vfs"
)

// A fault is an error that an operation may return.
type fault struct {
	kind vfs.Kind
	err  syscall.Errno
}

var faults = []fault{
	{vfs.Open, syscall.EIO},
	{vfs.Open, syscall.EMFILE},
	{vfs.Read, syscall.EIO},
	{vfs.ReadDir, syscall.EIO},
	{vfs.Create, syscall.EMFILE},
	{vfs.Create, syscall.ENOSPC},
	{vfs.Lock, syscall.EIO},
	{vfs.Mkdir, syscall.ENOSPC},
	{vfs.Write, syscall.EIO},
	{vfs.Write, syscall.ENOSPC},
	{vfs.Truncate, syscall.EIO},
	{vfs.Sync, syscall.EIO},
	{vfs.Sync, syscall.ENOSPC},
	{vfs.Close, syscall.EIO},
	{vfs.Rename, syscall.EIO},
	{vfs.Remove, syscall.EIO},
	{vfs.SyncDir, syscall.EIO},
}

// plant makes the k-th operation of a kind fail, counted from 0. A write leaves half of its data. op
// is the operation that failed, nil if there were fewer.
func (f fault) plant(k int) (op func() *vfs.Op, stop func()) {
	var mu sync.Mutex
	var failed *vfs.Op
	n := 0
	stop = vfs.SetTap(func(op *vfs.Op, run func() error) error {
		if op.Kind != f.kind {
			return quick(op, run)
		}
		mu.Lock()
		n++
		this := n == k+1
		if this {
			failed = op
		}
		mu.Unlock()
		if !this {
			return quick(op, run)
		}
		if op.Kind == vfs.Write {
			op.Data = op.Data[:len(op.Data)/2]
			_ = run() // the planted error is the one to report
		}
		return f.err
	})
	return func() *vfs.Op {
		mu.Lock()
		defer mu.Unlock()
		return failed
	}, stop
}

// If the k-th operation of any kind fails, a command either ends with an error that names the file, or
// does without and has written everything. The same command then ends with the files of a run that
// was not disturbed.
func TestEveryCommandSurvivesFailingOperations(t *testing.T) {
	runs, tolerated := 0, 0
	for _, s := range scenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			if s.large && !*every {
				t.Skip("takes minutes for each operation; runs with -every")
			}
			n, ok := s.fails(t)
			t.Logf("%d failing operations, %d of them did not matter", n, ok)
			runs, tolerated = runs+n, tolerated+ok
		})
	}
	t.Logf("all commands: %d failing operations, %d of them did not matter", runs, tolerated)
}

func (s *scenario) fails(t *testing.T) (runs, tolerated int) {
	dir := filepath.Join(t.TempDir(), "disk")
	fresh := func() {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if s.begin != nil {
			s.begin(t, dir)
		}
	}
	fresh()
	counts := map[vfs.Kind]int{}
	var mu sync.Mutex
	stop := vfs.SetTap(func(op *vfs.Op, run func() error) error {
		mu.Lock()
		counts[op.Kind]++
		mu.Unlock()
		return quick(op, run)
	})
	r := s.run(s.commands(dir))
	stop()
	if r.Code != command.ExitOK {
		t.Fatalf("exit %d\n%s", r.Code, r.Err)
	}
	want := s.contents(t, dir)
	total := 0
	for _, f := range faults {
		total += counts[f.kind]
	}
	stride, at := s.stride(total), 0
	for _, f := range faults {
		for k := range counts[f.kind] {
			if at++; at%stride != 0 {
				continue
			}
			fresh()
			failed, stop := f.plant(k)
			r := s.run(s.commands(dir))
			stop()
			op := failed()
			if op == nil {
				continue // threads did it in another order
			}
			runs++
			if why := s.copes(t, dir, want, r, op, f.err); why != "" {
				t.Errorf("%s number %d, %s, fails with %v: %s", f.kind, k, op.Path, f.err, why)
			}
			if r.Code == command.ExitOK {
				tolerated++
			}
		}
	}
	return runs, tolerated
}

// copes says what is wrong with the result r of a run in which op failed, and with what it left.
func (s *scenario) copes(t *testing.T, dir string, want map[string]string, r talftest.Result, op *vfs.Op, err error) string {
	t.Helper()
	found := s.contents(t, dir)
	if r.Code == command.ExitOK {
		return difference(found, want)
	}
	if r.Code != command.ExitFailure || strings.Contains(r.Err, "goroutine ") {
		return fmt.Sprintf("exit %d\n%s", r.Code, r.Err)
	}
	if !strings.Contains(r.Err, err.Error()) || !names(r.Err, op.Path) {
		return fmt.Sprintf("the error names neither file nor reason:\n%s", r.Err)
	}
	again := s.run(s.repeat(dir))
	if again.Code != command.ExitOK {
		if strings.Contains(again.Err, "not empty") && difference(found, want) == "" {
			return "" // what failed came after the directory was complete
		}
		return fmt.Sprintf("after\n%sagain: %s", r.Err, again.Err)
	}
	return difference(s.contents(t, dir), want)
}

// names reports whether a message names a file, or the one that it becomes.
func names(message, path string) bool {
	base := filepath.Base(path)
	for _, hidden := range []string{".tmp", ".lock"} {
		if rest, ok := strings.CutSuffix(base, hidden); ok && strings.HasPrefix(rest, ".") && len(rest) > 1 {
			base = rest[1:]
		}
	}
	return strings.Contains(message, base)
}
