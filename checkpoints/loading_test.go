package checkpoints

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

func TestTypesAreReadByName(t *testing.T) {
	for in, want := range map[string]string{"auto": "auto", "f32": "f32", "BF16": "bf16", "bf16dp": "bf16dp", "q8": "q8", "q4": "q4", "": "", "AUTO": "", "f16": "", "i32": ""} {
		var d DType
		err := d.Set(in)
		switch {
		case want == "" && (err == nil || err.Error() != "want one of f32, bf16, bf16dp, q8, q4"):
			t.Errorf("%q: %v, want it refused with the names", in, err)
		case want != "" && (err != nil || d.String() != want):
			t.Errorf("%q: %v, %v, want %s", in, &d, err, want)
		}
	}
	for in, ok := range map[string]bool{"f32": true, "bf16": true, "q8": false, "F32": false, "": false} {
		var k KVType
		if err := k.Set(in); (err == nil) != ok || ok && k.String() != in {
			t.Errorf("keys and values as %q: %v, %v", in, &k, err)
		}
	}
}

// limited is a device of limited memory.
type limited struct{ compute.Device }

func (limited) Abilities() compute.DeviceAbilities {
	return compute.DeviceAbilities{Plan: planner{}}
}

type planner struct{ compute.Planner }

// unlimited is a device like the CPU.
type unlimited struct{ compute.Device }

func (unlimited) Abilities() compute.DeviceAbilities { return compute.DeviceAbilities{} }

func TestWhatAutoMeansDependsOnWeightsAndDevice(t *testing.T) {
	stored := map[string]*safetensors.Set{}
	for name, bf16 := range map[string]bool{"f32": false, "bf16": true} {
		c := modeltest.Default()
		c.BF16 = bf16
		set, err := safetensors.OpenDir(modeltest.Random(t, c, 1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = set.Close() })
		stored[name] = set
	}
	for _, c := range []struct {
		stored string
		dtype  DType
		dev    compute.Device
		want   compute.DType
	}{
		{"f32", Auto, unlimited{}, compute.F32},
		{"bf16", Auto, unlimited{}, compute.F32},
		{"f32", Auto, limited{}, compute.F32},
		{"bf16", Auto, limited{}, compute.BF16},
		{"bf16", DType(compute.Q8), limited{}, compute.Q8},
		{"bf16", DType(compute.F32), limited{}, compute.F32},
	} {
		l := Loading{DType: c.dtype, KV: KVType(compute.BF16), Rows: 7, Positions: 9, Lazy: true}
		opt := l.Options(stored[c.stored], c.dev)
		positions := 0
		if _, ok := c.dev.(limited); ok {
			positions = 9
		}
		if opt.DType != c.want || opt.Positions != positions || opt.KV != compute.BF16 || opt.MaxRows != 7 || !opt.Lazy {
			t.Errorf("stored as %s, %v on %T: %+v, want %v and %d positions", c.stored, &c.dtype, c.dev, opt, c.want, positions)
		}
	}
}

func TestLoadingDeepens(t *testing.T) {
	c := modeltest.Default()
	dir := modeltest.Random(t, c, 1)
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, x := range []struct{ ask, left, layers int }{{0, 0, c.Layers}, {c.Layers, 0, c.Layers}, {5, 5, 5}} {
		l := Loading{Layers: x.ask}
		m, err := l.Load(dir, dev)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Spec().Layers; got != x.layers || l.Layers != x.left {
			t.Errorf("%d layers asked: the model has %d, Loading says %d, want %d and %d", x.ask, got, l.Layers, x.layers, x.left)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	l := Loading{Layers: 1}
	if _, err := l.Load(dir, dev); !errors.As(err, new(LayersError)) {
		t.Errorf("fewer layers: %v, want them refused", err)
	}
}

func TestFindModelSaysWhatIsWrong(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 1)
	if got, err := FindModel(dir); err != nil || got != dir {
		t.Errorf("%q, %v, want the directory itself", got, err)
	}
	empty := t.TempDir()
	file := filepath.Join(empty, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gguf := filepath.Join(t.TempDir(), "model.Q4_K_M.gguf")
	if err := os.WriteFile(gguf, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := FindModel(gguf); err != nil || got != gguf {
		t.Errorf("%q, %v, want the file itself", got, err)
	}
	for path, want := range map[string]string{
		filepath.Dir(gguf):           "a GGUF file, such as " + gguf,
		filepath.Join(empty, "none"): " does not exist: want a model (directory or .gguf)",
		file:                         "is a file and not GGUF: want a model (directory or .gguf)",
		empty:                        "has no config.json",
	} {
		if _, err := FindModel(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
