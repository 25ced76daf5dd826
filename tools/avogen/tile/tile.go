// Package tile encodes instructions that neither avo nor Go's assembler knows: the tile instructions
// of Intel's AMX, VDPBF16PS, and AVX-VNNI's products. Their registers are physical ones: avo's allocator does not see into
// bytes.
package tile

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A Reg is one of the registers TMM0 to TMM7.
type Reg uint8

// The instruction sets.
const (
	tiles = "AMX-TILE"
	bf16  = "AMX-BF16"
	int8s = "AMX-INT8"
	dots  = "AVX512BF16"
	vnni  = "AVXVNNI"
)

// A Code is an instruction's bytes, what a disassembler calls them, and the instruction set.
type Code struct {
	Text  string
	Bytes []byte
	ISA   string
}

// gpNames are the general purpose registers in the order of their encoding.
var gpNames = [16]string{
	"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
}

var gpNumbers = map[reg.Physical]int{
	reg.RAX: 0, reg.RCX: 1, reg.RDX: 2, reg.RBX: 3, reg.RSP: 4, reg.RBP: 5, reg.RSI: 6, reg.RDI: 7,
	reg.R8: 8, reg.R9: 9, reg.R10: 10, reg.R11: 11, reg.R12: 12, reg.R13: 13, reg.R14: 14, reg.R15: 15,
}

func gp(r reg.Register) int {
	p, ok := r.(reg.Physical)
	n, known := gpNumbers[p]
	if !ok || !known {
		panic(fmt.Sprintf("tile: %v is not a 64-bit general purpose register", r))
	}
	return n
}

// The mandatory prefix of an instruction as VEX has it.
const (
	ppNone = iota
	pp66
	ppF3
	ppF2
)

// vex returns VEX.128.pp.0F38.W0 op up to the ModRM byte: r, x and b are the high
// bits of its registers, v the additional one.
func vex(pp int, op, modrm byte, r, x, b, v int) []byte {
	return []byte{0xc4, byte(r^1)<<7 | byte(x^1)<<6 | byte(b^1)<<5 | 2, byte(v^15)<<3 | byte(pp), op, modrm}
}

// vexMem is vex with field (ModRM.reg) and a memory operand. An index makes a SIB
// byte.
func vexMem(pp int, op byte, field int, m operand.Mem) (bytes []byte, text string) {
	base, index, shift, sib := gp(m.Base), 4, 0, m.Index != nil
	if sib {
		shift = slices.Index([]uint8{1, 2, 4, 8}, m.Scale)
		if index = gp(m.Index); index == 4 || shift < 0 {
			panic(fmt.Sprintf("tile: no tile operand %+v", m))
		}
	}
	var disp []byte
	mod := byte(0)
	switch {
	case m.Disp == 0 && base&7 != 5:
	case m.Disp == int(int8(m.Disp)):
		mod, disp = 1, []byte{byte(m.Disp)}
	default:
		mod, disp = 2, binary.LittleEndian.AppendUint32(nil, uint32(m.Disp))
	}
	if rm := byte(base & 7); sib || rm == 4 {
		bytes = append(vex(pp, op, mod<<6|byte(field)<<3|4, 0, index>>3&1, base>>3, 0), byte(shift<<6|index&7<<3)|rm)
	} else {
		bytes = vex(pp, op, mod<<6|byte(field)<<3|rm, 0, 0, base>>3, 0)
	}
	if len(disp) > 0 {
		text = fmt.Sprintf("%#x", m.Disp)
	}
	text += "(%" + gpNames[base]
	if sib {
		text += fmt.Sprintf(",%%%s,%d", gpNames[index], m.Scale)
	}
	return append(bytes, disp...), text + ")"
}

// LoadConfig loads the configuration of 64 bytes at m.
func LoadConfig(m operand.Mem) Code {
	b, s := vexMem(ppNone, 0x49, 0, m)
	return Code{"ldtilecfg " + s, b, tiles}
}

// Release returns the tiles to their initial state.
func Release() Code {
	return Code{"tilerelease", vex(ppNone, 0x49, 0xc0, 0, 0, 0, 0), tiles}
}

// Zero sets t to zero.
func Zero(t Reg) Code {
	return Code{fmt.Sprintf("tilezero %%tmm%d", t), vex(ppF2, 0x49, 0xc0|byte(t)<<3, 0, 0, 0, 0), tiles}
}

// Rows is a tile's operand: row r is at base + disp + r·scale·stride.
func Rows(base, stride reg.Register, scale uint8, disp int) operand.Mem {
	return operand.Mem{Base: base, Index: stride, Scale: scale, Disp: disp}
}

// Load loads t from rows m.
func Load(m operand.Mem, t Reg) Code {
	b, s := vexMem(ppF2, 0x4b, int(t), m)
	return Code{fmt.Sprintf("tileloadd %s,%%tmm%d", s, t), b, tiles}
}

// Store stores t to rows m.
func Store(t Reg, m operand.Mem) Code {
	b, s := vexMem(ppF3, 0x4b, int(t), m)
	return Code{fmt.Sprintf("tilestored %%tmm%d,%s", t, s), b, tiles}
}

func product(isa, name string, pp int, op byte, b, a, c Reg) Code {
	if a == b || a == c || b == c {
		panic(fmt.Sprintf("tile: %s of tiles %d, %d and %d: they must differ", name, b, a, c))
	}
	return Code{
		fmt.Sprintf("%s %%tmm%d,%%tmm%d,%%tmm%d", name, b, a, c),
		vex(pp, op, 0xc0|byte(c)<<3|byte(a), 0, 0, 0, int(b)),
		isa,
	}
}

// DotBF16 adds a·b to c: pairs of bfloat16, float32.
func DotBF16(b, a, c Reg) Code { return product(bf16, "tdpbf16ps", ppF3, 0x5c, b, a, c) }

// DotS8S8 adds a·b to c: fours of int8 each, int32.
func DotS8S8(b, a, c Reg) Code { return product(int8s, "tdpbssd", ppF2, 0x5e, b, a, c) }

// DotU8S8 adds a·b to c: fours of uint8 in a and of int8 in b, int32.
func DotU8S8(b, a, c Reg) Code { return product(int8s, "tdpbusd", pp66, 0x5e, b, a, c) }

// DotPairs is VDPBF16PS of registers ZMM0 to ZMM31: it adds the products of the pairs of bfloat16 in a
// and b to the float32 in c.
func DotPairs(b, a, c int) Code {
	for _, r := range []int{a, b, c} {
		if r < 0 || r > 31 {
			panic(fmt.Sprintf("tile: no register zmm%d", r))
		}
	}
	// EVEX.512.F3.0F38.W0 52 /r: the high bits of registers are inverted.
	not := func(r, bit int) byte { return byte(r>>bit&1) ^ 1 }
	return Code{fmt.Sprintf("vdpbf16ps %%zmm%d,%%zmm%d,%%zmm%d", b, a, c), []byte{
		0x62,
		not(c, 3)<<7 | not(b, 4)<<6 | not(b, 3)<<5 | not(c, 4)<<4 | 2,
		byte(^a&15)<<3 | 4 | ppF3,
		2<<5 | not(a, 4)<<3,
		0x52,
		0xc0 | byte(c&7)<<3 | byte(b&7),
	}, dots}
}

// DotBytes is AVX-VNNI's VPDPBUSD of registers YMM0 to YMM15: it adds the products of fours of uint8 in a and of int8 in
// b to the int32 in c.
func DotBytes(b, a, c int) Code { return vnniProduct("vpdpbusd", 0x50, b, a, c) }

// DotWords is AVX-VNNI's VPDPWSSD: it adds the products of pairs of int16.
func DotWords(b, a, c int) Code { return vnniProduct("vpdpwssd", 0x52, b, a, c) }

// vnniProduct is VEX.256.66.0F38.W0 op /r.
func vnniProduct(name string, op byte, b, a, c int) Code {
	for _, r := range []int{a, b, c} {
		if r < 0 || r > 15 {
			panic(fmt.Sprintf("tile: no register ymm%d", r))
		}
	}
	const long = 1 << 2
	code := vex(pp66|long, op, 0xc0|byte(c&7)<<3|byte(b&7), c>>3, 0, b>>3, a)
	return Code{fmt.Sprintf("{vex} %s %%ymm%d,%%ymm%d,%%ymm%d", name, b, a, c), code, vnni}
}
