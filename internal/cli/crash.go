package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// Names and sizes of crash reports.
const (
	// CrashDirVariable names the environment variable with the directory of crash reports.
	CrashDirVariable = "TALF_CRASH_DIR"

	running    = ".running"   // ends the name in a run that goes on, or was killed
	crashed    = ".crash.txt" // replaces it after a crash
	headMax    = 1 << 20      // most bytes that are read to tell the two apart
	keptKilled = 30 * 24 * time.Hour
)

// A CrashReport is a file into which the runtime writes what ends the process without its
// consent: a fault in mapped memory, memory that the system refuses, a panic that nothing
// recovers. Run adds the panics that it recovers. A nil CrashReport records nothing.
//
// The file exists while the process runs, because a process that crashes can create none. It is
// removed at the end of a run that did not crash; one that was killed leaves it behind, and a
// later run removes it.
type CrashReport struct {
	f    *os.File
	path string
}

// CrashDir returns the directory of crash reports: the one that TALF_CRASH_DIR names, or one in the
// user's cache. It is empty if there is none.
func CrashDir() string {
	if dir, ok := os.LookupEnv(CrashDirVariable); ok {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "talf", "crashes")
}

// BeginCrashReport begins a report in dir and says on w which earlier runs crashed. version and
// command, a command line without the user's texts, are its head. A report is no reason for a
// run to fail: if none can be written, as in a container without a home, it returns nil.
func BeginCrashReport(w io.Writer, dir, version, command string) *CrashReport {
	if dir == "" || os.MkdirAll(dir, 0o700) != nil {
		return nil
	}
	for _, path := range sweepCrashes(dir) {
		_, _ = fmt.Fprintln(w, "talf: an earlier run crashed: its report is "+path)
	}
	f, err := os.CreateTemp(dir, "talf-*"+running) // for its owner alone
	if err != nil {
		return nil
	}
	r := &CrashReport{f: f, path: f.Name()}
	_, err = fmt.Fprintf(f, "version: %s\ncommand: %s\nbegan: %s\nprocess: %d\n\n", version, command, time.Now().UTC().Format(time.RFC3339), os.Getpid())
	if err == nil {
		err = debug.SetCrashOutput(f, debug.CrashOptions{})
	}
	if err != nil {
		r.End()
		return nil
	}
	return r
}

// End removes the report of a run that did not crash.
func (r *CrashReport) End() {
	if r == nil || r.f == nil {
		return
	}
	_ = debug.SetCrashOutput(nil, debug.CrashOptions{}) // only a file can be refused
	_ = r.f.Close()
	_ = os.Remove(r.path) // a leftover is removed by a later run
	r.f = nil
}

// keep writes what was recovered to the report and returns its path, "" if there is none.
func (r *CrashReport) keep(what string) string {
	if r == nil || r.f == nil {
		return ""
	}
	_, err := r.f.WriteString(what)
	_ = debug.SetCrashOutput(nil, debug.CrashOptions{})
	closed := r.f.Close()
	r.f = nil
	if err != nil || closed != nil {
		return ""
	}
	return settle(r.path)
}

// sweepCrashes returns the reports of runs that crashed since the last sweep, and removes those of
// runs that were killed long ago. The report of a run that goes on looks like the latter.
func sweepCrashes(dir string) (reports []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "talf-") || !strings.HasSuffix(e.Name(), running) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		switch wrote, old := crashOf(path); {
		case wrote:
			if path = settle(path); path != "" {
				reports = append(reports, path)
			}
		case old:
			_ = os.Remove(path)
		}
	}
	return reports
}

// crashOf reports whether more than the head stands in a report, and whether it is old.
func crashOf(path string) (wrote, old bool) {
	f, err := os.Open(path)
	if err != nil {
		return false, false
	}
	defer f.Close() // nothing was written
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return false, false
	}
	b, err := io.ReadAll(io.LimitReader(f, headMax))
	if err != nil {
		return false, false
	}
	_, after, _ := bytes.Cut(b, []byte("\n\n"))
	return len(after) > 0, time.Since(st.ModTime()) > keptKilled
}

// settle gives the report of a crash its final name, by which no run looks at it again. It returns
// "" if another run has done so.
func settle(path string) string {
	to := strings.TrimSuffix(path, running) + crashed
	switch err := os.Rename(path, to); {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return path
	}
	return to
}
