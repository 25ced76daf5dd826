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

// CopyRate returns an error: this program was built without CUDA.
func CopyRate(compute.Device) (float64, error) { return 0, errors.New("cuda: " + notBuilt) }

// Roomiest returns −1: this program was built without CUDA.
func Roomiest() int { return -1 }
