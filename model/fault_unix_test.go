//go:build unix

package model_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/internal/mapped"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// Weights that disappear while they are packed, by several workers, or read again later are an
// error, not the end of the process.
func TestWeightsThatAreCutShortWhileTheyAreReadAreAnError(t *testing.T) {
	cfg := modeltest.Default()
	cfg.Vocab = 8000 // enough rows for all workers
	dir := modeltest.Random(t, cfg, 1)
	file := filepath.Join(dir, "model.safetensors")
	spec, err := arch.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	config := cpu.Default()
	config.Threads = 4
	dev, err := cpu.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// At least one page is left: what the header says of it was read.
	cut := func(t *testing.T) {
		t.Helper()
		if err := os.Truncate(file, int64(os.Getpagesize())); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(t *testing.T, err error) {
		t.Helper()
		if fault := (*mapped.FaultError)(nil); !errors.As(err, &fault) || fault.Path != file {
			t.Errorf("%v, want a fault in %s", err, file)
		}
	}
	open := func(t *testing.T) *safetensors.Set {
		t.Helper()
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		set, err := safetensors.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { set.Close() })
		return set
	}
	t.Run("while they are loaded", func(t *testing.T) {
		set := open(t)
		cut(t)
		_, err := model.New(spec, set, dev, model.Default())
		refused(t, err)
	})
	t.Run("after they were loaded", func(t *testing.T) {
		m, err := model.New(spec, open(t), dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		cut(t)
		_, err = m.PackLMHead(compute.F32, nil)
		refused(t, err)
		_, err = m.HostEmbed()
		refused(t, err)
		_, err = m.PackEmbed()
		refused(t, err)
		refused(t, func() (err error) {
			defer mapped.Guard(&err)()
			m.Identity()
			return nil
		}())
	})
	// The workers are left in order.
	if _, err := model.New(spec, open(t), dev, model.Default()); err != nil {
		t.Error(err)
	}
}
