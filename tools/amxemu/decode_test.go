package main

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The GNU assembler's encoding of each instruction, in forms that use every part of an encoding.
var encodings = []struct {
	code, text string
	want       inst
}{
	{"c4e2784900", "ldtilecfg (%rax)", inst{op: ldTileCfg, mem: operand{base: 0, index: none}}},
	{"c482784944ac40", "ldtilecfg 0x40(%r12,%r13,4)", inst{op: ldTileCfg, mem: operand{12, 13, 2, 64}}},
	{"c4e278490500010000", "ldtilecfg 0x100(%rip)", inst{op: ldTileCfg, mem: operand{rip, none, 0, 256}}},
	{"c4c279494308", "sttilecfg 0x8(%r11)", inst{op: stTileCfg, mem: operand{11, none, 0, 8}}},
	{"c4e27b4b341e", "tileloadd (%rsi,%rbx,1),%tmm6", inst{op: tileLoad, t: 6, mem: operand{6, 3, 0, 0}}},
	{"c4e27b4b4c2740", "tileloadd 0x40(%rdi,%riz,1),%tmm1", inst{op: tileLoad, t: 1, mem: operand{7, none, 0, 64}}},
	{"c4e27b4b741d00", "tileloadd 0x0(%rbp,%rbx,1),%tmm6", inst{op: tileLoad, t: 6, mem: operand{5, 3, 0, 0}}},
	{"c4e27b4b341d45230100", "tileloadd 0x12345(,%rbx,1),%tmm6", inst{op: tileLoad, t: 6, mem: operand{none, 3, 0, 0x12345}}},
	{"c482794b9c5100100000", "tileloaddt1 0x1000(%r9,%r10,2),%tmm3", inst{op: tileLoadT1, t: 3, mem: operand{9, 10, 1, 4096}}},
	{"c4827a4b54c5c0", "tilestored %tmm2,-0x40(%r13,%r8,8)", inst{op: tileStore, t: 2, mem: operand{13, 8, 3, -64}}},
	{"c4e27b49e8", "tilezero %tmm5", inst{op: tileZero, t: 5}},
	{"c4e27849c0", "tilerelease", inst{op: tileRelease}},
	{"c4e24a5cc4", "tdpbf16ps %tmm6,%tmm4,%tmm0", inst{op: tdpBF16PS, t: 0, a: 4, b: 6}},
	{"c4e2435edd", "tdpbssd %tmm7,%tmm5,%tmm3", inst{op: tdpBSSD, t: 3, a: 5, b: 7}},
	{"c4e2425edd", "tdpbsud %tmm7,%tmm5,%tmm3", inst{op: tdpBSUD, t: 3, a: 5, b: 7}},
	{"c4e2415edd", "tdpbusd %tmm7,%tmm5,%tmm3", inst{op: tdpBUSD, t: 3, a: 5, b: 7}},
	{"c4e2705eda", "tdpbuud %tmm1,%tmm2,%tmm3", inst{op: tdpBUUD, t: 3, a: 2, b: 1}},
}

func code(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDecode(t *testing.T) {
	seen := map[opcode]bool{}
	for _, e := range encodings {
		b := code(t, e.code)
		e.want.size = len(b)
		seen[e.want.op] = true
		if got, ok := decode(append(b, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc)); !ok || got != e.want {
			t.Errorf("%s (%s): %+v, %v, want %+v", e.text, e.code, got, ok, e.want)
		}
		for n := range b {
			if got, ok := decode(b[:n]); ok {
				t.Errorf("%s cut to %d bytes is taken for %+v", e.text, n, got)
			}
		}
	}
	if len(seen) != int(opcodes) {
		t.Errorf("%d of %d instructions are in the table", len(seen), opcodes)
	}
}

func TestDecodeLeavesOtherInstructionsAlone(t *testing.T) {
	for _, c := range []string{
		"0f0b",         // ud2
		"c4e2784ac0",   // another opcode
		"c4e2f849c0",   // W1
		"c4e27c49c0",   // 256 bits
		"c4e37849c0",   // another map
		"c4e27049c0",   // tilerelease with vvvv
		"c4627b49e8",   // tilezero of a ninth tile
		"c4e27b4b06",   // tileloadd without SIB
		"c4e2784b341e", // no such prefix
		"c4e20a5cc4",   // source tile 14
		"c4e2485cc4",   // 5C without F3
		"c5fc77909090", // vzeroall
	} {
		if got, ok := decode(append(code(t, c), make([]byte, 8)...)); ok {
			t.Errorf("%s is taken for %+v", c, got)
		}
	}
}

// If a disassembler is installed, it agrees with the table.
func TestEncodingsByObjdump(t *testing.T) {
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("no objdump here")
	}
	var b []byte
	for _, e := range encodings {
		b = append(b, code(t, e.code)...)
	}
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(objdump, "-D", "-b", "binary", "-m", "i386:x86-64", "--no-show-raw-insn", file).Output()
	if err != nil {
		t.Skipf("objdump does not know x86-64: %v", err)
	}
	lines := regexp.MustCompile(`(?m)^ *[0-9a-f]+:\t(.*?)\s*(#.*)?$`).FindAllSubmatch(out, -1)
	if bytes.Contains(out, []byte("(bad)")) {
		t.Skip("this objdump does not know AMX")
	}
	if len(lines) != len(encodings) {
		t.Fatalf("%d instructions, want %d:\n%s", len(lines), len(encodings), out)
	}
	for i, e := range encodings {
		if got := strings.Join(strings.Fields(string(lines[i][1])), " "); got != e.text {
			t.Errorf("%s is %q, want %q", e.code, got, e.text)
		}
	}
}

// Whatever the bytes, a decoded instruction lies within them and names only what exists.
func TestDecodeOfAnyBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	found := 0
	for range 200000 {
		b := code(t, encodings[r.IntN(len(encodings))].code)
		for range r.IntN(4) {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
		b = b[:r.IntN(len(b)+1)]
		i, ok := decode(b)
		if !ok {
			continue
		}
		found++
		if i.size < 5 || i.size > min(len(b), maxSize) || i.op >= opcodes || i.t >= tileCount || i.a >= tileCount ||
			i.b >= tileCount || i.mem.base < rip || i.mem.base > 15 || i.mem.index < none || i.mem.index > 15 {
			t.Fatalf("%x is %+v", b, i)
		}
	}
	if found < 10000 {
		t.Errorf("only %d instructions", found)
	}
}
