// Mkdriver copies the emulated device's libraries to a directory: programs that find them there,
// for example through LD_LIBRARY_PATH, have that device.
//
//	go run ./compute/cuda/cudatest/mkdriver DIRECTORY
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"talf/compute/cuda/cudatest"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mkdriver DIRECTORY")
		os.Exit(2)
	}
	if err := copyTo(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "mkdriver:", err)
		os.Exit(1)
	}
}

func copyTo(dir string) error {
	cuda, err1 := cudatest.Driver(cudatest.Kernels())
	blas, err2 := cudatest.BLAS()
	if err := errors.Join(err1, err2, os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	for _, lib := range []string{filepath.Join(cuda, "libcuda.so.1"), filepath.Join(blas, "libcublas.so.12")} {
		b, err := os.ReadFile(lib)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(lib)), b, 0o755); err != nil {
			return err
		}
	}
	return nil
}
