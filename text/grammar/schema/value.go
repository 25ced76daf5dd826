package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"talf/internal/limits"
)

type kind uint8

const (
	null kind = iota
	truth
	number
	text
	list
	object
)

// A value is a JSON value whose members keep their order.
type value struct {
	kind    kind
	id      int // of each value in a document
	at      *path
	yes     bool
	str     string // a text, or a number as it is written
	items   []*value
	members []member
	index   map[string]*value // of many members; nil: few

	in    *resource // of a schema; nil: data
	extra *extra    // of a schema that stands in no document
}

// few members are found faster without an index.
const few = 8

type member struct {
	name string
	v    *value
}

// get returns a member, or nil.
func (v *value) get(name string) *value {
	if v.kind == object {
		if v.index != nil {
			return v.index[name]
		}
		for i := range v.members {
			if v.members[i].name == name {
				return v.members[i].v
			}
		}
	}
	return nil
}

// parse reads a document. Names that occur twice in an object are refused.
func parse(raw []byte) (*value, error) {
	if len(raw) > limits.GrammarBytes {
		return nil, fmt.Errorf("%d bytes, want at most %d: %w", len(raw), limits.GrammarBytes, limits.ErrTooLarge)
	}
	p := parser{d: json.NewDecoder(bytes.NewReader(raw))}
	p.d.UseNumber()
	v, err := p.value(nil, 0)
	if err == nil {
		if _, more := p.d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the JSON value")
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return v, err
}

type parser struct {
	d   *json.Decoder
	ids int
}

func (p *parser) value(at *path, depth int) (*value, error) {
	if depth > limits.JSONDepth {
		return nil, fmt.Errorf("nested more than %d deep: %w", limits.JSONDepth, limits.ErrTooLarge)
	}
	t, err := p.d.Token()
	if err != nil {
		return nil, err
	}
	p.ids++
	v := &value{id: p.ids, at: at}
	switch t := t.(type) {
	case nil:
	case bool:
		v.kind, v.yes = truth, t
	case json.Number:
		v.kind, v.str = number, t.String()
	case string:
		v.kind, v.str = text, t
	case json.Delim:
		if t == '[' {
			v.kind = list
			for p.d.More() {
				item, err := p.value(&path{at, strconv.Itoa(len(v.items))}, depth+1)
				if err != nil {
					return nil, err
				}
				v.items = append(v.items, item)
			}
		} else {
			v.kind = object
			seen := map[string]bool{}
			for p.d.More() {
				name, err := p.d.Token()
				if err != nil {
					return nil, err
				}
				key := name.(string) // the decoder takes nothing else for a name
				if seen[key] {
					return nil, fmt.Errorf("%s: %.200q is given twice", pointer(at), key)
				}
				seen[key] = true
				m, err := p.value(&path{at, key}, depth+1)
				if err != nil {
					return nil, err
				}
				v.members = append(v.members, member{key, m})
			}
			if len(v.members) > few {
				v.index = make(map[string]*value, len(v.members))
				for _, m := range v.members {
					v.index[m.name] = m.v
				}
			}
		}
		_, err = p.d.Token()
	}
	return v, err
}

// A path is where a value of a document stands: under a name, or a number, in what stands at in; nil for the
// document itself. It becomes text only where it is shown: those of all values are as long as the square of
// the document.
type path struct {
	in   *path
	name string
}

// maxPointer and maxName bound pointers and the names in them, in bytes: of longer ones the end is shown,
// and of names the beginning.
const (
	maxPointer = 300
	maxName    = 100
)

// pointer names a place in errors, as a JSON pointer (RFC 6901).
func pointer(at *path) string {
	out := ""
	for ; at != nil; at = at.in {
		if len(out) > maxPointer {
			return "#/…" + out
		}
		name := at.name
		if len(name) > maxName {
			name = strings.ToValidUTF8(name[:maxName], "") + "…"
		}
		out = "/" + pointerEscape.Replace(name) + out
	}
	return "#" + out
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

// equal compares values as JSON Schema does: numbers by value, objects without order. Each pair
// of values is charged to c; beyond the limit, which its caller reports, nothing is equal.
func (c *compiler) equal(a, b *value) bool {
	if c.work++; c.work > maxWork {
		return false
	}
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case truth:
		return a.yes == b.yes
	case number:
		x, errX := parseDecimal(a.str)
		y, errY := parseDecimal(b.str)
		return errX == nil && errY == nil && x.compare(y) == 0
	case text:
		return a.str == b.str
	case list:
		if len(a.items) != len(b.items) {
			return false
		}
		for i := range a.items {
			if !c.equal(a.items[i], b.items[i]) {
				return false
			}
		}
	case object:
		if len(a.members) != len(b.members) {
			return false
		}
		for i := range a.members {
			if o := b.get(a.members[i].name); o == nil || !c.equal(a.members[i].v, o) {
				return false
			}
		}
	}
	return true
}
