package plan

import (
	"fmt"

	"talf/compute"
)

// Arithmetic names what trains on dev, where matrices are multiplied in the type math, if
// its last bits are not the CPU's; else it is "". Several such devices that train together are named by
// their number: each sums the gradients of its own batches before the sum over all of them.
func Arithmetic(dev compute.Device, math string, devices int) string {
	on := dev.Arithmetic()
	switch {
	case on == "":
		return ""
	case devices > 1:
		return fmt.Sprintf("%s %s, %d devices", on, math, devices)
	}
	return on + " " + math
}
