package train

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/pprof"

	"talf/internal/durable"
)

// The files of a profile, for go tool pprof.
const (
	cpuProfile  = "cpu.pprof"  // processor time, including evaluations and checkpoints
	heapProfile = "heap.pprof" // memory allocated, and memory still in use
)

// A profile is that of a run, in a directory. A nil profile measures nothing.
type profile struct {
	dir string
	cpu *durable.File
}

// startProfile starts a profile in dir, or none if dir is empty.
func startProfile(dir string) (p *profile, err error) {
	if dir == "" {
		return nil, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("profile: %w", err)
		}
	}()
	if err := durable.MakeDirs(dir); err != nil {
		return nil, err
	}
	f, err := durable.Create(filepath.Join(dir, cpuProfile))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Discard())
	}
	return &profile{dir, f}, nil
}

// abandon stops measuring a run that could not start.
func (p *profile) abandon() {
	if p != nil {
		pprof.StopCPUProfile()
		_ = p.cpu.Discard() // not needed
	}
}

// stop stops measuring and writes the files.
func (p *profile) stop() error {
	if p == nil {
		return nil
	}
	pprof.StopCPUProfile()
	heap := new(bytes.Buffer)
	runtime.GC() // the heap profile is that of the last collection
	err := errors.Join(p.cpu.Commit(), pprof.Lookup("heap").WriteTo(heap, 0))
	if err == nil {
		err = durable.WriteFile(filepath.Join(p.dir, heapProfile), heap.Bytes())
	}
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return nil
}
