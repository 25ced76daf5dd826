package main

import (
	"fmt"
	"strings"
)

// Registers, as Go's assembler (x) and ARM's manual (v) number them.
type (
	x int // a general register
	v int // a vector register
)

func (r x) String() string { return fmt.Sprintf("R%d", int(r)) }

// word emits one instruction that Go's assembler may lack: its encoding, and its text in ARM's
// syntax, by which a test compares it with another assembler's.
func (g *gen) word(code uint32, format string, args ...any) {
	fmt.Fprintf(&g.asm, "\tWORD $0x%08x // %s\n", code, fmt.Sprintf(format, args...))
}

// A three is an instruction of two sources and a destination of the same arrangement, encoded as
// the Arm Architecture Reference Manual, section C7.2, has it.
type three struct {
	name, of string
	code     uint32
}

var (
	fadd   = three{"fadd", "4s", 0x4e20d400}
	fsub   = three{"fsub", "4s", 0x4ea0d400}
	fmul   = three{"fmul", "4s", 0x6e20dc00}
	fdiv   = three{"fdiv", "4s", 0x6e20fc00}
	fmla   = three{"fmla", "4s", 0x4e20cc00}
	fmls   = three{"fmls", "4s", 0x4ea0cc00}
	fmin   = three{"fmin", "4s", 0x4ea0f400}
	fcmgt  = three{"fcmgt", "4s", 0x6ea0e400}
	fcmge  = three{"fcmge", "4s", 0x6e20e400}
	fcmeq  = three{"fcmeq", "4s", 0x4e20e400}
	addw   = three{"add", "4s", 0x4ea08400}
	addp   = three{"addp", "4s", 0x4ea0bc00}
	umax   = three{"umax", "4s", 0x6ea06400}
	and    = three{"and", "16b", 0x4e201c00}
	bic    = three{"bic", "16b", 0x4e601c00}
	orr    = three{"orr", "16b", 0x4ea01c00}
	eor    = three{"eor", "16b", 0x6e201c00}
	bit    = three{"bit", "16b", 0x6ea01c00}
	tbl    = three{"tbl", "16b", 0x4e000000}
	zip1s  = three{"zip1", "4s", 0x4e803800}
	zip2s  = three{"zip2", "4s", 0x4e807800}
	uzp1d  = three{"uzp1", "2d", 0x4ec01800}
	uzp2d  = three{"uzp2", "2d", 0x4ec05800}
	uzp1h  = three{"uzp1", "8h", 0x4e401800}
	uzp1b  = three{"uzp1", "16b", 0x4e001800}
	uzp2b  = three{"uzp2", "16b", 0x4e005800}
	sdot   = three{"sdot", "4s,16b", 0x4e809400}
	smmla  = three{"smmla", "4s,16b", 0x4e80a400}
	usmmla = three{"usmmla", "4s,16b", 0x4e80ac00}
	smlal  = three{"smlal", "4s,4h", 0x0e608000}
	smlal2 = three{"smlal2", "4s,8h", 0x4e608000}
)

// do emits d = op(n, m).
func (g *gen) do(op three, d, n, m v) {
	code := op.code | uint32(m)<<16 | uint32(n)<<5 | uint32(d)
	to, from, long := strings.Cut(op.of, ",")
	if !long {
		from = to
	}
	if op.name == "tbl" {
		g.word(code, "tbl v%d.16b, { v%d.16b }, v%d.16b", d, n, m)
		return
	}
	g.word(code, "%s v%d.%s, v%d.%s, v%d.%s", op.name, d, to, n, from, m, from)
}

// An element is an instruction whose second source is one element of a register.
type element struct {
	name, from, at string
	code           uint32
}

var (
	fmulE  = element{"fmul", "4s", "s", 0x4f809000}
	fmlaE  = element{"fmla", "4s", "s", 0x4f801000}
	fmlsE  = element{"fmls", "4s", "s", 0x4f805000}
	sdotE  = element{"sdot", "16b", "4b", 0x4f80e000}
	sudotE = element{"sudot", "16b", "4b", 0x4f00f000}
)

// el emits d = op(n, m[i]).
func (g *gen) el(op element, d, n, m v, i int) {
	code := op.code | uint32(i&1)<<21 | uint32(i>>1)<<11 | uint32(m)<<16 | uint32(n)<<5 | uint32(d)
	g.word(code, "%s v%d.4s, v%d.%s, v%d.%s[%d]", op.name, d, n, op.from, m, op.at, i)
}

// A two is an instruction of one source.
type two struct {
	name, to, from string
	code           uint32
}

var (
	fabs    = two{"fabs", "4s", "4s", 0x4ea0f800}
	fneg    = two{"fneg", "4s", "4s", 0x6ea0f800}
	fsqrt   = two{"fsqrt", "4s", "4s", 0x6ea1f800}
	scvtf   = two{"scvtf", "4s", "4s", 0x4e21d800}
	ucvtf   = two{"ucvtf", "4s", "4s", 0x6e21d800}
	fcvtns  = two{"fcvtns", "4s", "4s", 0x4e21a800}
	fcvtl   = two{"fcvtl", "4s", "4h", 0x0e217800}
	ushllBH = two{"ushll", "8h", "8b", 0x2f08a400}
	ushllHS = two{"ushll", "4s", "4h", 0x2f10a400}
	sshllBH = two{"sshll", "8h", "8b", 0x0f08a400}
	sshllHS = two{"sshll", "4s", "4h", 0x0f10a400}
	quarter = two{"scvtf", "4s", "4s", 0x4f3ee400} // of n/4
)

// un emits d = op(n).
func (g *gen) un(op two, d, n v) {
	tail := ""
	switch {
	case op == quarter:
		tail = ", #2"
	case op.name == "ushll" || op.name == "sshll":
		tail = ", #0"
	}
	g.word(op.code|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s%s", op.name, d, op.to, n, op.from, tail)
}

// A shift moves each element by a constant: to the left, base is its size in bits; to the right,
// twice that, and the constant counts down from it.
type shift struct {
	name, of string
	base     int
	right    bool
	code     uint32
}

var (
	shl4s   = shift{"shl", "4s", 32, false, 0x4f005400}
	shl16b  = shift{"shl", "16b", 8, false, 0x4f005400}
	sli16b  = shift{"sli", "16b", 8, false, 0x6f005400} // keeps what lies below
	shl8h   = shift{"shl", "8h", 16, false, 0x4f005400}
	sshr8h  = shift{"sshr", "8h", 32, true, 0x4f000400}
	ushr16b = shift{"ushr", "16b", 16, true, 0x6f000400}
)

func (g *gen) shift(op shift, d, n v, by int) {
	at := op.base + by
	if op.right {
		at = op.base - by
	}
	g.word(op.code|uint32(at)<<16|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s, #%d", op.name, d, op.of, n, op.of, by)
}

// mov copies a register.
func (g *gen) mov(d, n v) {
	g.word(orr.code|uint32(n)<<16|uint32(n)<<5|uint32(d), "mov v%d.16b, v%d.16b", d, n)
}

// zero clears a register.
func (g *gen) zero(d v) { g.word(0x6f00e400|uint32(d), "movi v%d.2d, #0000000000000000", d) }

// bytes fills a register with one byte.
func (g *gen) bytes(d v, b uint32) {
	g.word(0x4f00e400|b>>5<<16|b&31<<5|uint32(d), "movi v%d.16b, #%d", d, b)
}

// dup fills d with word i of n.
func (g *gen) dup(d, n v, i int) {
	g.word(0x4e000400|uint32(i<<3|4)<<16|uint32(n)<<5|uint32(d), "dup v%d.4s, v%d.s[%d]", d, n, i)
}

// ext sets d to the upper half of n and then the lower.
func (g *gen) ext(d, n v) {
	g.word(0x6e004000|uint32(n)<<16|uint32(n)<<5|uint32(d), "ext v%d.16b, v%d.16b, v%d.16b, #8", d, n, n)
}

// umaxv sets the first word of d to the largest word of n, and the rest to zero.
func (g *gen) umaxv(d, n v) {
	g.word(0x6eb0a800|uint32(n)<<5|uint32(d), "umaxv s%d, v%d.4s", d, n)
}

// addv sets the first word of d to the sum of n's words, and the rest to zero.
func (g *gen) addv(d, n v) { g.word(0x4eb1b800|uint32(n)<<5|uint32(d), "addv s%d, v%d.4s", d, n) }

// A width is the size of what a load or store moves.
type width struct {
	name        string
	bytes       int
	load, store uint32
}

var (
	wordS = width{"s", 4, 0xbd400000, 0xbd000000}
	wordD = width{"d", 8, 0xfd400000, 0xfd000000}
	wordQ = width{"q", 16, 0x3dc00000, 0x3d800000}
)

func address(p x, off int) string {
	if off == 0 {
		return fmt.Sprintf("[x%d]", int(p))
	}
	return fmt.Sprintf("[x%d, #%d]", int(p), off)
}

func (w width) at(off int) uint32 {
	if off < 0 || off%w.bytes != 0 || off/w.bytes > 4095 {
		panic(fmt.Sprintf("offset %d of %s", off, w.name))
	}
	return uint32(off/w.bytes) << 10
}

// ld reads d from p+off.
func (g *gen) ld(w width, d v, p x, off int) {
	g.word(w.load|w.at(off)|uint32(p)<<5|uint32(d), "ldr %s%d, %s", w.name, d, address(p, off))
}

// st writes d to p+off.
func (g *gen) st(w width, d v, p x, off int) {
	g.word(w.store|w.at(off)|uint32(p)<<5|uint32(d), "str %s%d, %s", w.name, d, address(p, off))
}

// ldx reads a word from p+i.
func (g *gen) ldx(d v, p, i x) {
	g.word(0xbc606800|uint32(i)<<16|uint32(p)<<5|uint32(d), "ldr s%d, [x%d, x%d]", d, int(p), int(i))
}

// ldp reads two registers from p+off, at most 1008.
func (g *gen) ldp(d, e v, p x, off int) { g.pair(0xad400000, "ldp", d, e, p, off) }

// stp writes two registers to p+off.
func (g *gen) stp(d, e v, p x, off int) { g.pair(0xad000000, "stp", d, e, p, off) }

func (g *gen) pair(code uint32, name string, d, e v, p x, off int) {
	if off%16 != 0 || off < 0 || off > 1008 {
		panic(fmt.Sprintf("offset %d of a pair", off))
	}
	g.word(code|uint32(off/16)<<15|uint32(e)<<10|uint32(p)<<5|uint32(d), "%s q%d, q%d, %s", name, d, e, address(p, off))
}

// upper sets the upper half of every word of d, and clears the lower.
func (g *gen) upper(d v) {
	g.word(0x6f00e400|0b110<<16|0b01100<<5|uint32(d), "movi v%d.2d, #0xffff0000ffff0000", d)
}

// pickWord moves the first word of n to a general register.
func (g *gen) pickWord(d x, n v) {
	g.word(0x1e260000|uint32(n)<<5|uint32(d), "fmov w%d, s%d", int(d), n)
}
