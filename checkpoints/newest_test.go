package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"talf/internal/vfs"
	"talf/internal/vfs/vfstest"
)

// damages are ways in which a disk or a user damages a checkpoint.
var damages = map[string]func(dir string) error{
	"weights cut short": func(dir string) error { return os.Truncate(filepath.Join(dir, WeightsFile), 8) },
	"a flipped bit": func(dir string) error {
		path := filepath.Join(dir, optimizerFile)
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[len(b)-1] ^= 1
		return os.WriteFile(path, b, 0o600)
	},
	"a missing file":      func(dir string) error { return os.Remove(filepath.Join(dir, StateFile)) },
	"an empty manifest":   func(dir string) error { return os.Truncate(filepath.Join(dir, ManifestFile), 0) },
	"a manifest of zeros": func(dir string) error { return os.WriteFile(filepath.Join(dir, ManifestFile), make([]byte, 99), 0o600) },
}

func TestADamagedCheckpointFallsBackToTheNewestGoodOne(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			s := store(t, 1)
			s.keep = 3
			var dirs []string
			for step := range 3 {
				dirs = append(dirs, save(t, s, sample(10*(step+1))))
			}
			for _, dir := range dirs[1:] {
				if err := damage(dir); err != nil {
					t.Fatal(err)
				}
			}
			var warnings []string
			st, err := s.OpenNewest(t.Context(), func(w string) { warnings = append(warnings, w) })
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			if st.Dir != dirs[0] || st.Manifest.Step != 10 {
				t.Errorf("opened %s of step %d, want %s", st.Dir, st.Manifest.Step, dirs[0])
			}
			if len(warnings) != 2 {
				t.Fatalf("warnings %q, want one for each damaged checkpoint", warnings)
			}
			for i, steps := range []int{20, 10} {
				dir := dirs[2-i]
				aside := filepath.Join(s.Dir(), "damaged-"+filepath.Base(dir))
				for _, want := range []string{ErrDamaged.Error(), dir, aside, dirs[0], fmt.Sprintf("%d steps are made again", steps)} {
					if !strings.Contains(warnings[i], want) {
						t.Errorf("%q, want %q in the warning", warnings[i], want)
					}
				}
				if _, err := os.Stat(aside); err != nil {
					t.Error(err)
				}
			}
			latestIs(t, s, dirs[0])
			// The damaged ones do not count among those that are kept.
			s.keep = 1
			latestIs(t, s, save(t, s, sample(11)))
		})
	}
}

// If no checkpoint is whole, nothing is changed: perhaps something can be saved by hand.
func TestWithoutAGoodCheckpointNothingIsChanged(t *testing.T) {
	s := store(t, 0)
	dirs := []string{save(t, s, sample(1)), save(t, s, sample(2))}
	for _, dir := range dirs {
		if err := os.Truncate(filepath.Join(dir, WeightsFile), 1); err != nil {
			t.Fatal(err)
		}
	}
	st, err := s.OpenNewest(t.Context(), func(w string) { t.Errorf("a warning: %s", w) })
	if st != nil || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), filepath.Join(dirs[1], WeightsFile)) || !strings.Contains(err.Error(), "begin anew") {
		t.Errorf("%v, %v, want what is wrong with the newest", st, err)
	}
	if all, err := s.Steps(); err != nil || len(all) != 2 {
		t.Errorf("left %v, %v", all, err)
	}
}

// A checkpoint that cannot be read now may be readable later: no steps are thrown away for that.
func TestACheckpointThatCannotBeReadIsNotDamaged(t *testing.T) {
	s := store(t, 0)
	save(t, s, sample(1))
	newest := save(t, s, sample(2))
	for _, file := range []string{ManifestFile, WeightsFile, optimizerFile} {
		stop := vfstest.Fail(t, func(op *vfs.Op) error {
			if op.Kind == vfs.Open && op.Path == filepath.Join(newest, file) {
				return syscall.EMFILE
			}
			return nil
		})
		_, err := s.OpenNewest(t.Context(), func(w string) { t.Errorf("a warning: %s", w) })
		stop()
		if errors.Is(err, ErrDamaged) || !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want EMFILE and the file", file, err)
		}
	}
	latestIs(t, s, newest)
}

// A reader that finds a checkpoint which is removed before it is open reads the next.
func TestAReaderGetsAnotherCheckpointInPlaceOfOneThatIsRemoved(t *testing.T) {
	s := store(t, 1)
	save(t, s, sample(1))
	var tried []string
	err := Read(s.Dir(), func(dir string) error {
		if tried = append(tried, filepath.Base(dir)); len(tried) < 4 {
			save(t, s, sample(len(tried)+1))
		}
		_, err := os.Stat(filepath.Join(dir, WeightsFile))
		return err
	})
	if got := strings.Join(tried, " "); err != nil || got != "step-00000001 step-00000002 step-00000003 step-00000004" {
		t.Errorf("%v, read %s", err, got)
	}
	// What is missing from the one checkpoint that there is stays missing.
	calls := 0
	err = Read(s.Dir(), func(dir string) error {
		calls++
		return fmt.Errorf("open: %w", fs.ErrNotExist)
	})
	if !errors.Is(err, fs.ErrNotExist) || calls != 1 {
		t.Errorf("%v after %d calls, want one", err, calls)
	}
}

// Readers of a run in progress that keeps one checkpoint always find a whole one.
func TestReadersAndARunInProgress(t *testing.T) {
	s := store(t, 1)
	save(t, s, sample(1))
	const last = 50
	done := make(chan error, 1)
	go func() {
		var err error
		for step := 2; step <= last && err == nil; step++ {
			_, err = s.Save(sample(step))
		}
		done <- err
	}()
	reads, newest := 0, 0
	for running := true; running; reads++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
		err := Read(s.Dir(), func(dir string) error {
			st, err := Open(t.Context(), dir)
			if err != nil {
				return err
			}
			newest = max(newest, st.Manifest.Step)
			return st.Close()
		})
		if err != nil {
			t.Fatalf("read %d: %v", reads, err)
		}
	}
	if newest != last {
		t.Errorf("the newest checkpoint read is of step %d, want %d", newest, last)
	}
	t.Logf("%d reads of %d checkpoints", reads, last)
}

// A later release's checkpoint is whole: it is not taken for damaged and set aside.
func TestACheckpointOfALaterReleaseIsLeftWhereItIs(t *testing.T) {
	s := store(t, 1)
	s.keep = 2
	save(t, s, sample(10))
	dir := save(t, s, sample(20))
	path := filepath.Join(dir, ManifestFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	later := strings.Replace(string(b), fmt.Sprintf(`"schema": %d`, Schema), fmt.Sprintf(`"schema": %d, "step": "later"`, Schema+1), 1)
	if later == string(b) {
		t.Fatalf("no schema %d in %s", Schema, b)
	}
	if err := os.WriteFile(path, []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := s.OpenNewest(t.Context(), func(w string) { t.Errorf("warned: %s", w) })
	if err == nil {
		t.Errorf("opened %s, want an error", st.Dir)
		_ = st.Close()
	} else if errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), fmt.Sprintf("schema: version %d", Schema+1)) {
		t.Errorf("%v, want the schema alone in the error", err)
	}
	latestIs(t, s, dir)
}
