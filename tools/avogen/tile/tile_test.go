package tile

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Every instruction in every form that the encoder can make is what its
// comment says, by the disassembler.
func TestTileEncodings(t *testing.T) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("no objdump here")
	}
	gps := []reg.Register{
		reg.RAX, reg.RCX, reg.RDX, reg.RBX, reg.RSP, reg.RBP, reg.RSI, reg.RDI,
		reg.R8, reg.R9, reg.R10, reg.R11, reg.R12, reg.R13, reg.R14, reg.R15,
	}
	all := []Code{Release()}
	disps := []int{0, 1, -128, 127, 128, -129, 1 << 20}
	for i, base := range gps {
		for _, d := range disps {
			all = append(all, LoadConfig(operand.Mem{Base: base, Disp: d}))
			for j, stride := range gps {
				if stride != reg.RSP {
					m, n := Rows(base, stride, 1<<((i+j+d)&3), d), Reg((i+j)%8)
					all = append(all, Load(m, n), Store(n, m))
				}
			}
		}
	}
	for c := range Reg(8) {
		all = append(all, Zero(c))
		for a := range Reg(8) {
			for b := range Reg(8) {
				if a != b && a != c && b != c {
					all = append(all, DotBF16(b, a, c), DotS8S8(b, a, c), DotU8S8(b, a, c))
				}
			}
		}
	}
	for a := range 32 {
		for b := range 32 {
			all = append(all, DotPairs(b, a, (a+3*b)%32))
		}
	}
	for a := range 16 {
		for b := range 16 {
			all = append(all, DotBytes(b, a, (a+3*b)%16), DotWords(b, a, (a+5*b)%16))
		}
	}
	var bytes []byte
	for _, c := range all {
		bytes = append(bytes, c.Bytes...)
	}
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(objdump, "-D", "-b", "binary", "-m", "i386:x86-64", "--no-show-raw-insn", file).Output()
	if err != nil || strings.Contains(string(out), "(bad)") {
		t.Skipf("this objdump does not know AMX: %v", err)
	}
	lines := regexp.MustCompile(`(?m)^ *[0-9a-f]+:\t(.*?)\s*$`).FindAllSubmatch(out, -1)
	if len(lines) != len(all) {
		t.Fatalf("%d instructions, want %d", len(lines), len(all))
	}
	for i, c := range all {
		// With a base of RSP or R12, or a displacement without need, there are
		// several encodings: the text is what counts.
		if got := strings.Join(strings.Fields(string(lines[i][1])), " "); got != c.Text {
			t.Errorf("%x is %q, want %q", c.Bytes, got, c.Text)
		}
	}
}

func TestImpossibleOperandsPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"index RSP":      func() { Load(Rows(reg.RAX, reg.RSP, 1, 0), 0) },
		"scale 3":        func() { Load(Rows(reg.RAX, reg.RBX, 3, 0), 0) },
		"32-bit base":    func() { LoadConfig(operand.Mem{Base: reg.EAX}) },
		"equal tiles":    func() { DotS8S8(1, 2, 1) },
		"register 32":    func() { DotPairs(0, 32, 1) },
		"register 16":    func() { DotBytes(0, 16, 1) },
		"vector as base": func() { LoadConfig(operand.Mem{Base: reg.Z1}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
