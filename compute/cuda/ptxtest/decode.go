package ptxtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// instruction decodes "@!%p1 opcode operands".
func (p *parser) instruction(s string) (instruction, error) {
	in := instruction{guard: -1}
	if strings.HasPrefix(s, "@") {
		g, rest, _ := strings.Cut(s[1:], " ")
		g, in.not = strings.TrimPrefix(g, "!"), strings.HasPrefix(g, "!")
		r, ok := p.lookup(g)
		if !ok || r.bank != preds {
			return in, fmt.Errorf("%s is no predicate", g)
		}
		in.guard = r.i
		s = strings.TrimSpace(rest)
	}
	// An operand may follow the opcode without a blank, but not without a tab.
	op, rest := s, ""
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		op, rest = s[:i], s[i+1:]
	}
	args, parts := fields(rest), strings.Split(op, ".")
	switch parts[0] {
	case "bra":
		if err := count(args, 1); err != nil {
			return in, err
		}
		target, ok := p.labels[args[0]]
		if !ok {
			return in, fmt.Errorf("label %s is not there", args[0])
		}
		in.kind, in.n = branch, target
		return in, nil
	case "ret":
		in.kind = exit
		return in, nil
	case "ld", "st":
		return in, p.access(&in, parts, args)
	case "bar":
		if op != "bar.sync" || !slices.Equal(args, []string{"0"}) {
			break
		}
		in.kind = barrier
		return in, nil
	case "membar":
		if op != "membar.gl" {
			break
		}
		in.run = (*warp).fence
		return in, nil
	case "griddepcontrol":
		switch op {
		case "griddepcontrol.wait":
			p.k.waits = true
			in.run = (*warp).waitForGrids
			return in, count(args, 0)
		case "griddepcontrol.launch_dependents":
			in.run = func(*warp, *instruction, uint32) {} // it makes no difference when
			return in, count(args, 0)
		}
	case "prefetch":
		if op != "prefetch.global.L2" || len(args) != 1 {
			break
		}
		a, short, err := p.address(args[0])
		if err != nil || short {
			return in, fmt.Errorf("address %s: %w", args[0], err)
		}
		in.run, in.args = (*warp).prefetch, []operand{a}
		return in, nil
	case "atom":
		return in, p.atom(&in, op, args)
	case "cp":
		return in, p.copies(&in, op, args)
	case "mma":
		return in, p.mma(&in, op, args)
	case "ldmatrix":
		return in, p.matrices(&in, op, args)
	case "shfl":
		if op != "shfl.sync.bfly.b32" || len(args) != 5 || args[4] != "-1" {
			break
		}
		in.kind, in.run = whole, (*warp).shuffle
		return in, p.operands(&in, args[:4], narrow, narrow, narrow, narrow)
	case "mov":
		return in, p.move(&in, op, args)
	case "cvt":
		return in, p.convert(&in, parts, args)
	case "cvta":
		// Generic addresses are global ones: kernels take no generic address of other spaces.
		if op != "cvta.to.global.u64" && op != "cvta.global.u64" {
			break
		}
		in.run = mov64
		return in, p.operands(&in, args, wide, wide)
	case "setp":
		return in, p.compare(&in, parts, args)
	case "selp":
		return in, p.selects(&in, op, args)
	}
	if f, ok := logic[op]; ok {
		in.run = f
		return in, p.operands(&in, args, preds, preds, preds)
	}
	if f, ok := operations[op]; ok {
		in.run = f.run
		return in, p.operands(&in, args, f.banks...)
	}
	return in, fmt.Errorf("%s is not known", op)
}

// count refuses any other number of operands than want.
func count(args []string, want int) error {
	if len(args) != want {
		return fmt.Errorf("%d operands, want %d", len(args), want)
	}
	return nil
}

// operands appends args, registers or constants of banks.
func (p *parser) operands(in *instruction, args []string, banks ...bank) error {
	if err := count(args, len(banks)); err != nil {
		return err
	}
	for i, a := range args {
		o, err := p.value(a, banks[i])
		if err != nil {
			return err
		}
		if i == 0 && !strings.HasPrefix(a, "%") {
			if _, ok := p.lookup(a); !ok {
				return fmt.Errorf("%s is no register", a)
			}
		}
		in.args = append(in.args, o)
	}
	return nil
}

func bankOf(typ string) (bank, error) {
	switch sizes[typ] {
	case 1, 2, 4:
		return narrow, nil
	case 8:
		return wide, nil
	}
	return 0, fmt.Errorf("type %q is not known", typ)
}

// access decodes ld and st, of one element or a vector. In args the address is first.
func (p *parser) access(in *instruction, parts, args []string) error {
	typ := parts[len(parts)-1]
	b, err := bankOf(typ)
	if err != nil {
		return err
	}
	if err := count(args, 2); err != nil {
		return err
	}
	load := parts[0] == "ld"
	data, addr := args[0], args[1]
	if !load {
		data, addr = addr, data
	}
	in.size, in.wide, in.sign, in.n = sizes[typ], b == wide, typ[0] == 's', 1
	for _, m := range parts[1 : len(parts)-1] {
		switch m {
		case "global":
			in.space = global
		case "shared":
			in.space = shared
		case "param":
			in.space = param
		case "nc", "cg":
			in.cache = m
		case "L1::no_allocate":
		case "v2", "v4":
			in.n, _ = strconv.Atoi(m[1:])
		default:
			return fmt.Errorf("%q is not known", m)
		}
	}
	a, short, err := p.address(addr)
	if err != nil {
		return err
	}
	if short {
		return fmt.Errorf("an address of 32 bits is not known")
	}
	in.args = []operand{a}
	elems := elements(data)
	if len(elems) != in.n {
		return fmt.Errorf("%d elements, want %d", len(elems), in.n)
	}
	if r, ok := p.lookup(elems[0]); ok && r.bank == wide { // registers may be wider than the type
		b, in.wide = wide, true
	}
	for _, e := range elems {
		o, err := p.value(e, b)
		if err != nil {
			return err
		}
		in.args = append(in.args, o)
	}
	switch {
	case load && in.space == param:
		in.run = (*warp).loadParam
	case load:
		in.run = (*warp).load
	case in.space == param:
		return fmt.Errorf("parameters cannot be stored to")
	default:
		in.run = (*warp).store
	}
	return nil
}

func (p *parser) atom(in *instruction, op string, args []string) error {
	if op != "atom.global.add.u32" || len(args) != 3 {
		return fmt.Errorf("%s is not known", op)
	}
	a, short, err := p.address(args[1])
	if err != nil || short {
		return fmt.Errorf("address %s: %w", args[1], err)
	}
	p.k.atoms = true
	in.run, in.size, in.args = (*warp).atomicAdd, 4, []operand{a}
	return p.operands(in, []string{args[0], args[2]}, narrow, narrow)
}

func (p *parser) copies(in *instruction, op string, args []string) error {
	switch op {
	case "cp.async.cg.shared.global":
		if err := count(args, 4); err != nil {
			return err
		}
		to, short, err := p.address(args[0])
		if err != nil || !short {
			return fmt.Errorf("address %s is not of 32 bits: %w", args[0], err)
		}
		from, short, err := p.address(args[1])
		if err != nil || short {
			return fmt.Errorf("address %s is not of 64 bits: %w", args[1], err)
		}
		if args[2] != "16" {
			return fmt.Errorf("%s is not known with these operands", op)
		}
		n, err := p.value(args[3], narrow)
		in.run, in.args = (*warp).copyAsync, []operand{to, from, n}
		return err
	case "cp.async.commit_group":
		in.run = (*warp).commitCopies
		return nil
	case "cp.async.wait_group":
		err := count(args, 1)
		if err == nil {
			in.run = (*warp).waitCopies
			in.n, err = strconv.Atoi(args[0])
		}
		return err
	}
	return fmt.Errorf("%s is not known", op)
}

// mma decodes d [4], a [4], b [2], c [4], in this order.
func (p *parser) mma(in *instruction, op string, args []string) error {
	if op != "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" || len(args) != 4 {
		return fmt.Errorf("%s is not known", op)
	}
	in.kind, in.run = whole, (*warp).multiply
	for i, want := range []int{4, 4, 2, 4} {
		elems := elements(args[i])
		if len(elems) != want {
			return fmt.Errorf("operand %d has %d registers, want %d", i, len(elems), want)
		}
		for _, e := range elems {
			if err := p.operands(in, []string{e}, narrow); err != nil {
				return err
			}
		}
	}
	return nil
}

// matrices decodes ldmatrix of four matrices. In args the address is last.
func (p *parser) matrices(in *instruction, op string, args []string) error {
	switch op {
	case "ldmatrix.sync.aligned.m8n8.x4.shared.b16":
	case "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16":
		in.n = 1
	default:
		return fmt.Errorf("%s is not known", op)
	}
	if err := count(args, 2); err != nil {
		return err
	}
	elems := elements(args[0])
	if err := p.operands(in, elems, narrow, narrow, narrow, narrow); err != nil {
		return err
	}
	from, short, err := p.address(args[1])
	if err != nil || !short {
		return fmt.Errorf("address %s is not of 32 bits: %w", args[1], err)
	}
	in.kind, in.space, in.run = whole, shared, (*warp).loadMatrices
	in.args = append(in.args, from)
	return nil
}

func (p *parser) move(in *instruction, op string, args []string) error {
	if err := count(args, 2); err != nil {
		return err
	}
	// "mov.b32 {low, high}, r" and "mov.b64 {low, high}, r" take a register apart.
	if elems := elements(args[0]); len(elems) == 2 {
		parts := []string{elems[0], elems[1], args[1]}
		switch op {
		case "mov.b32":
			in.run = unpackHalves
			return p.operands(in, parts, narrow, narrow, narrow)
		case "mov.b64":
			in.run = unpackWords
			return p.operands(in, parts, narrow, narrow, wide)
		}
	}
	switch typ := strings.TrimPrefix(op, "mov."); typ {
	case "pred":
		d, ok := p.lookup(args[0])
		if !ok || d.bank != preds {
			return fmt.Errorf("%s is no predicate", args[0])
		}
		in.args = []operand{{reg: d.i}}
		switch args[1] {
		case "-1", "0":
			in.run, in.n = setPredicate, int(args[1][0]&1) // '-' is odd, '0' even
			return nil
		}
		in.run = mov1
		in.args = nil
		return p.operands(in, args, preds, preds)
	default:
		b, err := bankOf(typ)
		if err != nil {
			return err
		}
		in.run = mov32
		if b == wide {
			in.run = mov64
		}
		return p.operands(in, args, b, b)
	}
}

// convert decodes cvt.rounding.to.from.
func (p *parser) convert(in *instruction, parts, args []string) error {
	if slices.Equal(parts[1:], []string{"rn", "bf16x2", "f32"}) {
		in.run = roundPair
		return p.operands(in, args, narrow, narrow, narrow)
	}
	if len(parts) < 3 {
		return fmt.Errorf("%s is not known", strings.Join(parts, "."))
	}
	if err := count(args, 2); err != nil {
		return err
	}
	from, to := parts[len(parts)-1], parts[len(parts)-2]
	tb, err := bankOf(to)
	if err != nil {
		return err
	}
	fb, err := bankOf(from)
	if err != nil {
		return err
	}
	if r, ok := p.lookup(args[len(args)-1]); ok && r.bank == wide && fb == narrow && to == "s64" && from == "s32" {
		in.run = signExtend // a source may be in a wider register
		return p.operands(in, args, wide, wide)
	}
	if err := p.operands(in, args, tb, fb); err != nil {
		return err
	}
	f := conversion(strings.Join(parts[1:], "."))
	if f == nil {
		return fmt.Errorf("conversion from %s to %s is not known", from, to)
	}
	in.run = f
	return nil
}

func (p *parser) compare(in *instruction, parts, args []string) error {
	if len(parts) != 3 {
		return fmt.Errorf("%s is not known", strings.Join(parts, "."))
	}
	typ := parts[2]
	b, err := bankOf(typ)
	if err != nil {
		return err
	}
	in.run = comparison(parts[1], typ)
	if in.run == nil {
		return fmt.Errorf("comparison %s of %s is not known", parts[1], typ)
	}
	return p.operands(in, args, preds, b, b)
}

func (p *parser) selects(in *instruction, op string, args []string) error {
	b, err := bankOf(strings.TrimPrefix(op, "selp."))
	if err != nil {
		return err
	}
	in.run = select32
	if b == wide {
		in.run = select64
	}
	return p.operands(in, args, b, b, b, preds)
}
