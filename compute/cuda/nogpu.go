//go:build !gpu

package cuda

import (
	"errors"

	"talf/compute"
)

const notBuilt = "this program was built without CUDA: build it with -tags gpu"

// New returns an error: this program was built without the tag gpu.
func New(Config) (compute.Device, error) { return nil, errors.New("cuda: " + notBuilt) }

// Examine reports that this program was built without the tag gpu.
func Examine() Report { return Report{Reason: notBuilt} }
