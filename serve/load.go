package serve

import "sync"

// A load is how many requests are being answered. The zero value has none.
type load struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // not nil: no more requests; closed when the last has ended
}

// enter counts a request, unless no more are taken.
func (l *load) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle != nil {
		return false
	}
	l.running++
	return true
}

// leave ends a request.
func (l *load) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running--; l.running == 0 && l.idle != nil {
		close(l.idle)
	}
}

// drain takes no more requests. The channel is closed when those that were taken have ended.
func (l *load) drain() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle == nil {
		if l.idle = make(chan struct{}); l.running == 0 {
			close(l.idle)
		}
	}
	return l.idle
}

func (l *load) draining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.idle != nil
}
