package jinja

import (
	"slices"
	"strings"
)

// tuple parses expressions separated by commas.
func (p *parser) tuple(cond bool, ends []string) expr { return p.tupleOr(cond, ends, false) }

func (p *parser) tupleOr(cond bool, ends []string, parens bool) expr {
	line := p.tok.line
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 {
			p.expectOp(",")
		}
		if p.tupleEnd(ends) {
			break
		}
		items = append(items, p.expression(cond))
		if !p.isOp(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0]
		}
		if !parens {
			p.fail("Expected an expression, got %s", quote(p.tok.String()))
		}
	}
	return &seqNode{line: line, items: items, tuple: true}
}

// expression parses one expression, including conditional ones if cond is set.
func (p *parser) expression(cond bool) expr {
	p.enter()
	defer p.leave()
	if !cond {
		return p.or()
	}
	known := len(p.absent)
	e := p.or()
	for p.isName("if") {
		defer func() { p.absent = p.absent[:known] }()
		line := p.next().line
		test := p.or()
		var orelse expr
		if p.skipName("else") {
			orelse = p.expression(true)
		}
		e = &condNode{line, test, e, orelse}
	}
	return e
}

func (p *parser) or() expr {
	left := p.and()
	for p.skipName("or") {
		left = &logicNode{left, p.and(), true}
	}
	return left
}

func (p *parser) and() expr {
	left := p.not()
	for p.skipName("and") {
		left = &logicNode{left, p.not(), false}
	}
	return left
}

func (p *parser) not() expr {
	if p.skipName("not") {
		p.enter()
		defer p.leave()
		return &notNode{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	line := p.tok.line
	first := p.math1()
	var ops []operand
	for {
		op := ""
		switch {
		case p.tok.kind == tOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, p.tok.text):
			op = p.next().text
		case p.isName("in"):
			p.next()
			op = "in"
		case p.isName("not") && p.look().kind == tName && p.look().text == "in":
			p.next()
			p.next()
			op = "not in"
		}
		if op == "" {
			break
		}
		ops = append(ops, operand{op, p.math1()})
	}
	if ops == nil {
		return first
	}
	return &compareNode{line, first, ops}
}

// binary parses left-associative operators.
func (p *parser) binary(operand func() expr, ops ...string) expr {
	left := operand()
	for p.tok.kind == tOp && slices.Contains(ops, p.tok.text) {
		t := p.next()
		left = &binaryNode{t.line, t.text, left, operand()}
	}
	return left
}

func (p *parser) math1() expr { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() expr {
	line := p.tok.line
	items := []expr{p.math2()}
	for p.skipOp("~") {
		items = append(items, p.math2())
	}
	if len(items) == 1 {
		return items[0]
	}
	return &concatNode{line, items}
}

func (p *parser) math2() expr { return p.binary(p.pow, "*", "/", "//", "%") }

func (p *parser) pow() expr {
	return p.binary(func() expr { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) expr {
	line := p.tok.line
	var e expr
	if p.isOp("-") || p.isOp("+") {
		p.enter()
		defer p.leave()
		op := p.next().text
		e = &unaryNode{line, op, p.unary(false)}
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	if filters {
		e = p.filters(e)
	}
	return e
}

// use records that a name is read, for the special variables of macros.
func (p *parser) use(name string) {
	switch name {
	case "varargs", "kwargs", "caller":
	default:
		return
	}
	for _, m := range p.macros {
		switch name {
		case "varargs":
			m.varargs = true
		case "kwargs":
			m.kwargs = true
		case "caller":
			m.caller = true
		}
	}
}

func (p *parser) primary() expr {
	t := p.tok
	switch t.kind {
	case tName:
		p.next()
		switch t.text {
		case "true", "True":
			return &constNode{true}
		case "false", "False":
			return &constNode{false}
		case "none", "None":
			return &constNode{nil}
		}
		p.use(t.text)
		return &nameNode{t.line, t.text}
	case tString:
		p.next()
		if p.tok.kind != tString {
			return &constNode{t.text}
		}
		var b strings.Builder
		b.WriteString(t.text)
		for p.tok.kind == tString {
			b.WriteString(p.next().text)
		}
		return &constNode{b.String()}
	case tInt, tFloat:
		p.next()
		return &constNode{t.num}
	}
	switch {
	case p.skipOp("("):
		e := p.tupleOr(true, nil, true)
		p.expectOp(")")
		return e
	case p.skipOp("["):
		l := &seqNode{line: t.line}
		for !p.isOp("]") {
			if len(l.items) > 0 {
				p.expectOp(",")
			}
			if p.isOp("]") {
				break
			}
			l.items = append(l.items, p.expression(true))
		}
		p.expectOp("]")
		return l
	case p.skipOp("{"):
		d := &dictNode{line: t.line}
		for !p.isOp("}") {
			if len(d.keys) > 0 {
				p.expectOp(",")
			}
			if p.isOp("}") {
				break
			}
			d.keys = append(d.keys, p.expression(true))
			p.expectOp(":")
			d.vals = append(d.vals, p.expression(true))
		}
		p.expectOp("}")
		return d
	}
	p.fail("unexpected %s", quote(t.String()))
	return nil
}

func (p *parser) postfix(e expr) expr {
	for n := 0; ; n++ {
		if n > maxNesting {
			p.fail("more than %d attributes and calls in a row", maxNesting)
		}
		switch {
		case p.isOp("."), p.isOp("["):
			e = p.subscript(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) filters(e expr) expr {
	for n := 0; ; n++ {
		if n > maxNesting {
			p.fail("more than %d filters in a row", maxNesting)
		}
		switch {
		case p.isOp("|"):
			e = p.filter(e, false)
		case p.isName("is"):
			e = p.test(e)
		case p.isOp("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) subscript(e expr) expr {
	t := p.next()
	if t.text == "." {
		a := p.next()
		switch a.kind {
		case tName:
			return &attrNode{t.line, e, a.text}
		case tInt:
			return &itemNode{t.line, e, &constNode{a.num}}
		}
		p.fail("expected name or number")
	}
	var args []expr
	for !p.isOp("]") {
		if len(args) > 0 {
			p.expectOp(",")
		}
		args = append(args, p.subscribed())
	}
	p.expectOp("]")
	if len(args) == 1 {
		if s, ok := args[0].(*sliceNode); ok {
			s.x = e
			return s
		}
		return &itemNode{t.line, e, args[0]}
	}
	for _, a := range args {
		if _, ok := a.(*sliceNode); ok {
			p.fail("slices of several dimensions are not supported")
		}
	}
	return &itemNode{t.line, e, &seqNode{line: t.line, items: args, tuple: true}}
}

// subscribed parses an index or a slice.
func (p *parser) subscribed() expr {
	s := &sliceNode{line: p.tok.line}
	if !p.isOp(":") {
		e := p.expression(true)
		if !p.isOp(":") {
			return e
		}
		s.start = e
	}
	p.next()
	end := func() bool { return p.isOp("]") || p.isOp(",") }
	if !p.isOp(":") && !end() {
		s.stop = p.expression(true)
	}
	if p.skipOp(":") && !end() {
		s.step = p.expression(true)
	}
	return s
}

func (p *parser) arguments() (a argList) {
	line := p.tok.line
	p.expectOp("(")
	ensure := func(ok bool) {
		if !ok {
			throwAt(line, "TemplateSyntaxError", "invalid syntax for function call expression")
		}
	}
	var known map[string]bool // nil while there are few names
	repeated := func(name string) bool {
		if len(a.names) < few {
			return slices.Contains(a.names, name)
		}
		if known == nil {
			known = map[string]bool{}
			for _, k := range a.names {
				known[k] = true
			}
		}
		again := known[name]
		known[name] = true
		return again
	}
	for first := true; !p.isOp(")"); first = false {
		if !first {
			p.expectOp(",")
			if p.isOp(")") {
				break
			}
		}
		switch {
		case p.skipOp("*"):
			ensure(a.star == nil && a.starstar == nil)
			a.star = p.expression(true)
		case p.skipOp("**"):
			ensure(a.starstar == nil)
			a.starstar = p.expression(true)
		case p.tok.kind == tName && p.look().kind == tOp && p.look().text == "=":
			ensure(a.starstar == nil)
			name := p.next().text
			p.next()
			if repeated(name) {
				p.fail("keyword argument repeated: %s", name)
			}
			a.names = append(a.names, name)
			a.kw = append(a.kw, p.expression(true))
		default:
			ensure(a.star == nil && a.starstar == nil && len(a.kw) == 0)
			a.pos = append(a.pos, p.expression(true))
		}
	}
	p.expectOp(")")
	return a
}

func (p *parser) call(e expr) expr {
	line := p.tok.line
	return &callNode{line, e, p.arguments()}
}

// dotted parses the name of a filter or test.
func (p *parser) dotted() string {
	name := p.expectName()
	for p.skipOp(".") {
		name += "." + p.expectName()
	}
	return name
}

// filter parses a chain of filters; inline means that no bar precedes the first.
func (p *parser) filter(e expr, inline bool) expr {
	for n := 0; inline || p.isOp("|"); n++ {
		if n > maxNesting {
			p.fail("more than %d filters in a row", maxNesting)
		}
		if !inline {
			p.next()
		}
		inline = false
		f := &filterNode{line: p.tok.line, x: e, name: p.dotted()}
		if f.fn = filters[f.name]; f.fn == nil {
			p.missingName("filter", f.name)
		}
		if p.isOp("(") {
			f.args = p.arguments()
		}
		e = f
	}
	return e
}

func (p *parser) test(e expr) expr {
	t := &testNode{line: p.next().line, x: e}
	negated := p.skipName("not")
	t.name = p.dotted()
	if t.fn = tests[t.name]; t.fn == nil {
		p.missingName("test", t.name)
	}
	switch {
	case p.isOp("("):
		t.args = p.arguments()
	case p.tok.kind == tName && !p.isName("else") && !p.isName("or") && !p.isName("and"),
		p.tok.kind == tString, p.tok.kind == tInt, p.tok.kind == tFloat, p.isOp("["), p.isOp("{"):
		if p.isName("is") {
			p.fail("You cannot chain multiple tests with is")
		}
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	if negated {
		return &notNode{t}
	}
	return t
}
