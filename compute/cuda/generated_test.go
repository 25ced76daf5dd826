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
	"slices"
	"strings"
	"testing"

	"talf/compute/cuda/cudatest"
)

var update = flag.Bool("update", false, "compile the kernels to PTX again")

const ptxFile = "kernels.ptx"

// clang is the compiler of the PTX and its flags.
var clang = []string{
	"clang-19", "-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "--cuda-feature=+ptx78", "-nocudainc", "-nocudalib",
	"-O3", "-ffp-contract=off", "-std=c++17", "-S",
}

// header returns the beginning of a PTX file of these kernels.
func header(t *testing.T, version string) string {
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
		h.Sum(nil), strings.Join(clang, " "), version)
}

// compiler returns the version of the compiler, "" if there is none.
func compiler() string {
	out, err := exec.Command(clang[0], "--version").Output()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

func compile(t *testing.T) []byte {
	t.Helper()
	args := append(slices.Clone(clang[1:]), "-o", "-", filepath.Join(cudatest.Kernels(), "kernels.cu"))
	cmd := exec.Command(clang[0], args...)
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
	version := compiler()
	if *update {
		if version == "" {
			t.Fatalf("%s is not here", clang[0])
		}
		if err := os.WriteFile(ptxFile, append([]byte(header(t, version)), compile(t)...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(ptxFile)
	if err != nil {
		t.Fatal(err)
	}
	recorded := regexp.MustCompile(`(?m)^// Compiler: (.*)$`).FindSubmatch(got)
	if recorded == nil {
		t.Fatalf("%s names no compiler", ptxFile)
	}
	head := header(t, string(recorded[1]))
	if !bytes.HasPrefix(got, []byte(head)) {
		t.Fatalf("%s is not of the present kernels, whose header is\n%srun make generate", ptxFile, head)
	}
	if version != string(recorded[1]) {
		t.Skipf("the bytes are compared where %s is", recorded[1])
	}
	if !bytes.Equal(got[len(head):], compile(t)) {
		t.Errorf("%s differs from what the compiler writes: run make generate", ptxFile)
	}
}
