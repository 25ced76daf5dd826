//go:build gpu && linux && cgo

package cuda_test

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// archs are the compute capabilities whose machine code is examined.
var archs = []string{"sm_80", "sm_89", "sm_90", "sm_100", "sm_120"}

// ptxFor returns the file of PTX that a device of a compute capability is given.
func ptxFor(arch string) string {
	if arch < "sm_90" && len(arch) == len("sm_90") {
		return ptxFiles["sm_80"]
	}
	return ptxFiles["sm_90"]
}

// tool returns where one of NVIDIA's programs is, whose path the environment may name, or skips.
func tool(t *testing.T, env, name, pkg string) string {
	t.Helper()
	at, err := exec.LookPath(cmp.Or(os.Getenv(env), name))
	if err != nil {
		t.Skipf("%s is not here: it comes with CUDA and in the Python package %s; $%s may name it", name, pkg, env)
	}
	return at
}

// The machine code of every kernel, for every capability, keeps its variables in registers and
// calls nothing but the slow paths of divisions and roots. The loops with products of tensor cores
// convert no number just after they load it. docs/gpu.md says what the kernels use, and what these
// loops hold.
func TestMachineCode(t *testing.T) {
	code := map[string][]*machineKernel{}
	for _, arch := range archs {
		code[arch] = assemble(t, arch, ptxFor(arch))
		for _, k := range code[arch] {
			for _, flaw := range k.flaws() {
				t.Errorf("%s for %s: %s", k.name, arch, flaw)
			}
		}
	}
	var used, loops strings.Builder
	for i, k := range code["sm_80"] {
		l := code["sm_90"][i]
		if k.name != l.name {
			t.Fatalf("%s beside %s", k.name, l.name)
		}
		fmt.Fprintf(&used, "| `%s` | %s | %s | %s |\n", k.name, k.registers, l.registers, k.shared)
		if hot := l.hot(); hot != nil {
			fmt.Fprintf(&loops, "| `%s` | %d | %d | %d |\n", l.name, len(hot), count(hot, "HMMA"), wideLoads(hot))
		}
	}
	doc, err := os.ReadFile("../../docs/gpu.md")
	if err != nil {
		t.Fatal(err)
	}
	for what, table := range map[string]*strings.Builder{"registers and shared memory": &used, "hot loops": &loops} {
		if !strings.Contains(string(doc), table.String()) {
			t.Errorf("docs/gpu.md lacks the table of %s:\n%s", what, table)
		}
	}
	t.Run("predictions", func(t *testing.T) { predictions(t, code["sm_90"]) })
}

// What TestMachineCode looks for is found where it is.
func TestFlawsOfMachineCodeAreFound(t *testing.T) {
	const begin = ".version 7.8\n.target sm_90\n.address_size 64\n"
	for _, c := range []struct{ name, ptx, want string }{
		{"a local array", `.visible .entry k(.param .u64 p) {
	.local .align 4 .b8 a[64]; .reg .b64 q, l; .reg .b32 i, v;
	ld.param.u64 q, [p]; mov.u32 i, %tid.x; and.b32 i, i, 60; cvt.u64.u32 l, i; mov.u64 q, a; add.u64 l, l, q;
	st.local.u32 [a+4], i; st.local.u32 [a+8], i; ld.local.u32 v, [l]; ld.param.u64 q, [p]; st.global.u32 [q], v; ret; }`, "stack frame"},
		{"a call", `.func (.reg .b32 r) f(.reg .b32 x) { .reg .b32 y; .reg .pred z; setp.eq.u32 z, x, 0; mov.u32 r, x; @z bra E;
	sub.u32 y, x, 1; call (y), f, (y); mul.lo.u32 r, y, x; E: ret; }
.visible .entry k(.param .u64 p) { .reg .b64 q; .reg .b32 v, r; ld.param.u64 q, [p]; ld.global.u32 v, [q]; call (r), f, (v); st.global.u32 [q], r; ret; }`, "calls $k$f"},
		{"a conversion that waits for its load", `.visible .entry k(.param .u64 p, .param .u32 n) {
	.reg .b64 q; .reg .b32 i, m, o; .reg .f32 u, v, c<4>; .reg .pred z;
	ld.param.u64 q, [p]; ld.param.u32 m, [n]; mov.u32 i, 0; mov.f32 c0, 0f00000000; mov.f32 c1, c0; mov.f32 c2, c0; mov.f32 c3, c0;
L: ld.global.f32 u, [q]; ld.global.f32 v, [q+4]; cvt.rn.bf16x2.f32 o, u, v;
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {c0,c1,c2,c3}, {o,o,o,o}, {o,o}, {c0,c1,c2,c3};
	add.u64 q, q, 16; add.u32 i, i, 1; setp.lt.u32 z, i, m; @z bra L; st.global.f32 [q], c0; ret; }`, "converted"},
		{"a store before the wait for the kernels in front", `.visible .entry k(.param .u64 p) { .reg .b64 q; ld.param.u64 q, [p]; st.global.u32 [q], 1; griddepcontrol.wait; st.global.u32 [q+4], 1; ret; }`, "before the wait"},
		{"nothing", `.visible .entry k(.param .u64 p) { .reg .b64 q; .reg .b32 v; ld.param.u64 q, [p]; ld.global.u32 v, [q]; add.u32 v, v, 1; st.global.u32 [q], v; ret; }`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "k.ptx")
			if err := os.WriteFile(file, []byte(begin+c.ptx+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			kernels := assemble(t, "sm_90", file)
			if len(kernels) != 1 {
				t.Fatalf("%d kernels", len(kernels))
			}
			flaws := strings.Join(kernels[0].flaws(), "; ")
			if (flaws == "") != (c.want == "") || !strings.Contains(flaws, c.want) {
				t.Errorf("flaws %q, want %q", flaws, c.want)
			}
		})
	}
}

// A machineKernel is what nvdisasm and ptxas print of one kernel.
type machineKernel struct {
	name              string
	code              []instruction
	labels            map[string]int // indices in code
	frame             string         // ptxas's words about the stack
	registers, shared string         // numbers; of shared memory, bytes
}

type instruction struct{ op, args string }

// machineCode returns a file of machine code and what ptxas says of it. All kernels for one capability take ptxas half a
// minute of processor time. Both are a function of the program, the capability and the PTX, so that the last of each
// capability are kept in the user's cache under a hash of these: a run examines what was made of the same.
func machineCode(t *testing.T, ptxas, arch, file string) (cubin string, report []byte) {
	t.Helper()
	h := sha256.New()
	for _, name := range []string{ptxas, file} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%x\n", sha256.Sum256(b))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	kind := filepath.Join(cache, "talf-cubins", arch+"-"+filepath.Base(file))
	made := fmt.Sprintf("%s-%x", kind, h.Sum(nil))
	cubin = filepath.Join(t.TempDir(), "k.cubin")
	report, err = os.ReadFile(filepath.Join(made, "report"))
	code, rerr := os.ReadFile(filepath.Join(made, "k.cubin"))
	if err == nil && rerr == nil { // copied, since another run may remove what it has no use for
		if err := os.WriteFile(cubin, code, 0o666); err != nil {
			t.Fatal(err)
		}
		return cubin, report
	}
	if err := os.MkdirAll(filepath.Dir(made), 0o777); err != nil {
		t.Fatal(err)
	}
	part, err := os.MkdirTemp(filepath.Dir(made), ".part-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(part) }() // if it has not its name by then
	report, err = exec.Command(ptxas, "-arch="+arch, "-v", "-o", cubin, file).CombinedOutput()
	if err != nil {
		t.Fatalf("%s for %s: %v\n%s", ptxas, arch, err, report)
	}
	if code, err = os.ReadFile(cubin); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(part, "k.cubin"), code, 0o666), os.WriteFile(filepath.Join(part, "report"), report, 0o666)); err != nil {
		t.Fatal(err)
	}
	old, _ := filepath.Glob(kind + "-*") // the pattern is well formed
	for _, dir := range old {
		_ = os.RemoveAll(dir)
	}
	_ = os.Rename(part, made) // or another run has made the same
	return cubin, report
}

// assemble returns the kernels of a PTX file, in the order of their names.
func assemble(t *testing.T, arch, file string) (kernels []*machineKernel) {
	t.Helper()
	ptxas := tool(t, "PTXAS", "ptxas", "nvidia-cuda-nvcc-cu12")
	nvdisasm := tool(t, "NVDISASM", "nvdisasm", "nvidia-cuda-nvdisasm")
	cubin, report := machineCode(t, ptxas, arch, file)
	text, err := exec.Command(nvdisasm, "-c", cubin).Output()
	if err != nil {
		t.Fatalf("%s: %v", nvdisasm, err)
	}
	section := regexp.MustCompile(`\.section\s+\.text\.(\w+)`)
	label := regexp.MustCompile(`^(\.L_x?_?\w+):`)
	code := regexp.MustCompile(`^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?);`)
	var k *machineKernel
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := section.FindStringSubmatch(line); m != nil {
			k = &machineKernel{name: m[1], labels: map[string]int{}}
			kernels = append(kernels, k)
		} else if m := label.FindStringSubmatch(line); m != nil && k != nil {
			k.labels[m[1]] = len(k.code)
		} else if m := code.FindStringSubmatch(line); m != nil && k != nil {
			k.code = append(k.code, instruction{m[1], m[2]})
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(kernels, func(a, b *machineKernel) int { return cmp.Compare(a.name, b.name) })
	// ptxas names a kernel, then says what it uses.
	properties := regexp.MustCompile(`Function properties for (\w+)`)
	used := regexp.MustCompile(`Used (\d+) registers(?:.*?(\d+) bytes smem)?`)
	k = nil
	for line := range strings.Lines(string(report)) {
		if m := properties.FindStringSubmatch(line); m != nil {
			k = nil
			if i := slices.IndexFunc(kernels, func(k *machineKernel) bool { return k.name == m[1] }); i >= 0 {
				k = kernels[i]
			}
		}
		if k == nil {
			continue
		}
		if strings.Contains(line, "bytes stack frame") {
			k.frame = strings.TrimSpace(line)
		}
		if m := used.FindStringSubmatch(line); m != nil {
			k.registers, k.shared = m[1], cmp.Or(m[2], "0")
		}
	}
	return kernels
}

// near is how many instructions there should at least be between a load from global memory and a
// conversion of what it loads, in a loop with products.
const near = 16

var (
	target   = regexp.MustCompile("`\\(([^)]*)\\)")
	slowPath = regexp.MustCompile(`^\$__internal_\d+_\$__cuda_sm\w*?_(div|rem|sqrt|rcp|shflsync)\w*$`)
	register = regexp.MustCompile(`\bR(\d+)\b`)
)

// flaws returns what is wrong with the code.
func (k *machineKernel) flaws() (all []string) {
	if !strings.HasPrefix(k.frame, "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") {
		all = append(all, k.frame)
	}
	for _, i := range k.code {
		if strings.HasPrefix(i.op, "LDL") || strings.HasPrefix(i.op, "STL") {
			all = append(all, "variables in local memory: "+i.op+" "+i.args)
			break
		}
	}
	for _, i := range k.code {
		if !strings.HasPrefix(i.op, "CALL") {
			continue
		}
		to := i.args
		if m := target.FindStringSubmatch(i.args); m != nil {
			to = m[1]
		}
		// A label of the kernel's own is a detour of threads that have come apart.
		if _, own := k.labels[to]; !own && !slowPath.MatchString(to) {
			all = append(all, "calls "+to)
		}
	}
	if c := converted(k.hot()); c != "" {
		all = append(all, c)
	}
	if e := early(k.code); e != "" {
		all = append(all, e)
	}
	return all
}

// early says which store to global memory a kernel that waits for those in front (griddepcontrol.wait, ACQBULK) has before its first
// wait.
func early(code []instruction) string {
	at := slices.IndexFunc(code, func(i instruction) bool { return i.op == "ACQBULK" })
	for _, i := range code[:max(at, 0)] {
		if strings.HasPrefix(i.op, "STG") || strings.HasPrefix(i.op, "RED") || strings.HasPrefix(i.op, "ATOM") {
			return "before the wait for the kernels in front: " + i.op + " " + i.args
		}
	}
	return ""
}

// converted says which conversion waits for a load near by.
func converted(code []instruction) string {
	loaded := map[int]int{} // register → index of the load
	for at, i := range code {
		regs := register.FindAllStringSubmatch(i.args, -1)
		if strings.HasPrefix(i.op, "F2F") || strings.HasPrefix(i.op, "I2F") {
			for _, r := range regs[min(1, len(regs)):] {
				n, _ := strconv.Atoi(r[1])
				if from, ok := loaded[n]; ok && at-from < near {
					return fmt.Sprintf("R%d is converted %d instructions after it is loaded, want %d or more", n, at-from, near)
				}
			}
		}
		if len(regs) == 0 {
			continue
		}
		n, _ := strconv.Atoi(regs[0][1])
		delete(loaded, n)
		if strings.HasPrefix(i.op, "LDG") {
			loaded[n] = at
		}
	}
	return ""
}

// loops returns the index ranges of the loops, inner ones first.
func (k *machineKernel) loops() (all [][2]int) {
	for at, i := range k.code {
		if !strings.HasPrefix(i.op, "BRA") {
			continue
		}
		if m := target.FindStringSubmatch(i.args); m != nil {
			if to, ok := k.labels[m[1]]; ok && to < at {
				all = append(all, [2]int{to, at + 1})
			}
		}
	}
	slices.SortFunc(all, func(a, b [2]int) int { return cmp.Compare(a[1]-a[0], b[1]-b[0]) })
	return all
}

// hot returns the shortest loop with products of tensor cores, the whole kernel if its products are in
// no loop, nil if there are none.
func (k *machineKernel) hot() []instruction {
	for _, l := range k.loops() {
		if code := k.code[l[0]:l[1]]; count(code, "HMMA") > 0 {
			return code
		}
	}
	if count(k.code, "HMMA") > 0 {
		return k.code
	}
	return nil
}

func count(code []instruction, op string) (n int) {
	for _, i := range code {
		if strings.HasPrefix(i.op, op) {
			n++
		}
	}
	return n
}

// wideLoads counts the loads of 128 bits from global memory, to registers or to shared memory.
func wideLoads(code []instruction) (n int) {
	for _, i := range code {
		if (strings.HasPrefix(i.op, "LDG.") || strings.HasPrefix(i.op, "LDGSTS.")) && strings.Contains(i.op, ".128") {
			n++
		}
	}
	return n
}
