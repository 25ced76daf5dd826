//go:build !amd64 || purego

package kern

import "errors"

// NoAMX returns why class AMX is not available.
func NoAMX() error { return errors.New("no AMX: this build has no assembly for amd64") }
