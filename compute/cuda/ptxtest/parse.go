package ptxtest

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// A Module is parsed PTX.
type Module struct {
	kernels map[string]*Kernel
}

// A Kernel is an entry point.
type Kernel struct {
	Name    string
	Threads int // of a block, as .maxntid bounds them
	Params  int // bytes of its parameters

	params map[string]int // offsets
	shared []variable
	bytes  int // of shared memory, gaps included
	code   []instruction
	atoms  bool // whether blocks can wait for each other's stores
	waits  bool // whether it waits for kernels in front

	narrow, wide, preds int // registers
	consts32            map[int]uint32
	consts64            map[int]uint64
	specials            map[int]string // 32-bit registers
}

// A variable is a shared one, at an offset that leaves a gap to its neighbours.
type variable struct {
	name string
	at   int
	size int
}

// An operand is a register, a constant in one, or an address.
type operand struct {
	reg int // of the bank that the instruction's type names
	off int64
}

// An instruction is decoded once.
type instruction struct {
	run   func(w *warp, in *instruction, mask uint32)
	kind  kind
	guard int // predicate, or −1
	not   bool
	args  []operand
	n     int  // a vector's elements, a branch's target, a group's number
	size  int  // bytes of an element
	sign  bool // of a narrow load
	space space
	wide  bool // 64-bit registers
	cache string
	line  int
	text  string
}

type kind uint8

const (
	plain   kind = iota
	branch       // goes elsewhere
	exit         // ret
	whole        // of all of a warp's threads together
	barrier      // bar.sync
)

type space uint8

const (
	global space = iota
	shared
	param
)

// gap keeps shared variables apart, so that what is read behind one is not another.
const gap = 64

// sharedBase is the offset of the first shared variable: none has address 0.
const sharedBase = 256

// paramBase is the address of a kernel's parameters.
const paramBase = 0x100

// Parse reads a module.
func Parse(text string) (*Module, error) {
	m := &Module{kernels: map[string]*Kernel{}}
	p := &parser{text: strip(text), line: 1}
	for {
		p.skip()
		if p.at == len(p.text) {
			return m, nil
		}
		switch line := p.until("\n"); {
		case strings.HasPrefix(line, ".version"), strings.HasPrefix(line, ".target"), strings.HasPrefix(line, ".address_size"):
		case strings.HasPrefix(line, ".visible .entry "):
			k, err := p.kernel(line)
			if err != nil {
				return nil, err
			}
			m.kernels[k.Name] = k
		default:
			return nil, fmt.Errorf("line %d: %q is not known", p.line, line)
		}
	}
}

// Kernel returns an entry point by name, nil if there is none.
func (m *Module) Kernel(name string) *Kernel { return m.kernels[name] }

// Len returns the number of kernels.
func (m *Module) Len() int { return len(m.kernels) }

// strip replaces comments by blanks, so that lines keep their numbers.
func strip(s string) string {
	var b strings.Builder
	for line := range strings.SplitAfterSeq(s, "\n") {
		if i := strings.Index(line, "//"); i >= 0 {
			line = line[:i] + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// A parser reads kernels one after the other.
type parser struct {
	text string
	at   int
	line int

	k      *Kernel
	scopes []map[string]reg
	labels map[string]int
	c32    map[uint32]int
	c64    map[uint64]int
	sreg   map[string]int
}

// A bank holds registers of one width.
type bank uint8

const (
	narrow bank = iota // 8 to 32 bits
	wide               // 64 bits
	preds
)

type reg struct {
	bank bank
	i    int
}

func (p *parser) skip() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		if p.text[p.at] == '\n' {
			p.line++
		}
		p.at++
	}
}

// until returns the text up to a separator and passes that.
func (p *parser) until(sep string) string {
	rest := p.text[p.at:]
	i := strings.Index(rest, sep)
	if i < 0 {
		i = len(rest)
		p.at = len(p.text)
	} else {
		p.at += i + len(sep)
	}
	p.line += strings.Count(p.text[p.at-len(sep):p.at], "\n") * min(1, len(rest)-i)
	p.line += strings.Count(rest[:i], "\n")
	return strings.TrimSpace(rest[:i])
}

func (p *parser) kernel(line string) (*Kernel, error) {
	k := &Kernel{
		params: map[string]int{}, consts32: map[int]uint32{}, consts64: map[int]uint64{}, specials: map[int]string{},
		Name: strings.TrimSuffix(strings.TrimPrefix(line, ".visible .entry "), "("),
	}
	p.k, p.scopes, p.labels = k, []map[string]reg{{}}, map[string]int{}
	p.c32, p.c64, p.sreg = map[uint32]int{}, map[uint64]int{}, map[string]int{}
	for s := range strings.SplitSeq(p.until(")"), ",") {
		var align, size int
		var name string
		if _, err := fmt.Sscanf(strings.NewReplacer("[", " ", "]", "").Replace(s), ".param .align %d .b8 %s %d", &align, &name, &size); err != nil {
			return nil, fmt.Errorf("line %d: kernel %s: parameter %q: %w", p.line, k.Name, s, err)
		}
		k.params[name] = k.Params
		k.Params += size
	}
	head := p.until("{")
	if _, rest, ok := strings.Cut(head, ".maxntid"); ok {
		n, _, _ := strings.Cut(rest, ",")
		k.Threads, _ = strconv.Atoi(strings.TrimSpace(n))
	}
	if k.Threads == 0 {
		return nil, fmt.Errorf("line %d: kernel %s has no .maxntid", p.line, k.Name)
	}
	k.bytes = sharedBase
	type source struct {
		text string
		line int
	}
	var code []source
	var places []map[string]reg // the innermost scope of each
	root := p.scopes[0]
	for len(p.scopes) > 0 {
		if p.skip(); p.at == len(p.text) {
			return nil, fmt.Errorf("kernel %s has no end", k.Name)
		}
		switch c := p.text[p.at]; {
		case c == '{':
			p.at++
			p.scopes = append(p.scopes, map[string]reg{})
			continue
		case c == '}':
			p.at++
			p.scopes = p.scopes[:len(p.scopes)-1]
			continue
		case c == '$':
			p.labels[p.until(":")] = len(code)
			continue
		}
		line := p.line
		s := p.until(";")
		switch {
		case strings.HasPrefix(s, ".reg "):
			if err := p.registers(strings.Fields(s)[1:]); err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
		case strings.HasPrefix(s, ".shared "):
			if err := p.variable(s); err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
		case strings.HasPrefix(s, ".pragma"):
		case strings.HasPrefix(s, "."):
			return nil, fmt.Errorf("line %d: %q is not known", line, s)
		default:
			code = append(code, source{s, line})
			places = append(places, p.scopes[len(p.scopes)-1])
		}
	}
	for i, s := range code {
		p.scopes = []map[string]reg{root, places[i]} // blocks are not nested
		in, err := p.instruction(s.text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", s.line, s.text, err)
		}
		in.line, in.text = s.line, s.text
		k.code = append(k.code, in)
	}
	return k, nil
}

// registers declares "%r<13>" or a single name.
func (p *parser) registers(f []string) error {
	if len(f) != 2 {
		return fmt.Errorf("registers %q are not known", f)
	}
	names := []string{f[1]}
	if prefix, n, ok := strings.Cut(strings.TrimSuffix(f[1], ">"), "<"); ok {
		count, err := strconv.Atoi(n)
		if err != nil || count > 1<<16 {
			return fmt.Errorf("%q registers", n)
		}
		names = names[:0]
		for i := range count {
			names = append(names, prefix+strconv.Itoa(i))
		}
	}
	for _, n := range names {
		var r reg
		switch f[0] {
		case ".pred":
			r = reg{preds, p.k.preds}
			p.k.preds++
		case ".b16", ".b32", ".f32":
			r = reg{narrow, p.k.narrow}
			p.k.narrow++
		case ".b64", ".f64":
			r = reg{wide, p.k.wide}
			p.k.wide++
		default:
			return fmt.Errorf("registers of type %s are not known", f[0])
		}
		p.scopes[len(p.scopes)-1][n] = r
	}
	return nil
}

// variable declares shared memory, ".shared .align 16 .b8 name[32]" or ".shared .align 16 .u32 name".
func (p *parser) variable(s string) error {
	f := strings.Fields(s)
	if len(f) != 5 || f[1] != ".align" {
		return fmt.Errorf("variable %q is not known", s)
	}
	size := map[string]int{".b8": 1, ".u32": 4, ".b32": 4, ".f32": 4, ".u64": 8, ".b64": 8}[f[3]]
	align, err := strconv.Atoi(f[2])
	name, count, ok := strings.Cut(f[4], "[")
	if ok && err == nil {
		var n int
		n, err = strconv.Atoi(strings.TrimSuffix(count, "]"))
		size *= n
	}
	if err != nil || size <= 0 || align <= 0 || align > 128 {
		return fmt.Errorf("variable %q is not known", s)
	}
	at := (p.k.bytes + align - 1) / align * align
	p.k.shared = append(p.k.shared, variable{name, at, size})
	p.k.bytes = at + size + gap
	return nil
}

// sizes are the bytes of types.
var sizes = map[string]int{
	"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2,
	"b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8,
}

func (p *parser) lookup(name string) (reg, bool) {
	for i := len(p.scopes) - 1; i >= 0; i-- {
		if r, ok := p.scopes[i][name]; ok {
			return r, true
		}
	}
	return reg{}, false
}

// value returns the register of an operand, one for each constant.
func (p *parser) value(s string, b bank) (operand, error) {
	if r, ok := p.lookup(s); ok {
		if r.bank != b {
			return operand{}, fmt.Errorf("%s is a register of another width", s)
		}
		return operand{reg: r.i}, nil
	}
	if b == narrow && strings.HasPrefix(s, "%") {
		switch s {
		case "%tid.x", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x":
			if _, ok := p.sreg[s]; !ok {
				p.sreg[s] = p.k.narrow
				p.k.specials[p.k.narrow] = s
				p.k.narrow++
			}
			return operand{reg: p.sreg[s]}, nil
		}
	}
	v, err := p.constant(s)
	if err != nil {
		return operand{}, err
	}
	switch b {
	case narrow:
		if _, ok := p.c32[uint32(v)]; !ok {
			p.c32[uint32(v)] = p.k.narrow
			p.k.consts32[p.k.narrow] = uint32(v)
			p.k.narrow++
		}
		return operand{reg: p.c32[uint32(v)]}, nil
	case wide:
		if _, ok := p.c64[v]; !ok {
			p.c64[v] = p.k.wide
			p.k.consts64[p.k.wide] = v
			p.k.wide++
		}
		return operand{reg: p.c64[v]}, nil
	}
	return operand{}, fmt.Errorf("%s is no predicate", s)
}

// constant returns the bits of a number or the address of a symbol.
func (p *parser) constant(s string) (uint64, error) {
	switch {
	case strings.HasPrefix(s, "0f"):
		return strconv.ParseUint(s[2:], 16, 32)
	case strings.HasPrefix(s, "0d"):
		return strconv.ParseUint(s[2:], 16, 64)
	case s != "" && strings.IndexByte("-0123456789", s[0]) >= 0:
		if v, err := strconv.ParseInt(s, 0, 64); err == nil {
			return uint64(v), nil
		}
		return strconv.ParseUint(s, 0, 64)
	}
	name, off := cutOffset(s)
	for _, v := range p.k.shared {
		if v.name == name {
			return uint64(int64(v.at) + off), nil
		}
	}
	if at, ok := p.k.params[name]; ok {
		return uint64(paramBase + int64(at) + off), nil
	}
	return 0, fmt.Errorf("%q is not known", s)
}

// cutOffset splits "name+8" and "name+-8".
func cutOffset(s string) (string, int64) {
	name, rest, ok := strings.Cut(s, "+")
	if !ok {
		return s, 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(rest), 0, 64)
	if err != nil {
		return s, 0
	}
	return strings.TrimSpace(name), n
}

// address parses "[reg+off]", whose register has 64 bits, or 32 in shared memory.
func (p *parser) address(s string) (operand, bool, error) {
	if !strings.HasPrefix(s, "[") || !strings.HasSuffix(s, "]") {
		return operand{}, false, fmt.Errorf("%q is no address", s)
	}
	name, off := cutOffset(s[1 : len(s)-1])
	if r, ok := p.lookup(name); ok {
		if r.bank == preds {
			return operand{}, false, fmt.Errorf("%q is no address", s)
		}
		return operand{reg: r.i, off: off}, r.bank == narrow, nil
	}
	o, err := p.value(name, wide)
	o.off = off
	return o, false, err
}

// fields splits operands at commas outside of braces.
func fields(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(s[from:i]))
				from = i + 1
			}
		}
	}
	if last := strings.TrimSpace(s[from:]); last != "" {
		out = append(out, last)
	}
	return out
}

// elements returns those of a vector, or a scalar.
func elements(s string) []string {
	if inner, ok := strings.CutPrefix(s, "{"); ok {
		return fields(strings.TrimSuffix(inner, "}"))
	}
	return []string{s}
}

var order = binary.LittleEndian
