package cpu

import "sync"

// A memory is what hugeAlloc allocates from.
type memory struct {
	mu   sync.Mutex
	open *region // that has room, or nil
}
