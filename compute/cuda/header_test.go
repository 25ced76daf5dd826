//go:build gpu && linux && cgo

package cuda_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Our header of the driver says what NVIDIA's says: a compiler that has read NVIDIA's meets ours
// again, prototype by prototype, with the values of enumerations, the layouts of structures and
// the versions of entry points.
func TestHeaderIsNVIDIAs(t *testing.T) {
	dir := os.Getenv("CUDA_INCLUDE")
	if dir == "" {
		t.Skip("CUDA_INCLUDE does not name a directory with NVIDIA's cuda.h, which is in the Python package nvidia-cuda-runtime-cu12")
	}
	const ours = "internal/driver/include"
	b, err := os.ReadFile(filepath.Join(ours, "cuda.h"))
	if err != nil {
		t.Fatal(err)
	}
	checks, n := headerChecks(t, string(b), ours)
	if n < 600 {
		t.Fatalf("only %d checks were found in our header", n)
	}
	if out, err := compileC(t, "#include <stddef.h>\n#include <cuda.h>\n"+checks, dir); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, plant := range [][2]string{
		{"CUresult cuCtxSetCurrent(CUcontext ctx);", "CUresult cuCtxSetCurrent(CUcontext *ctx);"},
		{"CUDA_ERROR_NOT_READY == 600", "CUDA_ERROR_NOT_READY == 601"},
		{`"cuMemAlloc_v2"`, `"cuMemAlloc_v3"`},
		{"offsetof(CUlaunchAttribute, value) == ", "offsetof(CUlaunchAttribute, value) == 4 + "},
		{"CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION == 6", "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION == 7"},
		{"offsetof(CUDA_MEMCPY2D_v2, Height) == ", "offsetof(CUDA_MEMCPY2D_v2, Height) == 8 + "},
	} {
		bad := strings.Replace(checks, plant[0], plant[1], 1)
		if bad == checks {
			t.Fatalf("no check has %q", plant[0])
		}
		if _, err := compileC(t, "#include <stddef.h>\n#include <cuda.h>\n"+bad, dir); err == nil {
			t.Errorf("%q in place of %q compiles", plant[1], plant[0])
		}
	}
}

// What we declare of libraries is what NVIDIA's headers declare, prototype by prototype and value by value. The headers come with
// the libraries, which are too large for every run of the tests.
func TestLibraryHeadersAreNVIDIAs(t *testing.T) {
	for _, c := range []struct{ header, env, pkg, prototype, wrong string }{
		{
			"cublas_api.h", "CUBLAS_INCLUDE", "nvidia-cublas", "cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *, size_t);",
			"cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *, int);",
		},
		{"nccl.h", "NCCL_INCLUDE", "nvidia-nccl", "ncclResult_t ncclCommInitAll(ncclComm_t *, int, const int *);", "ncclResult_t ncclCommInitAll(ncclComm_t *, int, int *);"},
	} {
		t.Run(c.header, func(t *testing.T) {
			dir := os.Getenv(c.env)
			if dir == "" {
				t.Skipf("%s does not name a directory with NVIDIA's %s and the headers of its runtime, which is in the Python package %s", c.env, c.header, c.pkg)
			}
			const ours = "internal/driver/include"
			b, err := os.ReadFile(filepath.Join(ours, c.header))
			if err != nil {
				t.Fatal(err)
			}
			checks, n := headerChecks(t, string(b), ours)
			if n < 15 {
				t.Fatalf("only %d checks were found in our header", n)
			}
			read := "#include <stddef.h>\n#include <" + c.header + ">\n"
			if out, err := compileC(t, read+checks, dir); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			bad := strings.Replace(checks, c.prototype, c.wrong, 1)
			if bad == checks {
				t.Fatalf("no check has %q", c.prototype)
			}
			if _, err := compileC(t, read+bad, dir); err == nil {
				t.Errorf("%q in place of %q compiles", c.wrong, c.prototype)
			}
		})
	}
}

// headerChecks returns C that compiles after a header only if it agrees with ours, and of how many
// checks it is made.
func headerChecks(t *testing.T, header, dir string) (string, int) {
	t.Helper()
	var c, sizes strings.Builder
	n := 0
	check := func(format string, args ...any) {
		n++
		fmt.Fprintf(&c, format+"\n", args...)
	}
	c.WriteString("#define TEXT(x) #x\n#define NAME(x) TEXT(x)\n")
	for _, m := range regexp.MustCompile(`(?m)^#define (cu\w+) (cu\w+)$`).FindAllStringSubmatch(header, -1) {
		check("_Static_assert(__builtin_strcmp(NAME(%s), %q) == 0, \"version of %[1]s\");", m[1], m[2])
	}
	for _, m := range regexp.MustCompile(`\b(CU\w+|nccl\w+)\s*=\s*(-?\w+)`).FindAllStringSubmatch(header, -1) {
		check("_Static_assert(%s == %s, \"value of %[1]s\");", m[1], m[2])
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:CUresult|cublasStatus_t|ncclResult_t|const char) [^;=]*;`).FindAllString(header, -1) {
		check("%s", m)
	}
	sizes.WriteString("#include <stdio.h>\n#include <cuda.h>\nint main(void) {\n")
	field := regexp.MustCompile(`(\w+)(?:\[\w+\])?\s*;`)
	for _, m := range regexp.MustCompile(`(?s)typedef (?:struct|union) \w+ \{(.*?)\} (\w+);`).FindAllStringSubmatch(header, -1) {
		fmt.Fprintf(&sizes, "printf(\"_Static_assert(sizeof(%s) == %%zu, \\\"size of %[1]s\\\");\\n\", sizeof(%[1]s));\n", m[2])
		n++
		for _, f := range field.FindAllStringSubmatch(m[1], -1) {
			fmt.Fprintf(&sizes, "printf(\"_Static_assert(offsetof(%s, %s) == %%zu, \\\"place of %[2]s in %[1]s\\\");\\n\", offsetof(%[1]s, %[2]s));\n", m[2], f[1])
			n++
		}
	}
	sizes.WriteString("return 0; }\n")
	program := filepath.Join(t.TempDir(), "sizes")
	if out, err := compileC(t, sizes.String(), dir, "-o", program); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return c.String() + string(out), n
}

// compileC compiles C with the headers of a directory, to nothing unless the flags say otherwise.
func compileC(t *testing.T, source, dir string, flags ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "check.c")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if len(flags) == 0 {
		flags = []string{"-fsyntax-only"}
	}
	out, err := exec.Command("gcc", append([]string{"-std=c11", "-I" + dir, file}, flags...)...).CombinedOutput()
	return string(out), err
}
