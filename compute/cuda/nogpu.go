//go:build !gpu || !linux || !cgo

package cuda

import (
	"errors"

	"talf/compute"
)

const notBuilt = "this program was built without CUDA, which -tags gpu adds on Linux with cgo"

// New returns an error: this program was built without CUDA.
func New(Config) (compute.Device, error) { return nil, errors.New("cuda: " + notBuilt) }

// Examine reports that this program was built without CUDA.
func Examine() Report { return Report{Reason: notBuilt} }
