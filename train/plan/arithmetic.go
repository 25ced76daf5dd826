package plan

import (
	"fmt"

	"talf/compute"
	"talf/train/dist"
)

// revisions are the versions of the bits of a type's products and attention, unless they are the first. A number grows
// whenever such bits change, so that a run that an older release began is not resumed with others.
//
//	bf16, 2: attention on tensor cores, and longer chunks of the LM head's rows
var revisions = map[string]int{"bf16": 2}

// Arithmetic names what trains on dev, where matrices are multiplied in the type math, if its last bits are not the
// CPU's; else it is "". A library that computes large products is named with its version. Several such devices that
// train together are named by their number: each sums the gradients of its own batches before the sum over all of them;
// and so is what sums over processes. A nil group is this process alone.
func Arithmetic(dev compute.Device, math string, group dist.Group) string {
	on := dev.Arithmetic()
	if on == "" {
		return ""
	}
	on += " " + math
	if r := revisions[math]; r > 0 {
		on += fmt.Sprintf(" (version %d)", r)
	}
	if library := dev.Abilities().Training; library != nil {
		if by, why := library.TrainsWith(); why == nil {
			on += ", " + by
		}
	}
	if group != nil && group.Size() > 1 {
		on += fmt.Sprintf(", %d devices", group.Size())
		if sums, ok := group.(interface{ By() string }); ok {
			on += ", " + sums.By()
		}
	}
	return on
}
