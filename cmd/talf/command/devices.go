package command

import (
	"errors"
	"fmt"
	"strings"

	"talf/compute/cuda"
	"talf/model"
)

// A devicesFlag is the value of --device where several may work side by side: what
// deviceFlag takes, "cuda:all", or CUDA devices with commas between them.
type devicesFlag []deviceFlag

func (d *devicesFlag) Type() string { return "devices" }

func (d *devicesFlag) String() string {
	var all []string
	for i := range *d {
		all = append(all, (*d)[i].String())
	}
	if len(all) == 0 {
		return "cpu"
	}
	return strings.Join(all, ",")
}

// cudaAll means all devices that can be used.
const cudaAll deviceFlag = "cuda:all"

func (d *devicesFlag) Set(s string) error {
	if s == string(cudaAll) {
		*d = devicesFlag{cudaAll}
		return nil
	}
	want := errors.New("want cpu, auto, cuda:all, or cuda:N, of which there may be several with commas between them, N being 0 for the first device")
	var all devicesFlag
	seen := map[deviceFlag]bool{}
	parts := strings.Split(s, ",")
	for _, p := range parts {
		var one deviceFlag
		if err := one.Set(strings.TrimSpace(p)); err != nil || len(parts) > 1 && one.ordinal() < 0 {
			return want
		}
		if seen[one] {
			return fmt.Errorf("%s is there twice", one)
		}
		seen[one] = true
		all = append(all, one)
	}
	*d = all
	return nil
}

// resolve returns the devices that are meant here, of which there is one at least.
// Several must be of one kind: others round differently.
func (d devicesFlag) resolve() (devicesFlag, error) {
	if len(d) == 0 {
		return devicesFlag{"cpu"}, nil
	}
	r := cuda.Examine()
	if len(d) == 1 && d[0] == cudaAll {
		d = nil
		for i := range r.Devices {
			if r.Devices[i].Reason == "" {
				d = append(d, deviceFlag(fmt.Sprintf("cuda:%d", i)))
			}
		}
		if len(d) == 0 && r.Reason == "" {
			r.Reason = "none of its devices can be used: talf doctor says why"
		}
		if len(d) == 0 {
			return nil, fmt.Errorf("--device cuda:all: %s", r.Reason)
		}
	}
	var all devicesFlag
	for _, one := range d {
		one.resolve()
		all = append(all, one)
	}
	for _, one := range all[1:] {
		a, b := all[0].ordinal(), one.ordinal()
		if max(a, b) >= len(r.Devices) {
			continue // opening it says so
		}
		if x, y := r.Devices[a], r.Devices[b]; x.Name != y.Name || x.Major != y.Major || x.Minor != y.Minor {
			return nil, fmt.Errorf("--device: %s is %s and %s is %s, which round differently: take devices of one kind, or give each kind a set of its own", all[0], x.Name, one, y.Name)
		}
	}
	return all, nil
}

// arithmeticOf names what computes a model on device d where labels made with it
// have other last bits than those of the CPU and of the weights as they are stored.
func arithmeticOf(m *model.Model, d deviceFlag, dtype dtypeFlag) string {
	as := strings.ToLower(m.Options().DType.String())
	switch n := d.ordinal(); {
	case n >= 0:
		info := cuda.Examine().Devices[n]
		return fmt.Sprintf("cuda sm_%d%d %s", info.Major, info.Minor, as)
	case dtype != dtypeAuto && m.Options().DType != model.Stored(m.Tensors()):
		return "cpu " + as
	}
	return ""
}
