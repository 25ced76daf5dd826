package toolcall

import (
	"slices"
	"strings"
	"unicode"
)

// A Kind says what an Event is about.
type Kind int

// The kinds.
const (
	Content   Kind = iota // text of the answer
	Reasoning             // text of what was thought before
	Begin                 // a call begins; Text is the tool's name
	Arguments             // text of the last call's arguments
)

// An Event is the next part of an answer.
type Event struct {
	Kind Kind
	Text string
}

// A Parser divides the text of an answer, in whatever pieces it comes, into what it says, what was
// thought before, and calls. Text that looks like a call and is none is content; what was cut off
// before the tool was known is nothing. White space between the three belongs to none of them. The
// zero value is not usable: Format.Parser makes one.
type Parser struct {
	f     *Format
	names []string
	start bool // calls stand where the answer begins, or nowhere
	text  bool // texts have a format, which may look like calls
	// single: one call at most.
	single bool

	step   func(p *Parser, end bool) bool // goes on with buf; false: it needs more text
	buf    string                         // that was not looked at
	call   string                         // what was read of a call that is not known to be one
	events []Event
	json   object
}

// Parser returns a parser for an answer to a.
func (f *Format) Parser(a Ask) *Parser {
	p := &Parser{f: f, start: f.anchored || a.Content != nil, text: a.Content != nil, single: f.single || a.Single, step: (*Parser).content}
	for i := range a.Tools {
		p.names = append(p.names, a.Tools[i].Name)
	}
	switch f.thinks(a.Thinking) {
	case MayThink:
		p.step = (*Parser).opening
	case Thinks:
		p.step = (*Parser).thoughts
	}
	if f.channels {
		p.step = (*Parser).header
	}
	return p
}

// Push takes more text and returns what is certain.
func (p *Parser) Push(text string) []Event {
	p.buf += text
	return p.run(false)
}

// End returns the rest.
func (p *Parser) End() []Event { return p.run(true) }

// Called reports whether there are calls, and the last of them is whole.
func (p *Parser) Called() bool { return p.json.ended }

func (p *Parser) run(end bool) []Event {
	p.events = nil
	for p.step(p, end) {
	}
	return p.events
}

func (p *Parser) emit(k Kind, text string) {
	if text == "" && k != Begin {
		return
	}
	if n := len(p.events); n > 0 && p.events[n-1].Kind == k && k != Begin {
		p.events[n-1].Text += text
		return
	}
	p.events = append(p.events, Event{k, text})
}

// to goes on with another step.
func (p *Parser) to(step func(*Parser, bool) bool) bool {
	p.step = step
	return true
}

// rest is a step: all that follows is content.
func (p *Parser) rest(bool) bool {
	p.emit(Content, p.buf)
	p.buf = ""
	return false
}

// read takes a text from the beginning of buf. It is 0 if another text stands there, and −1 if that
// cannot be told yet.
func (p *Parser) read(text string) int {
	switch {
	case strings.HasPrefix(p.buf, text):
		p.buf = p.buf[len(text):]
		return 1
	case strings.HasPrefix(text, p.buf):
		return -1
	}
	return 0
}

// until emits text up to a mark, without the white space before it, and reports whether it is
// there. What may be the beginning of the mark waits, unless the text ends.
func (p *Parser) until(k Kind, mark string, end bool) bool {
	i := strings.Index(p.buf, mark)
	if i >= 0 {
		p.emit(k, strings.TrimRightFunc(p.buf[:i], unicode.IsSpace))
		p.buf = p.buf[i+len(mark):]
		return true
	}
	safe := len(p.buf)
	if !end {
		for n := min(len(mark)-1, len(p.buf)); n > 0; n-- {
			if strings.HasSuffix(p.buf, mark[:n]) {
				safe -= n
				break
			}
		}
		safe = len(strings.TrimRightFunc(p.buf[:safe], unicode.IsSpace))
	}
	p.emit(k, p.buf[:safe])
	p.buf = p.buf[safe:]
	return false
}

// opening is a step: the answer may begin to think.
func (p *Parser) opening(end bool) bool {
	switch p.read(thinkOpen) {
	case 1:
		return p.to((*Parser).thoughts)
	case -1:
		if !end {
			return false
		}
	}
	return p.to((*Parser).content)
}

// thoughts is a step: up to the end of what is thought.
func (p *Parser) thoughts(end bool) bool {
	p.blank(end)
	if p.buf == "" {
		return false
	}
	return p.to((*Parser).thinking)
}

// blank drops white space.
func (p *Parser) blank(bool) { p.buf = strings.TrimLeftFunc(p.buf, unicode.IsSpace) }

func (p *Parser) thinking(end bool) bool {
	if !p.until(Reasoning, thinkClose, end) {
		return false
	}
	return p.to((*Parser).thought)
}

// thought is a step: after what was thought.
func (p *Parser) thought(end bool) bool {
	p.blank(end)
	if p.buf == "" {
		return false
	}
	return p.to((*Parser).content)
}

// content is a step: text up to the first call.
func (p *Parser) content(end bool) bool {
	f := p.f
	if !p.start {
		if !p.until(Content, f.trigger, end) {
			return false
		}
		return p.expect(f.trigger, f.lead+f.before)
	}
	if f.optional != "" {
		switch p.read(f.optional) {
		case 1:
			p.call = f.optional
		case -1:
			if !end {
				return false
			}
		}
	}
	switch p.read(f.trigger) {
	case 1:
		return p.expect(p.call+f.trigger, p.call+f.lead+f.before)
	case -1:
		if !end {
			return false
		}
	}
	p.emit(Content, p.call)
	return p.to((*Parser).rest)
}

// expect goes on with the rest of what comes before a name. What was read becomes content if that
// does not follow.
func (p *Parser) expect(read, all string) bool {
	p.call = read
	want := strings.TrimPrefix(all, read)
	return p.to(func(p *Parser, end bool) bool {
		switch p.read(want) {
		case 1:
			p.call += want
			return p.to((*Parser).name)
		case -1:
			return p.cut(end)
		}
		return p.broken()
	})
}

// cut is for what may become a call. If the answer ends there, nothing else could have come of it,
// unless a text of a format could.
func (p *Parser) cut(end bool) bool {
	if !end {
		return false
	}
	if p.text && !p.Called() {
		return p.broken()
	}
	p.call, p.buf = "", ""
	return false
}

// broken takes back what looked like a call.
func (p *Parser) broken() bool {
	p.emit(Content, p.call)
	p.call = ""
	return p.to((*Parser).rest)
}

// name is a step: the name of a tool and what comes before its arguments.
func (p *Parser) name(end bool) bool {
	for _, name := range p.names {
		found := p.read(name + p.f.middle)
		if found == 0 {
			found = p.identified(name)
		}
		switch found {
		case 1:
			return p.begin(name)
		case -1:
			// Whatever else the names are, one of them may still come.
			return p.cut(end)
		}
	}
	return p.broken()
}

// idBytes is how long an id is.
const idBytes = 9

// identified takes a name, an id and what comes before arguments from the beginning of buf, and returns what read
// does. Which id a model writes does not matter: the call gets another.
func (p *Parser) identified(name string) int {
	if p.f.id == "" {
		return 0
	}
	before := name + p.f.id
	rest, ok := strings.CutPrefix(p.buf, before)
	if !ok {
		if strings.HasPrefix(before, p.buf) {
			return -1
		}
		return 0
	}
	n := 0
	for n < min(len(rest), idBytes) && isID(rest[n]) {
		n++
	}
	switch after := rest[n:]; {
	case n < idBytes && after == "":
		return -1
	case n < idBytes:
		return 0
	case strings.HasPrefix(after, p.f.middle):
		p.buf = after[len(p.f.middle):]
		return 1
	case strings.HasPrefix(p.f.middle, after):
		return -1
	}
	return 0
}

// isID reports whether a byte may stand in an id.
func isID(c byte) bool { return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' }

// begin is what happens once a call is known.
func (p *Parser) begin(name string) bool {
	p.call = ""
	p.emit(Begin, name)
	p.json = object{}
	return p.to((*Parser).arguments)
}

// arguments is a step: a JSON object.
func (p *Parser) arguments(bool) bool {
	n := p.json.read(p.buf)
	p.emit(Arguments, p.buf[:n])
	p.buf = p.buf[n:]
	switch {
	case p.json.ended:
		return p.to((*Parser).after)
	case p.buf != "": // it is no object
		return p.to((*Parser).rest)
	}
	return false
}

// after is a step: the end of a call, and what may follow.
func (p *Parser) after(end bool) bool {
	f := p.f
	if f.channels {
		return p.to((*Parser).header)
	}
	next := f.after + f.between + f.before
	last := f.after + f.end
	switch {
	case !p.single && strings.HasPrefix(p.buf, next):
		p.buf = p.buf[len(next):]
		p.call = next[len(f.after):]
		return p.to((*Parser).name)
	case !p.single && strings.HasPrefix(next, p.buf), strings.HasPrefix(last, p.buf):
		if !end {
			return false
		}
		p.buf = "" // of an answer that was cut off
	case strings.HasPrefix(p.buf, last):
		p.buf = p.buf[len(last):]
	}
	return p.to((*Parser).ended)
}

// ended is a step: white space after the last call is nothing.
func (p *Parser) ended(end bool) bool {
	p.blank(end)
	if p.buf == "" {
		return false
	}
	return p.to((*Parser).rest)
}

// An object finds the end of a JSON object.
type object struct {
	depth   int
	text    bool // within a string
	escaped bool // after a backslash there
	ended   bool
}

// read returns how much of s belongs to the object: all of it unless the object ends there, or is
// none.
func (o *object) read(s string) int {
	for i := range len(s) {
		c := s[i]
		switch {
		case o.escaped:
			o.escaped = false
		case o.text:
			o.escaped, o.text = c == '\\', c != '"'
		case o.depth == 0 && c != '{':
			return i
		case c == '"':
			o.text = true
		case c == '{' || c == '[':
			o.depth++
		case c == '}' || c == ']':
			if o.depth--; o.depth == 0 {
				o.ended = true
				return i + 1
			}
		}
	}
	return len(s)
}

// header is a step: what comes before a message of a channel. It names the channel, and the tool if
// it is a call.
func (p *Parser) header(end bool) bool {
	i := strings.Index(p.buf, messageMark)
	if i < 0 {
		heads := func(mark string) bool { return strings.HasPrefix(p.buf, mark) || strings.HasPrefix(mark, p.buf) }
		switch {
		case end && (heads(startMark) || heads(channelMark) || heads(" "+recipient)): // of an answer that was cut off
			p.buf = ""
		case end || len(p.buf) > maxHeader: // it is none
			return p.to((*Parser).rest)
		}
		return false
	}
	head := p.buf[:i]
	p.call, p.buf = p.buf[:i+len(messageMark)], p.buf[i+len(messageMark):]
	if _, to, ok := strings.Cut(head, recipient); ok {
		to = strings.TrimSpace(to)
		if at := strings.IndexAny(to, " <"); at >= 0 {
			to = to[:at]
		}
		if slices.Contains(p.names, to) {
			return p.begin(to)
		}
		return p.broken()
	}
	kind := Content
	if _, channel, ok := strings.Cut(head, channelMark); ok && strings.HasPrefix(strings.TrimSpace(channel), analysis) {
		kind = Reasoning
	}
	p.call = ""
	return p.to(func(p *Parser, end bool) bool {
		if !p.until(kind, endMark, end) {
			return false
		}
		return p.to((*Parser).header)
	})
}

// maxHeader bounds the header of a message, in bytes.
const maxHeader = 1024
