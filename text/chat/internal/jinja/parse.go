package jinja

import (
	"slices"
	"strings"

	"talf/internal/limits"
)

// maxNesting bounds the nesting depth of a template's source.
const maxNesting = 300

// A Template is a compiled template, safe for concurrent use.
type Template struct {
	body   []stmt
	marked bool
}

// Marked reports whether the template has {% generation %} blocks.
func (t *Template) Marked() bool { return t.marked }

// Parse compiles a template. A source of more than limits.TemplateBytes is refused; what is
// shorter takes time and memory in proportion to its length, some tens of nanoseconds and
// at most parseBytes for each byte.
func Parse(source string) (t *Template, err error) {
	defer catch(&err)
	if len(source) > limits.TemplateBytes {
		throw("LimitError", "the template has %d bytes, want at most %d", len(source), limits.TemplateBytes)
	}
	p := &parser{lexer: newLexer(source)}
	p.next()
	t = &Template{}
	t.body = p.body()
	if len(p.absent) > 0 {
		throwAt(p.absent[0].line, "TemplateAssertionError", "%s", p.absent[0].message)
	}
	t.marked = p.marked
	return t, nil
}

// parser is jinja2's recursive descent parser; jinja2/parser.py documents the grammar.
type parser struct {
	lexer  *lexer
	tok    token
	ahead  []token // one, if look was called
	depth  int
	loops  int // enclosing loops of this function
	macros []*macroNode
	marked bool
	ends   [][]string // the tags that end or continue each enclosing block
	tags   []string   // the enclosing blocks
	soft   bool       // within {% if %}: an unknown filter or test fails only when used
	absent []absence  // unknown filters and tests
}

// An absence is a filter or test that does not exist.
type absence struct {
	line    int
	message string
}

// missingName records an unknown filter or test.
func (p *parser) missingName(what, name string) {
	if !p.soft {
		p.absent = append(p.absent, absence{p.tok.line, "No " + what + " named " + quote(name) + "."})
	}
}

func (p *parser) fail(format string, a ...any) {
	throwAt(p.tok.line, "TemplateSyntaxError", format, a...)
}

func (p *parser) enter() {
	p.depth++
	if p.depth > maxNesting {
		p.fail("the template nests deeper than %d", maxNesting)
	}
}

func (p *parser) leave() { p.depth-- }

func (p *parser) next() token {
	t := p.tok
	if len(p.ahead) > 0 {
		p.tok, p.ahead = p.ahead[0], p.ahead[:0]
	} else {
		p.tok = p.lexer.next()
	}
	p.tok.check()
	return t
}

// look returns the token after the current one.
func (p *parser) look() token {
	if len(p.ahead) == 0 {
		p.ahead = append(p.ahead, p.lexer.next())
	}
	p.ahead[0].check()
	return p.ahead[0]
}

// check throws the error that a token carries.
func (t token) check() {
	if t.kind == tError {
		panic(thrown{t.err})
	}
}

func (p *parser) isOp(op string) bool     { return p.tok.kind == tOp && p.tok.text == op }
func (p *parser) isName(name string) bool { return p.tok.kind == tName && p.tok.text == name }

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expectOp(op string) {
	if !p.skipOp(op) {
		p.expected(op)
	}
}

func (p *parser) expected(what string) {
	if p.tok.kind == tEOF {
		p.fail("unexpected end of template, expected %s.", quote(what))
	}
	p.fail("expected token %s, got %s", quote(what), quote(p.tok.String()))
}

func (p *parser) expectName() string {
	if p.tok.kind != tName {
		p.expected("name")
	}
	return p.next().text
}

func (p *parser) expect(k kind) {
	if p.tok.kind != k {
		p.expected(token{kind: k}.String())
	}
	p.next()
}

// body parses text, prints and blocks up to the end of the template or a tag in ends,
// whose name is then the current token.
func (p *parser) body(ends ...string) []stmt {
	p.enter()
	defer p.leave()
	if len(ends) > 0 {
		p.ends = append(p.ends, ends)
		defer func() { p.ends = p.ends[:len(p.ends)-1] }()
	}
	var out []stmt
	for {
		switch p.tok.kind {
		case tEOF:
			if len(ends) > 0 {
				p.wrongTag("")
			}
			return out
		case tData:
			out = append(out, textNode(p.next().text))
		case tVarBegin:
			line := p.next().line
			e := p.tuple(true, nil)
			p.expect(tVarEnd)
			out = append(out, &printNode{line, e})
		case tBlockBegin:
			p.next()
			if p.tok.kind != tName {
				p.fail("tag name expected")
			}
			if slices.Contains(ends, p.tok.text) {
				return out
			}
			out = p.statement(out)
			p.expect(tBlockEnd)
		default:
			p.fail("unexpected %s", quote(p.tok.String()))
		}
	}
}

func quoteAll(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = quote(n)
	}
	return strings.Join(q, " or ")
}

// block parses the rest of a tag and the body up to one of ends. It consumes the name
// of that tag.
func (p *parser) block(ends ...string) ([]stmt, string) {
	p.skipOp(":")
	p.expect(tBlockEnd)
	body := p.body(ends...)
	return body, p.next().text
}

// wrongTag reports an unknown tag or an unexpected end of the template.
func (p *parser) wrongTag(name string) {
	msg := "Unexpected end of template."
	if name != "" {
		msg = "Encountered unknown tag " + quote(name) + "."
	}
	if n := len(p.ends); n > 0 {
		looking := quoteAll(p.ends[n-1])
		if slices.ContainsFunc(p.ends, func(ends []string) bool { return slices.Contains(ends, name) }) {
			msg += " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for " + looking + "."
		} else {
			msg += " Jinja was looking for the following tags: " + looking + "."
		}
	}
	if n := len(p.tags); n > 0 {
		msg += " The innermost block that needs to be closed is " + quote(p.tags[n-1]) + "."
	}
	p.fail("%s", msg)
}

var tagNames = []string{
	"for", "if", "set", "print", "macro", "call", "filter", "with", "block", "autoescape",
	"generation", "break", "continue", "include", "import", "from", "extends",
}

func (p *parser) statement(out []stmt) []stmt {
	if !slices.Contains(tagNames, p.tok.text) {
		p.wrongTag(p.tok.text)
	}
	t := p.next()
	p.tags = append(p.tags, t.text)
	defer func() { p.tags = p.tags[:len(p.tags)-1] }()
	switch t.text {
	case "for":
		return append(out, p.forLoop(t.line))
	case "if":
		return append(out, p.ifElse())
	case "set":
		return append(out, p.set(t.line))
	case "print":
		for first := true; p.tok.kind != tBlockEnd; first = false {
			if !first {
				p.expectOp(",")
			}
			out = append(out, &printNode{t.line, p.expression(true)})
		}
		return out
	case "macro":
		m := &macroNode{line: t.line, name: p.expectName()}
		p.signature(m)
		p.macroBody(m, "endmacro")
		return append(out, &defNode{m})
	case "call":
		m := &macroNode{line: t.line, name: "caller"}
		if p.isOp("(") {
			p.signature(m)
		}
		call, ok := p.expression(true).(*callNode)
		if !ok {
			p.fail("expected call")
		}
		p.macroBody(m, "endcall")
		return append(out, &callBlock{t.line, call, m})
	case "filter":
		f := p.filter(nil, true)
		body := p.scoped("endfilter")
		return append(out, &filterBlock{t.line, f, body})
	case "with":
		w := &withNode{line: t.line}
		for p.tok.kind != tBlockEnd {
			if len(w.targets) > 0 {
				p.expectOp(",")
			}
			w.targets = append(w.targets, p.target(false, nil))
			p.expectOp("=")
			w.values = append(w.values, p.expression(true))
		}
		w.body, _ = p.hard("endwith")
		return append(out, w)
	case "generation":
		p.marked = true
		g := &generationNode{line: t.line}
		g.body = p.scoped("endgeneration")
		return append(out, g)
	case "break", "continue":
		if p.loops == 0 {
			throwAt(t.line, "SyntaxError", "%s outside loop", quote(t.text))
		}
		if t.text == "break" {
			return append(out, jumpNode(sigBreak))
		}
		return append(out, jumpNode(sigContinue))
	case "include", "import", "from", "extends":
		// There are no other templates: the tag fails when it is executed.
		for p.tok.kind != tBlockEnd && p.tok.kind != tEOF {
			p.next()
		}
		return append(out, loaderNode(t.line))
	case "autoescape", "block":
		p.fail("{%% %s %%} is not supported", t.text)
	}
	return nil
}

// scoped parses the body of a block that Python compiles to a function. It cannot leave
// a loop outside of it.
func (p *parser) scoped(end string) []stmt {
	loops := p.loops
	p.loops = 0
	body, _ := p.hard(end)
	p.loops = loops
	return body
}

// hard parses the body of a block that is not a branch of an {% if %}.
func (p *parser) hard(ends ...string) ([]stmt, string) {
	soft := p.soft
	p.soft = false
	body, end := p.block(ends...)
	p.soft = soft
	return body, end
}

func (p *parser) signature(m *macroNode) {
	p.expectOp("(")
	for !p.isOp(")") {
		if len(m.args) > 0 {
			p.expectOp(",")
		}
		name := p.expectName()
		reserved(p, name)
		var def expr
		if p.skipOp("=") {
			def = p.expression(true)
		} else if n := len(m.args); n > 0 && m.defaults[n-1] != nil {
			p.fail("non-default argument follows default argument")
		}
		m.args = append(m.args, name)
		m.callerArg = m.callerArg || name == "caller"
		m.defaults = append(m.defaults, def)
	}
	p.expectOp(")")
}

func (p *parser) macroBody(m *macroNode, end string) {
	p.macros = append(p.macros, m)
	m.body = p.scoped(end)
	p.macros = p.macros[:len(p.macros)-1]
}

func reserved(p *parser, name string) {
	switch name {
	case "true", "false", "none", "True", "False", "None":
		p.fail("can't assign to 'const'")
	}
}

func (p *parser) forLoop(line int) stmt {
	f := &forNode{line: line}
	f.target = p.target(false, []string{"in"})
	if !p.skipName("in") {
		p.expected("in")
	}
	f.iter = p.tuple(false, []string{"recursive"})
	if p.skipName("if") {
		f.cond = p.expression(true)
	}
	f.recursive = p.skipName("recursive")
	p.loops++
	var end string
	f.body, end = p.hard("endfor", "else")
	p.loops--
	if end == "else" {
		f.orelse, _ = p.hard("endfor")
	}
	return f
}

func (p *parser) ifElse() stmt {
	soft := p.soft
	p.soft = true
	defer func() { p.soft = soft }()
	root := &ifNode{}
	for n := root; ; {
		n.cond = p.tuple(false, nil)
		var end string
		n.body, end = p.block("elif", "else", "endif")
		switch end {
		case "elif":
			e := &ifNode{}
			n.orelse = []stmt{e}
			n = e
			continue
		case "else":
			n.orelse, _ = p.block("endif")
		}
		return root
	}
}

func (p *parser) set(line int) stmt {
	target := p.target(true, nil)
	if p.skipOp("=") {
		return &setNode{line, target, p.tuple(true, nil)}
	}
	b := &setBlock{line: line, target: target}
	if p.isOp("|") {
		b.filter = p.filter(nil, false)
	}
	b.body = p.scoped("endset")
	return b
}

// target parses the left side of an assignment.
func (p *parser) target(namespace bool, ends []string) target {
	var items []target
	isTuple := false
	for {
		if len(items) > 0 {
			p.expectOp(",")
		}
		if p.tupleEnd(ends) || p.isOp("=") {
			break
		}
		items = append(items, p.targetItem(namespace, ends))
		if !p.isOp(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) == 0 {
			p.fail("Expected an expression, got %s", quote(p.tok.String()))
		}
		return items[0]
	}
	return tupleTarget(items)
}

func (p *parser) targetItem(namespace bool, ends []string) target {
	if p.skipOp("(") {
		p.enter()
		t := p.target(namespace, ends)
		p.leave()
		p.expectOp(")")
		return t
	}
	switch p.tok.kind {
	case tName:
	case tString, tInt, tFloat:
		p.fail("can't assign to 'const'")
	default:
		p.fail("unexpected %s", quote(p.tok.String()))
	}
	name := p.next().text
	reserved(p, name)
	if namespace && p.isOp(".") {
		p.next()
		p.use(name)
		return &attrTarget{name, p.expectName()}
	}
	return nameTarget(name)
}

func (p *parser) tupleEnd(ends []string) bool {
	switch {
	case p.tok.kind == tVarEnd, p.tok.kind == tBlockEnd, p.isOp(")"):
		return true
	case p.tok.kind == tName:
		return slices.Contains(ends, p.tok.text)
	}
	return false
}
