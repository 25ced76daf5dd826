package main

import (
	"fmt"
	"os"
	"path/filepath"

	"talf/compute/cpu"
	"talf/model"
)

// openModel loads a model directory onto the CPU. The returned function frees
// the model and the device.
func openModel(dir string, threads int) (*model.Model, func(), error) {
	if err := checkModelDir(dir); err != nil {
		return nil, nil, err
	}
	cfg := cpu.Default()
	if threads < 0 {
		return nil, nil, usagef("--threads is %d, want 0 or more", threads)
	}
	if threads > 0 {
		cfg.Threads = threads
	}
	dev, err := cpu.New(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("open the CPU device: %w", err)
	}
	m, err := model.Load(dir, dev, model.Default())
	if err != nil {
		_ = dev.Close()
		return nil, nil, err
	}
	return m, func() {
		_ = m.Close()
		_ = dev.Close()
	}, nil
}

// checkModelDir tells early and plainly what is not a model directory.
func checkModelDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case os.IsNotExist(err):
		return fmt.Errorf("model directory %s does not exist", dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is a file: want a model directory with config.json and safetensors", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "config.json")); os.IsNotExist(err) {
		return fmt.Errorf("%s has no config.json: want a model directory in Hugging Face layout", dir)
	}
	return nil
}
