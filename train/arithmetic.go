package train

import "talf/compute"

// Arithmetic names what trains on dev, where matrices are multiplied in the type math, if
// its last bits are not the CPU's; else it is "".
func Arithmetic(dev compute.Device, math string) string {
	on := dev.Arithmetic()
	if on == "" {
		return ""
	}
	return on + " " + math
}
