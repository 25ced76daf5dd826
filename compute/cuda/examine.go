//go:build gpu && linux && cgo

package cuda

import (
	"fmt"
	"strings"

	"gorgonia.org/cu"

	"talf/compute/cuda/internal/driver"
)

// The lowest compute capability, for which the embedded kernels are built.
const leastMajor, leastMinor = 8, 0

// Examine reports the driver and the devices of this machine.
func Examine() Report {
	r := Report{Built: true, Reason: driver.Failure()}
	if v := cu.Version(); v > 0 {
		r.Driver = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	if r.Reason != "" {
		return r
	}
	if r.Missing = driver.Missing(driver.Used...); len(r.Missing) > 0 {
		r.Reason = fmt.Sprintf("the driver, for CUDA %s, is too old: it lacks %s", r.Driver, strings.Join(r.Missing, ", "))
		return r
	}
	n, err := cu.NumDevices()
	switch {
	case err != nil:
		r.Reason = driver.Wrap(err).Error()
	case n == 0:
		r.Reason = "the driver finds no device"
	}
	for i := range n {
		r.Devices = append(r.Devices, describe(i))
	}
	return r
}

// describe returns what is known of device i.
func describe(i int) Info {
	d, err := cu.GetDevice(i)
	if err != nil {
		return Info{Reason: driver.Wrap(err).Error()}
	}
	var info Info
	var errs [4]error
	info.Name, errs[0] = d.Name()
	info.Memory, errs[1] = d.TotalMem()
	info.Major, info.Minor, errs[2] = d.ComputeCapability()
	info.SMs, errs[3] = d.Attribute(cu.MultiprocessorCount)
	for _, err := range errs {
		if err != nil {
			info.Reason = driver.Wrap(err).Error()
			return info
		}
	}
	if info.Major < leastMajor {
		info.Reason = fmt.Sprintf("compute capability %d.%d, want %d.%d or more", info.Major, info.Minor, leastMajor, leastMinor)
	}
	return info
}
