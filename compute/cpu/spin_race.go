//go:build race

package cpu

import "time"

// The race detector slows everything but products down, and every poll: idle workers would spin through most
// of a test, and take the core from other tests. Here they poll about as long as it takes to come back, so
// that all ways of waiting are taken.
const (
	spin      = 20 * time.Microsecond
	looks     = 128
	joinSpins = 512
)
