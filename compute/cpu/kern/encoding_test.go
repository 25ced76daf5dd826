package kern

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The instruction sets of each file of assembly for amd64, beside what every processor of it has: those
// that a class's condition names. "avx" is AVX, AVX2, FMA and F16C, which come together here; "vl" is
// EVEX for registers of 16 and 32 bytes.
var assembled = map[string]string{
	"compute/cpu/kern/avx2_amd64.s":          "avx",
	"compute/cpu/kern/avxvnni_amd64.s":       "avx avxvnni",
	"compute/cpu/kern/avx512_amd64.s":        "avx f bw dq vl",
	"compute/cpu/kern/avx512vnni_amd64.s":    "avx f bw dq vl vnni",
	"compute/cpu/kern/avx512bf16_amd64.s":    "avx f bw dq vl bf16",
	"compute/cpu/kern/amx_amd64.s":           "avx f bw dq vl vnni amx xsave",
	"model/internal/probs/avx2_amd64.s":      "avx",
	"model/internal/probs/avx512_amd64.s":    "avx f bw dq vl",
	"tools/amxemu/hardware/hardware_amd64.s": "avx f bf16", // its tests look for these
}

// The set of an instruction by how it is encoded, from Intel's manual. One that is not here is refused, so that
// somebody looks it up.
var (
	legacySets = sets(map[string]string{
		"base": `ADDQ ANDQ BSFL CALL CMPB CMPQ CPUID DECQ JCC JCS JEQ JGE JLS JLT JMP JNE LDMXCSR LEAQ MOVL MOVQ NEGQ NOP POPQ
			PREFETCHT0 PREFETCHT1 PUSHQ RET SHLQ SHRQ STMXCSR SUBQ TESTL TESTQ XCHGQ XORL XORQ`,
		"xsave": `XGETBV`,
	})
	vexSets = sets(map[string]string{
		"avx": `VADDPD VADDPS VANDNPS VANDPD VANDPS VBLENDVPS VBROADCASTF128 VBROADCASTSD VBROADCASTSS VCMPPD VCMPPS VCVTDQ2PS VCVTPH2PS
			VCVTPS2DQ VCVTPS2PD VDIVPS VEXTRACTF128 VEXTRACTI128 VFMADD132PD VFMADD132PS VFMADD213PD VFMADD213PS
			VFMADD231PS VFMSUB213PS VFNMADD132PS VFNMADD231PD VFNMADD231PS VINSERTF128 VMASKMOVPS VMAXPD VMAXPS
			VMINPS VMOVAPD VMOVAPS VMOVD VMOVDQA VMOVDQU VMOVMSKPS VMOVSD VMOVSS VMOVUPD VMOVUPS VMULPD VMULPS
			VPACKSSDW VPACKSSWB VPACKUSDW VPADDB VPADDD VPADDQ VPADDW VPAND VPANDN VPBROADCASTD VPERMD VPERMILPD VPERMILPS VPERMQ VPEXTRD
			VPMADDUBSW VPMADDWD VPMAXSB VPMAXUD VPMOVSXBD VPMOVSXBW VPMOVZXBD VPMOVZXWD VPOR VPSHUFB VPSHUFD VPSLLD VPSLLQ VPSLLW
			VPSRAD VPSRAW VPSRLD VPSRLW VPSUBB VPSUBD VPSUBW VPXOR VSQRTPS VSUBPD VSUBPS VUNPCKHPD VUNPCKHPS VUNPCKLPD VUNPCKLPS VXORPD VXORPS
			VZEROUPPER`,
		"f":  `KMOVW`,
		"bw": `KMOVD`,
	})
	evexSets = sets(map[string]string{
		"f": `VADDPD VADDPS VBROADCASTI64X4 VBROADCASTSD VBROADCASTSS VCMPPD VCMPPS VCVTDQ2PS VCVTPH2PS VCVTPS2DQ VCVTPS2PD VDIVPS
			VEXTRACTF32X4 VEXTRACTF64X4 VEXTRACTI64X4 VFMADD132PD VFMADD132PS VFMADD213PD VFMADD213PS VFMADD231PS VFMSUB213PS
			VFNMADD132PS VFNMADD231PD VFNMADD231PS VMAXPD VMAXPS VMINPS VMOVAPD VMOVAPS VMOVDQA32 VMOVDQU32 VMOVUPD VMOVUPS VMULPD
			VMULPS VPADDD VPADDQ VPANDD VPBROADCASTD VPERMILPS VPMAXUD VPMOVDB VPMOVDW VPMOVSXBD VPMOVZXBD VPORD VPSLLD VPSLLQ
			VPSRAD VPSRLD VPSUBD VPTERNLOGD VPXORD VPXORQ VSQRTPS VSUBPD VSUBPS`,
		"bw":   `VPMADDWD VPSHUFB VPSLLW VPSRAW VPSRLW`,
		"dq":   `VANDPS VEXTRACTF32X8 VXORPS`,
		"vnni": `VPDPBUSD`,
		"bf16": `VDPBF16PS`,
	})
)

// sets turns lists of names by set around.
func sets(lists map[string]string) map[string]string {
	of := map[string]string{}
	for set, list := range lists {
		for _, name := range strings.Fields(list) {
			of[name] = set
		}
	}
	return of
}

// An encoded is an instruction, or a run of directives that stand for some, as the assembler made it.
type encoded struct {
	line  string // FILE:LINE
	text  string
	bytes []byte
}

var (
	listedInst  = regexp.MustCompile(`^\t0x[0-9a-f]+ (\d+) \((.*?:\d+)\)\t(.*)$`)
	listedBytes = regexp.MustCompile(`^\t0x[0-9a-f]+((?: [0-9a-f]{2}){1,16}) `)
)

// listing reads what go tool asm -S prints.
func listing(out string) (all []encoded, err error) {
	type place struct {
		encoded
		at int
	}
	var insts []place
	var code []byte
	end := func() {
		from := len(all)
		for i, p := range insts {
			to := len(code)
			if i+1 < len(insts) {
				to = insts[i+1].at
			}
			if p.at > to || to > len(code) {
				err = fmt.Errorf("%s: %s is at byte %d of a function of %d", p.line, p.text, p.at, len(code))
				return
			}
			if p.bytes = code[p.at:to]; len(p.bytes) == 0 {
				continue // the start of a function, or a note for the runtime
			}
			if n := len(all) - 1; n >= from && directive(p.text) && directive(all[n].text) {
				all[n].bytes = append(slices.Clip(all[n].bytes), p.bytes...)
				continue
			}
			all = append(all, p.encoded)
		}
		insts, code = nil, nil
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if m := listedInst.FindStringSubmatch(line); m != nil {
			at, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, err
			}
			insts = append(insts, place{encoded{line: m[2], text: strings.ReplaceAll(m[3], "\t", " ")}, at})
		} else if m := listedBytes.FindStringSubmatch(line); m != nil && len(insts) > 0 {
			b, err := hex.DecodeString(strings.ReplaceAll(m[1], " ", ""))
			if err != nil {
				return nil, err
			}
			code = append(code, b...)
		} else if !strings.HasPrefix(line, "\t") {
			end()
		} else if strings.HasPrefix(line, "\t0x") && len(insts) > 0 {
			return nil, fmt.Errorf("a line of the listing is not understood: %q", line)
		}
	}
	end()
	return all, err
}

func directive(text string) bool {
	name, _, _ := strings.Cut(text, " ")
	return name == "BYTE" || name == "WORD" || name == "LONG" || name == "QUAD"
}

// needs returns the instruction sets that the instructions of e need.
func (e encoded) needs() ([]string, error) {
	if directive(e.text) {
		return rawNeeds(e.bytes)
	}
	name, _, _ := strings.Cut(e.text, " ")
	name, _, _ = strings.Cut(name, ".")
	of, kind := legacySets, "without a prefix of AVX"
	var all []string
	switch e.bytes[0] {
	case 0xc4, 0xc5:
		of, kind = vexSets, "in VEX"
	case 0x62:
		of, kind = evexSets, "in EVEX"
		if e.bytes[3]&0x60 != 0x40 { // shorter than 64 bytes; no scalar, which has no length, is in evexSets
			all = append(all, "vl")
		}
	}
	set := of[name]
	if set == "" {
		return nil, fmt.Errorf("%s, encoded %s (% x), is none of the instructions whose set this test knows", name, kind, e.bytes)
	}
	return append(all, set), nil
}

// rawNeeds reads instructions that are given in bytes: the tiles', AVX-VNNI's and VDPBF16PS, of VEX.128.0F38.W0,
// VEX.256.66.0F38.W0 and EVEX.512.F3.0F38.W0, none of which has an immediate operand.
func rawNeeds(b []byte) (all []string, err error) {
	for len(b) > 0 {
		var i [6]byte // up to ModRM
		copy(i[:], b)
		var op int // place of the opcode
		switch {
		case i[0] == 0xc4 && i[1]&0x1f == 2 && i[2]&0x84 == 0 && slices.Contains([]byte{0x49, 0x4b, 0x5c, 0x5e}, i[3]):
			op, all = 3, append(all, "amx")
		case i[0] == 0xc4 && i[1]&0x1f == 2 && i[2]&0x87 == 5 && (i[3] == 0x50 || i[3] == 0x52):
			op, all = 3, append(all, "avxvnni")
		case i[0] == 0x62 && i[1]&7 == 2 && i[2]&0x87 == 6 && i[3]&0x60 == 0x40 && i[4] == 0x52:
			op, all = 4, append(all, "bf16")
		default:
			return nil, fmt.Errorf("bytes % x are none of the instructions that this test knows", b)
		}
		n := op + 2
		mod, rm := i[op+1]>>6, i[op+1]&7
		if mod != 3 && rm == 4 {
			n++ // SIB
		}
		switch {
		case mod == 1:
			n++
		case mod == 2 || mod == 0 && rm == 5:
			n += 4
		}
		if n > len(b) {
			return nil, fmt.Errorf("bytes % x end within an instruction", b)
		}
		b = b[n:]
	}
	return all, nil
}

// assemble returns the instructions of a file.
func assemble(t *testing.T, file string) []encoded {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("no go command here")
	}
	cmd := exec.Command("go", "tool", "asm", "-S", "-o", os.DevNull, "-p", "p", "-I", filepath.Join(strings.TrimSpace(string(out)), "pkg", "include"), file)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if out, err = cmd.Output(); err != nil {
		t.Fatalf("%s: %v\n%s", file, err, stderr.String())
	}
	all, err := listing(string(out))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// check reports each instruction that needs something else than the sets of a class.
func checkEncodings(all []encoded, class string) (problems []string) {
	have := strings.Fields("base " + class)
	for _, e := range all {
		needs, err := e.needs()
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", e.line, err))
		}
		needs = slices.DeleteFunc(needs, func(set string) bool { return slices.Contains(have, set) })
		if len(needs) > 0 {
			problems = append(problems, fmt.Sprintf("%s: %s (% x) needs %v, the class has %v", e.line, e.text, e.bytes, needs, have))
		}
	}
	return problems
}

// Every instruction of the assembly for amd64 is one that its class has, by its bytes: a register beyond the
// 15th, for example, makes one of AVX one of AVX-512VL.
func TestAssemblyHasTheInstructionsOfItsClass(t *testing.T) {
	const root = "../../.."
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case strings.HasSuffix(path, ".s") && !strings.HasSuffix(path, "_arm64.s"):
			name, err := filepath.Rel(root, path)
			found = append(found, filepath.ToSlash(name))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < len(assembled) {
		t.Skipf("only %d of %d files of assembly are here", len(found), len(assembled))
	}
	for _, name := range found {
		class, ok := assembled[name]
		if !ok {
			t.Errorf("%s: no instruction sets are given for it", name)
			continue
		}
		all := assemble(t, filepath.Join(root, name))
		if len(all) == 0 {
			t.Errorf("%s: no instructions", name)
		}
		problems := checkEncodings(all, class)
		for _, p := range problems[:min(len(problems), 8)] {
			t.Error(p)
		}
		t.Logf("%s: %d instructions, %d of others than the class's", name, len(all), len(problems))
	}
}

// The choice of a class is the only one that asks the processor, so that TALF_CLASS bounds all assembly.
func TestOnlyClassesAskTheProcessor(t *testing.T) {
	may := []string{"compute/cpu/kern/avxvnni_detect_amd64.go", "compute/cpu/kern/machine_amd64.go", "compute/cpu/kern/machine_arm64.go", "compute/cpu/topology/machine.go"}
	const root = "../../.."
	for _, dir := range []string{"compute/cpu", "model", "infer", "train", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			name, _ := filepath.Rel(root, path)
			if name = filepath.ToSlash(name); !slices.Contains(may, name) && (bytes.Contains(b, []byte("cpu.X86.Has")) || bytes.Contains(b, []byte("cpu.ARM64.Has"))) {
				t.Errorf("%s asks the processor: ask for the class", name)
			}
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			t.Skipf("%s is not here", dir)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestForeignInstructionsAreFound(t *testing.T) {
	for code, want := range map[string]string{ // class: instruction
		"avx: VADDPS Y15, Y14, Y13":                                     "",
		"avx: VADDPS Y16, Y14, Y13":                                     "needs [vl f]",
		"avx: VADDPS X1, X2, X31":                                       "needs [vl f]",
		"avx: VADDPS Z1, Z2, Z3":                                        "needs [f]",
		"avx: VPXORD Y1, Y2, Y3":                                        "needs [vl f]",
		"avx: VMOVUPS Y1, K1, (AX)":                                     "needs [vl f]",
		"avx: VFMADD231PS.BCST (AX), Y1, Y2":                            "needs [vl f]",
		"avx: KMOVW K1, AX":                                             "needs [f]",
		"avx: SHLXQ AX, BX, CX":                                         "SHLXQ, encoded in VEX",
		"avx: ANDNQ AX, BX, CX":                                         "ANDNQ, encoded in VEX",
		"avx: TZCNTQ AX, BX":                                            "TZCNTQ, encoded without",
		"avx: POPCNTQ AX, BX":                                           "POPCNTQ, encoded without",
		"avx: MOVBEQQ (AX), BX":                                         "MOVBEQ",
		"avx: PSHUFB X1, X2":                                            "PSHUFB, encoded without",
		"avx f: VADDPS Z16, Z14, Z13":                                   "",
		"avx f: VADDPS Y16, Y14, Y13":                                   "needs [vl]",
		"avx f: VPSLLW $8, Z1, Z2":                                      "needs [bw]",
		"avx f bw: VXORPS Z1, Z2, Z3":                                   "needs [dq]",
		"avx f: VPDPBUSD Z1, Z2, Z3":                                    "needs [vnni]",
		"avx f: VPMADD52LUQ Z1, Z2, Z3":                                 "VPMADD52LUQ, encoded in EVEX",
		"avx f: LONG $0x486ef262; BYTE $0x52; BYTE $0xc4":               "needs [bf16]",
		"avx f: LONG $0x497be2c4; BYTE $0xc8":                           "needs [amx]", // tilezero
		"avx amx: LONG $0x497be2c4; BYTE $0xc8; BYTE $0x0f; BYTE $0x0b": "none of the instructions",
	} {
		t.Run(code, func(t *testing.T) {
			class, inst, _ := strings.Cut(code, ": ")
			file := filepath.Join(t.TempDir(), "f_amd64.s")
			if err := os.WriteFile(file, []byte("#include \"textflag.h\"\nTEXT ·f(SB), NOSPLIT, $0-0\n\tVZEROUPPER\n\t"+inst+"\n\tRET\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(checkEncodings(assemble(t, file), class), "\n")
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("problems %q, want %q", got, want)
			}
		})
	}
}
