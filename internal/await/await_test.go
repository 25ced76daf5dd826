package await_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"talf/internal/await"
)

// A recorder is a test that notes with what it fails.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper()                      {}
func (r *recorder) Fatalf(f string, args ...any) { r.said = strings.TrimSpace(f); panic(r) }

func TestOnlyAHangFails(t *testing.T) {
	for wait, fails := range map[time.Duration]bool{0: false, 4 * time.Minute: false, 6 * time.Minute: true} {
		synctest.Test(t, func(t *testing.T) {
			begun, r := time.Now(), &recorder{TB: t}
			func() {
				defer func() { _ = recover() }() // Fatalf
				await.Until(r, "nothing", func() bool { return time.Since(begun) >= wait })
			}()
			if (r.said != "") != fails || !fails && time.Since(begun) != wait {
				t.Errorf("after %v of %v: %q", time.Since(begun), wait, r.said)
			}
		})
	}
}
