package main

import "encoding/binary"

type opcode uint8

const (
	ldTileCfg opcode = iota
	stTileCfg
	tileLoad
	tileLoadT1
	tileStore
	tileZero
	tileRelease
	tdpBF16PS
	tdpBSSD
	tdpBSUD
	tdpBUSD
	tdpBUUD
	opcodes
)

var names = [opcodes]string{
	"ldtilecfg", "sttilecfg", "tileloadd", "tileloaddt1", "tilestored", "tilezero", "tilerelease",
	"tdpbf16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud",
}

func (o opcode) String() string { return names[o] }

// none stands for a register that an address does not have, rip for the address of the next
// instruction.
const (
	none = -1
	rip  = -2
)

// An operand in memory: base + index·2^shift + disp. For tile rows, row r is at base + disp +
// r·(index·2^shift).
type operand struct {
	base, index int
	shift       uint
	disp        int32
}

// An inst is one decoded instruction. For a product, t is the accumulator, a the first source
// and b the second.
type inst struct {
	op      opcode
	size    int
	t, a, b int
	mem     operand
}

// maxSize is the longest of these instructions: VEX, opcode, ModRM, SIB, disp32.
const maxSize = 10

// The pp field of a VEX prefix: the legacy prefix that it stands for.
const (
	ppNone = iota
	pp66
	ppF3
	ppF2
)

// decode reads the instruction at the start of code: VEX.128.0F38.W0 with opcodes
// 49, 4B, 5C and 5E. It reports false for everything else.
func decode(code []byte) (inst, bool) {
	if len(code) < 5 || code[0] != 0xc4 || code[1]&0x1f != 2 || code[2]&0x84 != 0 {
		return inst{}, false
	}
	pp, modrm := code[2]&3, code[4]
	r, x, b := int(code[1]>>7^1), int(code[1]>>6&1^1), int(code[1]>>5&1^1)
	vvvv := int(code[2]>>3&15) ^ 15
	mod, reg, rm := modrm>>6, int(modrm>>3&7), int(modrm&7)
	if r != 0 { // there are eight tiles, and no other meaning of this field
		return inst{}, false
	}
	i := inst{size: 5, t: reg}
	if code[3] == 0x5c || code[3] == 0x5e {
		i.a, i.b = rm, vvvv
		switch {
		case mod != 3 || b != 0 || x != 0 || vvvv > 7:
			return inst{}, false
		case code[3] == 0x5c:
			i.op = tdpBF16PS
			return i, pp == ppF3
		default:
			i.op = [...]opcode{ppNone: tdpBUUD, pp66: tdpBUSD, ppF3: tdpBSUD, ppF2: tdpBSSD}[pp]
			return i, true
		}
	}
	if vvvv != 0 {
		return inst{}, false
	}
	switch {
	case code[3] == 0x49 && mod == 3 && pp == ppF2 && rm == 0:
		i.op = tileZero
		return i, true
	case code[3] == 0x49 && pp == ppNone && modrm == 0xc0:
		i.op = tileRelease
		return i, true
	case code[3] == 0x49 && mod != 3 && reg == 0 && pp == ppNone:
		i.op = ldTileCfg
	case code[3] == 0x49 && mod != 3 && reg == 0 && pp == pp66:
		i.op = stTileCfg
	case code[3] == 0x4b && mod != 3 && rm == 4 && pp != ppNone: // a SIB byte is obligatory
		i.op = [...]opcode{pp66: tileLoadT1, ppF3: tileStore, ppF2: tileLoad}[pp]
	default:
		return inst{}, false
	}
	m, n, ok := decodeMem(code[5:], mod, rm, x, b)
	i.mem, i.size = m, i.size+n
	return i, ok
}

// decodeMem reads the bytes after a ModRM byte that names memory, and returns their number. x
// and b are the high bits of the index and the base.
func decodeMem(code []byte, mod byte, rm, x, b int) (operand, int, bool) {
	m := operand{base: rm | b<<3, index: none}
	n, wide := 0, mod == 2
	if rm == 4 {
		if len(code) == 0 {
			return operand{}, 0, false
		}
		sib := code[0]
		n = 1
		m.shift = uint(sib >> 6)
		if i := int(sib>>3&7) | x<<3; i != 4 {
			m.index = i
		}
		m.base = int(sib&7) | b<<3
		if sib&7 == 5 && mod == 0 {
			m.base, wide = none, true
		}
	} else if rm == 5 && mod == 0 {
		m.base, wide = rip, true
	}
	switch {
	case wide:
		if len(code) < n+4 {
			return operand{}, 0, false
		}
		m.disp = int32(binary.LittleEndian.Uint32(code[n:]))
		n += 4
	case mod == 1:
		if len(code) < n+1 {
			return operand{}, 0, false
		}
		m.disp = int32(int8(code[n]))
		n++
	}
	return m, n, true
}
