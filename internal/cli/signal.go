package cli

import (
	"context"
	"os"
	"sync"
	"syscall"
)

// claims say which signals do not end a process, because a command takes them.
type claims struct {
	hangups chan struct{}

	mu     sync.Mutex
	reload bool                    // somebody takes SIGHUP
	end    context.CancelCauseFunc // of what the next interrupt ends alone, or nil
}

type claimsKey struct{}

// take passes a signal on, and reports whether somebody claimed it. SIGHUPs that come while one
// waits are one.
func (c *claims) take(s os.Signal) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s == syscall.SIGHUP && c.reload:
		select {
		case c.hangups <- struct{}{}:
		default:
		}
		return true
	case s == os.Interrupt && c.end != nil:
		c.end(ErrInterrupted)
		c.end = nil
		return true
	}
	return false
}

// Hangups returns a channel of the SIGHUPs that come from now on. They ask a server to read its files
// again, and no longer to stop. ctx is the context that Run passes on; of another, or where
// there is no such signal, nothing comes.
func Hangups(ctx context.Context) <-chan struct{} {
	c, ok := ctx.Value(claimsKey{}).(*claims)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reload = true
	return c.hangups
}

// Interruptible returns a context that the next Ctrl-C ends in place of ctx, the context that Run
// passes on. Once it has, or after release, the next one ends ctx again.
func Interruptible(ctx context.Context) (part context.Context, release func()) {
	part, end := context.WithCancelCause(ctx)
	c, ok := ctx.Value(claimsKey{}).(*claims)
	if !ok {
		return part, func() { end(nil) }
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
	return part, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end = nil
		end(nil)
	}
}
