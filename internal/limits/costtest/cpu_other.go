//go:build !unix

package costtest

import "time"

var began = time.Now()

// cpu returns the time since the start: there is no portable processor time.
func cpu() time.Duration { return time.Since(began) }
