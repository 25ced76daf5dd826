package plan

import (
	"slices"
	"strings"
	"testing"

	"talf/compute/devices"
)

// Several ranks train on CPUs, whatever auto means to one process.
func TestTrainingOnDevicesIsRefusedToSeveralRanks(t *testing.T) {
	for _, c := range []struct {
		device devices.Names
		math   string
		ranks  int
		then   devices.Names
		err    string
	}{
		{devices.Names{"cuda:1"}, F32, 1, devices.Names{"cuda:1"}, ""},
		{nil, F32, 1, devices.Names{"cpu"}, ""},
		{nil, F32, 4, devices.Names{"cpu"}, ""},
		{devices.Names{"cpu"}, F32, 4, devices.Names{"cpu"}, ""},
		{devices.Names{"auto"}, F32, 4, devices.Names{"cpu"}, ""},
		{devices.Names{"cuda:1"}, F32, 4, nil, "--device cuda:1 --math f32: 4 ranks train on CPUs"},
		{devices.Names{"cuda:0", "cuda:1"}, F32, 4, nil, "--device cuda:0,cuda:1 --math f32: 4 ranks train on CPUs"},
		{devices.Names{"auto"}, BF16, 2, nil, "--device auto --math bf16: 2 ranks train on CPUs"},
	} {
		p := Place{Devices: c.device, Math: c.math}
		on, err := p.On(c.ranks)
		if !slices.Equal(on, c.then) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: devices %s, %v", c, &on, err)
		}
	}
}
