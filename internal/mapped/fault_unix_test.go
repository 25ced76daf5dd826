//go:build unix

package mapped_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"talf/internal/mapped"
)

// opened maps a file of three pages and more.
func opened(t *testing.T) (path string, b []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 3*os.Getpagesize()+1), 0o600); err != nil {
		t.Fatal(err)
	}
	b, done, err := mapped.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := done(); err != nil {
			t.Error(err)
		}
	})
	return path, b
}

func sum(b []byte) (n int, err error) {
	defer mapped.Guard(&err)()
	for _, x := range b {
		n += int(x)
	}
	return n, nil
}

func TestAFileThatIsCutShortWhileItIsReadIsAnError(t *testing.T) {
	path, b := opened(t)
	_, other := opened(t)
	if _, err := sum(b); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1); err != nil {
		t.Fatal(err)
	}
	_, err := sum(b)
	if fault := (*mapped.FaultError)(nil); !errors.As(err, &fault) || fault.Path != path || !strings.Contains(err.Error(), path+": its bytes could not be read") {
		t.Errorf("%v, want an error that names %s", err, path)
	}
	if _, err := sum(b[:1]); err != nil {
		t.Errorf("the bytes that are left: %v", err)
	}
	if _, err := sum(other); err != nil {
		t.Errorf("another file: %v", err)
	}
}

// What a function defers runs before a Guard further out.
func TestAFaultIsNamedAfterItsFileWasClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var read int
	use := func(cut bool) (err error) {
		defer mapped.Guard(&err)()
		if err := os.WriteFile(path, make([]byte, 2*os.Getpagesize()), 0o600); err != nil {
			t.Fatal(err)
		}
		b, done, err := mapped.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if !cut {
			if err := done(); err != nil {
				t.Fatal(err)
			}
			_, err := sum(b)
			return err
		}
		defer func() { _ = done() }()
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		for _, x := range b { // not under a Guard of its own
			read += int(x)
		}
		return nil
	}
	if err := use(true); !errors.As(err, new(*mapped.FaultError)) {
		t.Errorf("%v after %d, want a fault", err, read)
	}
	defer func() {
		if recover() == nil {
			t.Error("reading a file that was closed is not a bug")
		}
	}()
	t.Error(use(false))
}

func TestAPanicOfAGroupIsTheWaitersOwn(t *testing.T) {
	path, b := opened(t)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	err := func() (err error) {
		defer mapped.Guard(&err)()
		var g mapped.Group
		var read atomic.Int64
		for range 3 {
			g.Go(func() { read.Add(int64(b[0])) })
		}
		g.Wait()
		return nil
	}()
	if !errors.As(err, new(*mapped.FaultError)) {
		t.Errorf("%v, want a fault", err)
	}
}

func TestOtherPanicsGoOn(t *testing.T) {
	for name, f := range map[string]func(){
		"a panic":       func() { panic("oh") },
		"a nil pointer": func() { _ = *(*int)(nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not go on", name)
				}
			}()
			var err error
			defer mapped.Guard(&err)()
			f()
		}()
	}
}
