package plan

import (
	"slices"
	"strings"
	"testing"

	"talf/compute/devices"
)

// Several ranks train on CPUs, whatever auto means to one process, or on one device each.
func TestRanksShareDevicesOut(t *testing.T) {
	both := devices.Names{"cuda:4", "cuda:2"}
	for _, c := range []struct {
		device devices.Names
		math   string
		ranks  int
		local  string
		then   devices.Names
		err    string
	}{
		{devices.Names{"cuda:1"}, F32, 1, "", devices.Names{"cuda:1"}, ""},
		{nil, F32, 1, "", devices.Names{"cpu"}, ""},
		{nil, F32, 4, "", devices.Names{"cpu"}, ""},
		{devices.Names{"cpu"}, F32, 4, "0", devices.Names{"cpu"}, ""},
		{devices.Names{"auto"}, F32, 4, "1", devices.Names{"cpu"}, ""},
		{devices.Names{"auto"}, BF16, 2, "0", nil, "math bf16 is for CUDA devices, and with device auto 2 ranks train on CPUs"},
		{both, F32, 1, "", both, ""},
		{both, F32, 4, "0", devices.Names{"cuda:4"}, ""}, // two machines with two ranks each
		{both, BF16, 4, "1", devices.Names{"cuda:2"}, ""},
		{both, F32, 4, "2", nil, "device cuda:4,cuda:2: there is no device for rank 2 of this machine"},
		{devices.Names{"cuda:1"}, F32, 2, "1", nil, "device cuda:1: there is no device for rank 1 of this machine"},
		{both, F32, 4, "", nil, "the launcher does not tell ranks their places"},
		{both, F32, 4, "x", nil, "want a whole number"},
	} {
		p := Place{Devices: c.device, Math: c.math}
		on, err := p.On(c.ranks, func(name string) (string, bool) { return c.local, c.local != "" && name == "SLURM_LOCALID" })
		if !slices.Equal(on, c.then) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: devices %s, %v", c, &on, err)
		}
	}
}
