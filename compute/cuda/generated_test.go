//go:build gpu && linux && cgo

package cuda_test

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"talf/compute/cuda/cudatest"
)

var update = flag.Bool("update", false, "compile the kernels to PTX again")

// ptxFiles are the files of PTX, by the compute capabilities that they are for.
var ptxFiles = map[string]string{"sm_80": "kernels.ptx", "sm_90": "kernels90.ptx"}

// clang returns the compiler of the PTX for a compute capability and its flags.
func clang(arch string) []string {
	return []string{
		"clang-19", "-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=" + arch, "--cuda-feature=+ptx78", "-nocudainc", "-nocudalib",
		"-O3", "-ffp-contract=off", "-std=c++17", "-S",
	}
}

// header returns the beginning of a PTX file of these kernels.
func header(t *testing.T, arch, version string) string {
	t.Helper()
	h := sha256.New()
	for _, name := range []string{"kernels.cu", "attend.cu", "variants.cu", "four.cu", "staged.cu", "single.cu", "label.cu", "sample.cu", "train.cu", "product.cu", "treehalf.cu", "treewide.cu", "device.h"} {
		b, err := os.ReadFile(filepath.Join(cudatest.Kernels(), name))
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	return fmt.Sprintf("// Generated from kernels/; do not edit.\n// Source: sha256 %x\n// Flags: %s\n// Compiler: %s\n",
		h.Sum(nil), strings.Join(clang(arch), " "), version)
}

// compiler returns the version of the compiler, "" if there is none.
func compiler() string {
	out, err := exec.Command(clang("")[0], "--version").Output()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

func compile(t *testing.T, arch string) []byte {
	t.Helper()
	args := append(clang(arch), "-o", "-", filepath.Join(cudatest.Kernels(), "kernels.cu"))
	cmd := exec.Command(args[0], args[1:]...)
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &msg)
	}
	return out.Bytes()
}

// The PTX must come from the current kernels: by the hash in its header, and byte for byte if
// the recorded compiler is installed.
func TestGeneratedPTXIsOfTheKernelsAsTheyAre(t *testing.T) {
	for arch, file := range ptxFiles {
		t.Run(arch, func(t *testing.T) { generated(t, arch, file) })
	}
}

func generated(t *testing.T, arch, file string) {
	version := compiler()
	if *update {
		if version == "" {
			t.Fatalf("%s is not here", clang(arch)[0])
		}
		if err := os.WriteFile(file, append([]byte(header(t, arch, version)), compile(t, arch)...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	recorded := regexp.MustCompile(`(?m)^// Compiler: (.*)$`).FindSubmatch(got)
	if recorded == nil {
		t.Fatalf("%s names no compiler", file)
	}
	head := header(t, arch, string(recorded[1]))
	if !bytes.HasPrefix(got, []byte(head)) {
		t.Fatalf("%s is not of the present kernels, whose header is\n%srun make generate", file, head)
	}
	if version != string(recorded[1]) {
		t.Skipf("the bytes are compared where %s is", recorded[1])
	}
	if !bytes.Equal(got[len(head):], compile(t, arch)) {
		t.Errorf("%s differs from what the compiler writes: run make generate", file)
	}
}
