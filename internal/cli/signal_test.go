package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"talf/internal/e2e/talftest"
)

// Closing a terminal sends two signals, its own and its shell's: the second is not a request to
// quit at once. If it were treated as one, this process would end here.
func TestAClosedTerminalSendsTwoSignals(t *testing.T) {
	talftest.Interrupts(t)
	talftest.HangsUp(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := watch(io.Discard, cancel, &claims{})
	defer stop()
	came := make(chan os.Signal, 2)
	signal.Notify(came, syscall.SIGHUP)
	defer signal.Stop(came)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := self.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-came
		<-ctx.Done()
	}
	time.Sleep(50 * time.Millisecond) // for the second to take effect
	if err := context.Cause(ctx); !errors.Is(err, ErrInterrupted) {
		t.Errorf("cancelled by %v, want an interruption", err)
	}
}

// A server that claims SIGHUP is told of it, and goes on.
func TestAServerReadsItsFilesAgain(t *testing.T) {
	talftest.Interrupts(t)
	talftest.HangsUp(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	h := &claims{hangups: make(chan struct{}, 1)}
	defer watch(io.Discard, cancel, h)()
	if Hangups(ctx) != nil {
		t.Error("signals without Run")
	}
	c := Hangups(context.WithValue(ctx, claimsKey{}, h))
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := self.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-c
	}
	if ctx.Err() != nil {
		t.Error("SIGHUP ends the server")
	}
	if err := self.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}

// The first Ctrl-C ends what is interruptible alone, the second everything.
func TestTheFirstInterruptEndsAPartAlone(t *testing.T) {
	talftest.Interrupts(t)
	whole, cancel := context.WithCancelCause(t.Context())
	c := &claims{}
	defer watch(io.Discard, cancel, c)()
	ctx := context.WithValue(whole, claimsKey{}, c)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	interrupt := func() {
		t.Helper()
		if err := self.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		part, release := Interruptible(ctx)
		interrupt()
		<-part.Done()
		if err := context.Cause(part); !errors.Is(err, ErrInterrupted) || ctx.Err() != nil {
			t.Fatalf("the part ended by %v, the whole by %v", err, ctx.Err())
		}
		release()
	}
	part, release := Interruptible(ctx)
	release()
	if part.Err() == nil {
		t.Error("a released part goes on")
	}
	interrupt()
	<-whole.Done()
	if err := context.Cause(whole); !errors.Is(err, ErrInterrupted) {
		t.Errorf("the whole ended by %v", err)
	}
}
