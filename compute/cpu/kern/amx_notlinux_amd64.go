//go:build !linux && !purego

package kern

import "errors"

func permitTiles() error { return errors.New("it is asked for on Linux only") }
