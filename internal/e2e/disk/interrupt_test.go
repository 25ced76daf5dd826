package disk

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/await"
	"talf/internal/e2e/talftest"
	"talf/internal/vfs"
)

// A cut is an interrupt that comes with an operation.
type cut struct {
	mu      sync.Mutex
	at      int    // number of the operation
	ops     int    // so far
	written string // a file of weights or of an index that was written to after the interrupt
}

// plant sends the process an interrupt with operation c.at, and goes on once the program says that it stops.
func (c *cut) plant(t *testing.T, stderr *talftest.Log) (stop func()) {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return vfs.SetTap(func(op *vfs.Op, run func() error) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ops++; c.ops == c.at {
			if err := self.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
			await.Until(t, "the command to stop", func() bool { return strings.Contains(stderr.String(), "stopping") })
		} else if c.ops > c.at && op.Kind == vfs.Write && large(op.Path) {
			c.written = op.Path
		}
		return quick(op, run)
	})
}

// large reports whether a file may be large, and is no checkpoint, in which a run that is interrupted saves what it has learnt.
func large(path string) bool {
	switch filepath.Ext(strings.TrimSuffix(path, ".tmp")) {
	case ".safetensors", ".bin", ".gguf", ".idx":
		return !strings.Contains(path, "step-")
	}
	return false
}

// An interrupt with any operation ends a command, whatever it is doing: nothing more is written to a file that may be large.
// The same command then ends with the files of a run that was not interrupted.
func TestAnInterruptEndsEveryCommandThatWrites(t *testing.T) {
	talftest.Interrupts(t)
	for _, s := range scenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			if s.large {
				t.Skip("its stages are other scenarios")
			}
			s.interrupted(t)
		})
	}
}

func (s *scenario) interrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "disk")
	run := func(at int) (talftest.Result, *cut) {
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
		c, stderr := &cut{at: at}, new(talftest.Log)
		defer c.plant(t, stderr)()
		var r talftest.Result
		for _, line := range s.commands(dir) {
			if r.Code = command.Run(line, strings.NewReader(s.stdin), new(talftest.Log), stderr); r.Code != command.ExitOK {
				break
			}
		}
		r.Err = stderr.String()
		return r, c
	}
	r, all := run(-1)
	if r.Code != command.ExitOK {
		t.Fatalf("exit %d\n%s", r.Code, r.Err)
	}
	want := s.contents(t, dir)
	for at, stride := 1, s.stride(all.ops); at <= all.ops; at += stride {
		r, c := run(at)
		if c.written != "" {
			t.Errorf("interrupted with operation %d of %d: %s was written to afterwards", at, all.ops, c.written)
		}
		if r.Code == command.ExitOK {
			if why := difference(s.contents(t, dir), want); why != "" {
				t.Errorf("interrupted with operation %d of %d: exit 0, but %s", at, all.ops, why)
			}
			continue
		}
		if r.Code != 130 {
			t.Errorf("interrupted with operation %d of %d: exit %d\n%s", at, all.ops, r.Code, r.Err)
		}
		if r := s.run(s.repeat(dir)); r.Code != command.ExitOK {
			t.Errorf("after an interrupt with operation %d of %d: exit %d\n%s", at, all.ops, r.Code, r.Err)
		} else if why := difference(s.withoutSaved(t, dir, want), want); why != "" {
			t.Errorf("after an interrupt with operation %d of %d: %s", at, all.ops, why)
		}
	}
}

// withoutSaved returns the files below dir without checkpoints that an undisturbed run does not save: an interrupted run that
// keeps all has one of the step before the interrupt.
func (s *scenario) withoutSaved(t *testing.T, dir string, want map[string]string) map[string]string {
	t.Helper()
	found := s.contents(t, dir)
	for name := range found {
		if _, ok := want[name]; !ok && strings.Contains(name, "step-") {
			delete(found, name)
		}
	}
	return found
}
