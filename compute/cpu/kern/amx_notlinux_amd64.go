//go:build !linux && !purego

package kern

import "errors"

func permitTiles() error { return errors.New("only Linux is asked for it") }
