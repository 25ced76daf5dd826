// Package await lets tests wait for what other goroutines or processes do, on machines of any speed.
package await

import (
	"testing"
	"time"
)

// hang is how long nobody waits, on the busiest machine. It is below the ten minutes after which go test
// ends a test without a word about it.
const hang = 5 * time.Minute

// Until waits until is reports true. It fails t if that takes five minutes; what says what did not come.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for begun := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > hang {
			t.Fatalf("waited five minutes for %s", what)
		}
	}
}
