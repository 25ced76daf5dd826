//go:build gpu && linux && cgo

package cuda_test

import (
	"testing"

	"talf/compute"
	"talf/compute/computetest"
)

func TestDeviceConforms(t *testing.T) {
	computetest.Run(t, func() compute.Device { return device(t) })
}
