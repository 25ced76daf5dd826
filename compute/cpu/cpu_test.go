package cpu_test

import (
	"fmt"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/computetest"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
)

func device(t testing.TB, class kern.Class, threads int) compute.Device {
	t.Helper()
	d, err := cpu.New(cpu.Config{Class: class, Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// classes returns the classes to test. Under the race detector, which makes the portable kernels
// many times slower, the fastest stands for all: possible races are the same for every class.
func classes() []kern.Class {
	if raceEnabled {
		return []kern.Class{kern.Best()}
	}
	return kern.Available()
}

func TestDevicesConform(t *testing.T) {
	for _, class := range classes() {
		t.Run(class.String(), func(t *testing.T) {
			computetest.Run(t, func() compute.Device { return device(t, class, 2) })
		})
	}
}

func TestResultsDependNeitherOnClassNorOnThreads(t *testing.T) {
	counts := []int{1, 2, 3}
	if testing.Short() {
		counts = []int{3}
	}
	devices, tiles := map[string]func() compute.Device{}, map[string]func() compute.Device{}
	all := []compute.DType{compute.F32, compute.Q8, compute.BF16DP}
	for _, class := range classes() {
		for _, threads := range counts {
			name, f := fmt.Sprintf("%v with %d threads", class, threads), func() compute.Device { return device(t, class, threads) }
			devices[name] = f
			if class == kern.AMX {
				tiles[name] = f
			}
		}
	}
	if class := kern.Best(); class == kern.AVX512VNNI {
		for _, shapes := range []string{cpu.FixedShapes, "f32=3/8,q8x1=5/3,q8x2=2/5"} {
			devices[fmt.Sprintf("%v with shapes %s", class, shapes)] = func() compute.Device {
				d, err := cpu.New(cpu.Config{Class: class, Threads: 2, Shapes: shapes})
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
		}
	}
	if len(tiles) == 0 {
		all = append(all, compute.BF16)
	}
	computetest.Same(t, all, devices, func() compute.Device { return device(t, classes()[0], 1) })
	if len(tiles) > 0 { // with BF16 weights, tiles have bits of their own
		computetest.Same(t, []compute.DType{compute.BF16}, tiles, func() compute.Device { return device(t, kern.AMX, 1) })
	}
}

// TestBitsArePinned checks that every platform and build gives the same bits: GOAMD64=v3 and
// arm64 fuse products and sums unless the code says otherwise.
func TestBitsArePinned(t *testing.T) {
	for _, c := range []struct {
		formats []compute.DType
		want    string
	}{
		{[]compute.DType{compute.F32, compute.Q8}, "930c81ba11ed2f2f93d2c4382cf95b4da1ecb830ba78c88c9b3ac39f7b72838b"},
		{[]compute.DType{compute.BF16DP}, "5bbbad27f7be51246712d09386667314babdbf40c3dc50332e356aca43319cba"},
		{[]compute.DType{compute.BF16}, "49871eb54232bfc5de1e1547d1d059285eb155e1a35cccbcbbc843e6f71bfd42"},
	} {
		for _, class := range classes() {
			if class == kern.AMX && c.formats[0] == compute.BF16 {
				continue
			}
			t.Run(fmt.Sprint(c.formats, " ", class), func(t *testing.T) {
				if got := computetest.Digest(t, c.formats, func() compute.Device { return device(t, class, 2) }); got != c.want {
					t.Errorf("digest of the results is %s, want %s", got, c.want)
				}
			})
		}
	}
}

func TestBitsOfVariantsArePinned(t *testing.T) {
	const want = "4dfc983ffdf6d772a74d6e5a781ccddd351edc6620dbabee5f9f0b102c43b111"
	for _, class := range classes() {
		t.Run(class.String(), func(t *testing.T) {
			if got := computetest.VariantsDigest(t, func() compute.Device { return device(t, class, 2) }); got != want {
				t.Errorf("digest of the results is %s, want %s", got, want)
			}
		})
	}
}

func TestNewRefusesBadConfigurations(t *testing.T) {
	for name, c := range map[string]cpu.Config{
		"no threads":                    {Class: kern.Portable},
		"too many threads":              {Class: kern.Portable, Threads: 1 << 20},
		"a class that does not exist":   {Class: 77, Threads: 1},
		"shapes that are none":          {Class: kern.Portable, Threads: 1, Shapes: "wide"},
		"shapes that the class has not": {Class: kern.Portable, Threads: 1, Shapes: "f32=8/128"},
	} {
		if _, err := cpu.New(c); err == nil {
			t.Errorf("New accepts %s", name)
		} else if c.Shapes != "" && !strings.Contains(err.Error(), cpu.EnvShapes) {
			t.Errorf("%s: %v, want the name of the variable that sets them", name, err)
		}
	}
	if c := cpu.Default(); c.Class != kern.Best() || c.Threads < 1 {
		t.Errorf("Default() = %+v, want class %v", c, kern.Best())
	}
	d, err := cpu.New(cpu.Config{Class: kern.Portable, Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got, want := d.Name(), "cpu portable, 3 threads"; got != want {
		t.Errorf("Name() = %q, want %q", got, want)
	}
}

func TestBitsOfBlockHeadsArePinned(t *testing.T) {
	const want = "4b81b1984e95225ec8757fb37c0f19af41dc7305726220b903cd691ef7b1838d"
	for _, class := range classes() {
		t.Run(class.String(), func(t *testing.T) {
			if got := computetest.BlockDigest(t, func() compute.Device { return device(t, class, 2) }); got != want {
				t.Errorf("digest of the results is %s, want %s", got, want)
			}
		})
	}
}
