package leak

import (
	"strings"
	"testing"
	"time"

	"talf/internal/await"
)

// forever waits until its channel is closed.
func forever(c chan int) { <-c }

func TestGoroutinesThatAreLeftAreFound(t *testing.T) {
	// The test itself, and what runs it, are goroutines of others.
	before := len(running())
	held := make(chan int)
	go forever(held)
	if n := len(running()); n != before+1 {
		t.Errorf("%d goroutines are seen, %d before", n, before)
	}
	var said strings.Builder
	if code := check(func() int { return 0 }, &said, time.Millisecond, 3); code != 1 || !strings.Contains(said.String(), "leak.forever(") {
		t.Errorf("exit %d: %s", code, &said)
	}
	said.Reset()
	if code := check(func() int { return 3 }, &said, time.Hour, 1); code != 3 || said.Len() > 0 {
		t.Errorf("failed tests: exit %d: %s", code, &said)
	}
	close(held)
	await.Until(t, "a goroutine to end", func() bool { return len(running()) <= before })
}

// A goroutine that is about to end is waited for, and those of a process do not count.
func TestGoroutinesHaveTimeToEnd(t *testing.T) {
	for stack, want := range map[string]bool{
		"goroutine 5 [syscall]:\nos/signal.signal_recv()\ncreated by os/signal.Notify.func1.1 in goroutine 1": true,
		"goroutine 6 [chan receive]:\ntalf/x.f()\ncreated by talf/x.g in goroutine 1":                         false,
		"goroutine 7 [runnable]:\nruntime.ensureSigM.func1()\ncreated by runtime.ensureSigM in goroutine 1":   true,
	} {
		if got := ofProcess(stack); got != want {
			t.Errorf("%q: %v, want %v", stack, got, want)
		}
	}
}
