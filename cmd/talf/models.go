package main

import (
	"fmt"
	"os"

	"talf/checkpoints"
	"talf/compute/cpu"
	"talf/model"
	"talf/model/tokenizer"
)

// openModel loads a model directory onto the CPU. The returned function frees
// the model and the device.
func openModel(dir string, threads int) (*model.Model, func(), error) {
	dir, err := findModel(dir)
	if err != nil {
		return nil, nil, err
	}
	dev, err := openDevice(threads)
	if err != nil {
		return nil, nil, err
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

// openDevice opens the CPU with a number of threads; 0 is all.
func openDevice(threads int) (*cpu.Device, error) {
	c := cpu.Default()
	if threads > 0 {
		c.Threads = threads
	}
	dev, err := cpu.New(c)
	if err != nil {
		return nil, fmt.Errorf("open the CPU device: %w", err)
	}
	return dev, nil
}

// findModel returns the model directory that path means: itself, or the newest
// checkpoint of a language model that was trained there. It tells early and
// plainly what is neither.
func findModel(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return "", fmt.Errorf("model directory %s does not exist", path)
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("%s is a file: want a model directory with config.json and safetensors", path)
	}
	dir, err := checkpoints.Find(path)
	if err != nil {
		return "", fmt.Errorf("%s has no config.json: want a model directory in Hugging Face layout", path)
	}
	return dir, nil
}

// loadTokenizer loads the tokenizer of m's directory and holds it against m.
func loadTokenizer(dir string, m *model.Model) (*tokenizer.Tokenizer, error) {
	t, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	if v := m.Spec().Vocab; t.VocabSize() > v {
		return nil, fmt.Errorf("%s: the tokenizer has %d tokens, but the model's vocabulary is %d", dir, t.VocabSize(), v)
	}
	return t, nil
}
