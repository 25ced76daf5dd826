package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/vfs"
	"talf/internal/vfs/vfstest"
)

// After a power failure at any operation the same command ends with the files of a run that was not
// disturbed, and what a command reported as written is there.
func TestEveryCommandSurvivesAPowerFailure(t *testing.T) {
	points, operations := 0, 0
	for _, s := range scenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			if s.large && !*every {
				t.Skip("takes minutes for each operation; runs with -every")
			}
			n, ops := s.loses(t)
			t.Logf("%d states after %d operations", n, ops)
			points, operations = points+n, operations+ops
		})
	}
	t.Logf("all commands: %d states of the disk after %d operations", points, operations)
}

// loses fails the power at the operations of a scenario. It returns how many states of the disk it tried, and the number of operations.
func (s *scenario) loses(t *testing.T) (points, operations int) {
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if s.begin != nil {
		s.begin(t, dir)
	}
	j, stop := vfstest.Watch(t, dir)
	if r := s.run(s.commands(dir)); r.Code != command.ExitOK {
		t.Fatalf("exit %d\n%s", r.Code, r.Err)
	}
	stop()
	want := s.contents(t, dir)
	if len(want) == 0 || j.Len() == 0 {
		t.Fatalf("%d files after %d operations", len(want), j.Len())
	}
	states := 0
	j.Replay(func(int, vfstest.State) bool { states++; return true })
	stride := s.stride(states)
	defer vfs.SetTap(quick)()
	at := 0
	j.Replay(func(done int, state vfstest.State) bool {
		if at++; at%stride != 0 && done < j.Len() {
			return true
		}
		points++
		before := "the end"
		if done < j.Len() {
			before = j.Op(done)
		}
		state.Restore(t, dir)
		if why := s.recovers(t, dir, want, done == j.Len()); why != "" {
			t.Errorf("power fails before operation %d, %s: %s: %s", done, before, state.Name, why)
		}
		return !t.Failed()
	})
	return points, j.Len()
}

// recovers does what a user does after a power failure and says what goes wrong. succeeded says that
// the commands had ended.
func (s *scenario) recovers(t *testing.T, dir string, want map[string]string, succeeded bool) string {
	t.Helper()
	found := s.contents(t, dir)
	if succeeded {
		return difference(found, want)
	}
	if s.read != nil {
		switch r := talf("", s.read(dir)...); r.Code {
		case command.ExitOK:
			for name, text := range want { // what hidden files there are does not matter
				if strings.HasPrefix(name, "out/") && found[name] != text {
					return "unfinished files were read as complete: " + name
				}
			}
		case command.ExitFailure:
		default:
			return "reading: " + r.Err
		}
	}
	r := s.run(s.repeat(dir))
	if r.Code != command.ExitOK && strings.Contains(r.Err, "not empty") {
		return difference(found, want) // it was complete, although nobody had been told
	}
	if r.Code != command.ExitOK {
		return "again: " + r.Err
	}
	return difference(s.contents(t, dir), want)
}
