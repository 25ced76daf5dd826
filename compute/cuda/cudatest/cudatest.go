// Package cudatest builds the driver of a device that machines without a GPU can run: the
// kernels' own source on emulated threads, with the driver's entry points. Tests run their
// programs with it.
package cudatest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"
)

// ErrNoCompiler is returned if the driver cannot be compiled.
var ErrNoCompiler = errors.New("g++ is not here")

// Kernels returns the directory of the kernels' source. In a program that was built with -trimpath, it
// is that of the module around the working directory.
func Kernels() string {
	_, file, _, _ := runtime.Caller(0)
	kernels := filepath.Join(filepath.Dir(file), "..", "kernels")
	if filepath.IsAbs(kernels) {
		return kernels
	}
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "compute", "cuda", "kernels")
		}
		dir = filepath.Dir(dir)
	}
	return kernels
}

// Sources are the files in Kernels that the emulated device is made of.
var Sources = []string{"fake/libcuda.cpp", "kernels.cu", "attend.cu", "variants.cu", "four.cu", "staged.cu", "single.cu", "label.cu", "sample.cu", "train.cu", "product.cu", "treehalf.cu", "treewide.cu", "device.h", "emulate.h", "fake/races.h", "fake/races.cpp"}

// Driver returns the directory of a libcuda.so.1 compiled from a directory of kernels with extra
// flags. It compiles one unless it already exists.
func Driver(kernels string, flags ...string) (string, error) {
	return driver(kernels, flags)
}

func driver(kernels string, flags []string, uninstrumented ...string) (string, error) {
	if cpu.X86.HasFMA { // otherwise every madd is a function call
		flags = append([]string{"-mfma"}, flags...)
	}
	return library("libcuda.so.1", kernels, Sources, flags, uninstrumented...)
}

// Sanitizers are what Sanitized takes: "address" finds accesses beyond the bytes of an allocation or an
// array, "races" accesses of a kernel's threads that are in no order.
var Sanitizers = []string{"address", "races"}

// Sanitized is Driver with checks of every load and store, and what the environment of a program
// needs beside the directory.
func Sanitized(kernels, sanitizer string) (dir string, env []string, err error) {
	switch sanitizer {
	case "address":
		// Threads are fibers, of whose stacks the library knows nothing.
		dir, err = driver(kernels, []string{"-O1", "-g1", "-fsanitize=address", "--param=asan-stack=0"})
		if err != nil {
			return "", nil, err
		}
		out, err := exec.Command("g++", "-print-file-name=libasan.so").Output()
		lib := strings.TrimSpace(string(out))
		if err != nil || !filepath.IsAbs(lib) {
			return "", nil, fmt.Errorf("g++ has no libasan.so: it answers %q (%v)", lib, err)
		}
		return dir, []string{"LD_PRELOAD=" + lib, "ASAN_OPTIONS=detect_leaks=0"}, nil
	case "races":
		dir, err = driver(kernels, []string{"-O1", "-g1", "-DRACES", "-fsanitize=thread"}, "fake/races.cpp")
		return dir, nil, err
	}
	return "", nil, fmt.Errorf("no sanitizer %q, want one of %q", sanitizer, Sanitizers)
}

// BLAS returns the directory of a libcublas.so.12 for the emulated device.
func BLAS() (string, error) {
	return library("libcublas.so.12", Kernels(), []string{"fake/libcublas.cpp"}, nil)
}

// NCCL returns the directory of a libnccl.so.2 for the emulated device.
func NCCL() (string, error) {
	return library("libnccl.so.2", Kernels(), []string{"fake/libnccl.cpp"}, nil)
}

// library returns the directory of a library compiled from sources in a directory, the first of
// which includes the others, and of those that are compiled without a sanitizer and take its place.
func library(name, kernels string, sources, flags []string, uninstrumented ...string) (string, error) {
	if _, err := exec.LookPath("g++"); err != nil {
		return "", ErrNoCompiler
	}
	args := append([]string{
		"-std=c++17", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden", "-static-libstdc++", "-static-libgcc", "-Wall", "-Wno-unknown-pragmas", "-Werror",
	}, flags...)
	h := sha256.New()
	fmt.Fprintln(h, args)
	for _, name := range sources {
		b, err := os.ReadFile(filepath.Join(kernels, name))
		if err != nil {
			return "", err
		}
		h.Write(b)
	}
	dir := filepath.Join(Kernels(), "..", "..", "..", ".cache", "cuda", hex.EncodeToString(h.Sum(nil)[:8]))
	lib := filepath.Join(dir, name)
	if _, err := os.Stat(lib); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Several tests may compile at the same time: the last one gets the name.
	tmp, err := os.MkdirTemp(dir, "")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, name)
	files := []string{filepath.Join(kernels, sources[0])}
	for i, source := range uninstrumented {
		files = append(files, filepath.Join(tmp, fmt.Sprint(i, ".o")))
		plain := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-shared" || strings.HasPrefix(a, "-fsanitize") })
		if err := compile(append(plain, "-c", "-o", files[i+1], filepath.Join(kernels, source))); err != nil {
			return "", err
		}
	}
	if len(uninstrumented) > 0 { // the linker would add the sanitizer's library
		args = append(args, "-nodefaultlibs", "-Wl,-z,defs")
		files = append(files, "-lstdc++", "-lm", "-lc", "-lgcc", "-lgcc_eh", "-lc")
	}
	if err := compile(append(append(args, "-o", out), append(files, "-ldl")...)); err != nil {
		return "", err
	}
	return dir, os.Rename(out, lib)
}

func compile(args []string) error {
	if msg, err := exec.Command("g++", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("compile the emulated device: %w\n%s", err, msg)
	}
	return nil
}

// Environ returns env with the driver in dir found first.
func Environ(env []string, dir string) []string {
	const name = "LD_LIBRARY_PATH"
	if p := os.Getenv(name); p != "" {
		dir += string(os.PathListSeparator) + p
	}
	return append(env, name+"="+dir)
}
