package cpu

import "sync"

// A memory is where hugeAlloc takes from.
type memory struct {
	mu   sync.Mutex
	open *region // that has room, or nil
}
