package devices

import (
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
)

func TestNamesAreParsed(t *testing.T) {
	for in, want := range map[string]Name{
		"cpu": "cpu", "auto": "auto", "cuda": "cuda:0", "cuda:0": "cuda:0", "cuda:12": "cuda:12",
	} {
		var n Name
		if err := n.Set(in); err != nil || n != want {
			t.Errorf("%q is %q, %v, want %q", in, n, err, want)
		}
		if remote := strings.HasPrefix(in, "cuda"); n.Remote() != remote {
			t.Errorf("%q has memory of its own: %v", in, !remote)
		}
	}
	for _, in := range []string{"", "gpu", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:99999", "cuda:all", "CPU"} {
		n := Name("auto")
		if err := n.Set(in); err == nil || !strings.Contains(err.Error(), "want cpu, auto or cuda:N") || n != Auto {
			t.Errorf("%q: %v, and the flag is %q", in, err, n)
		}
	}
	var zero Name
	if zero.String() != "cpu" || zero.Remote() || zero.Resolve() != zero {
		t.Error("the empty name is not the CPU")
	}
}

func TestListsAreParsed(t *testing.T) {
	for in, want := range map[string]Names{
		"cpu": {"cpu"}, "auto": {"auto"}, "cuda": {"cuda:0"}, "cuda:all": {"cuda:all"}, "cuda:1, cuda:0": {"cuda:1", "cuda:0"},
	} {
		var n Names
		if err := n.Set(in); err != nil || !slices.Equal(n, want) {
			t.Errorf("%q is %q, %v, want %q", in, n, err, want)
		}
	}
	for in, says := range map[string]string{
		"cpu,cuda:0": "want cpu, auto, cuda:all, or cuda:N", "auto,cuda:0": "want cpu", "cuda:all,cuda:0": "want cpu",
		"": "want cpu", "cuda:1,cuda:1": "cuda:1 is there twice", "cuda,cuda:0": "cuda:0 is there twice",
	} {
		var n Names
		if err := n.Set(in); err == nil || !strings.Contains(err.Error(), says) || n != nil {
			t.Errorf("%q: %v, want %q, and the flag is %q", in, err, says, n)
		}
	}
	if n, err := (Names{}).Resolve(); err != nil || !slices.Equal(n, Names{CPU}) {
		t.Errorf("no devices are %q, %v, want the CPU", n, err)
	}
}

// Devices that differ round differently.
func TestDevicesOfDifferentModelsDoNotWorkTogether(t *testing.T) {
	a, b := &Info{Device: "x:0", Name: "A", Capability: "8.0"}, &Info{Device: "x:1", Name: "A", Capability: "9.0"}
	if err := alike([]*Info{a, a}); err != nil {
		t.Error(err)
	}
	if err := alike([]*Info{a, b}); err == nil || !strings.Contains(err.Error(), "x:0") || !strings.Contains(err.Error(), "x:1") {
		t.Errorf("error %v", err)
	}
	if err := alike(nil); err != nil {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	d, err := Open("", Config{Threads: 1, ActBits: 8})
	if err != nil {
		t.Fatal(err)
	}
	if c := d.(*cpu.Device).Config(); c.Threads != 1 || c.ActBits != 8 || d.Arithmetic() != "" {
		t.Errorf("the CPU with %+v, arithmetic %q", c, d.Arithmetic())
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name Name
		Config
	}{{CPU, Config{TrainBF16: true}}, {CPU, Config{Threads: 1 << 30}}, {CPU, Config{ActPlanes: 1, Weights: compute.BF16}}, {"cuda:0", Config{ActPlanes: 1}}, {"cuda:0", Config{ActBits: 8}}, {"cuda:0", Config{Weights: compute.BF16DP}}, {"cuda:4096", Config{}}} {
		if d, err := Open(c.name, c.Config); err == nil {
			t.Errorf("%s opens with %+v", c.name, c.Config)
			d.Close()
		}
	}
}

// Every kind says what it offers, or why it offers nothing.
func TestExamine(t *testing.T) {
	for i, r := range Examine() {
		if r.API == "" || r.Devices == nil || (r.Reason == "") != (len(r.Devices) > 0) {
			t.Errorf("report %+v", r)
		}
		for j, d := range r.Devices {
			k, ordinal, ok := d.Device.find()
			if !ok || k.name != kinds()[i].name || ordinal != j {
				t.Errorf("device %d is called %q", j, d.Device)
			}
		}
	}
}

func TestActivationsHaveEightOrSixteenBits(t *testing.T) {
	for in, ok := range map[string]bool{"8": true, "16": true, "auto": true, "": false, "32": false, "08": false} {
		var b ActBits
		if err := b.Set(in); (err == nil) != ok || ok && b.String() != in {
			t.Errorf("%q: %v, %v", in, &b, err)
		}
	}
}
