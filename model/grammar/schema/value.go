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
	id      int    // of each value in a document
	at      string // JSON pointer
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
	v, err := p.value("", 0)
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

func (p *parser) value(at string, depth int) (*value, error) {
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
				item, err := p.value(at+"/"+strconv.Itoa(len(v.items)), depth+1)
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
					return nil, fmt.Errorf("%s: %q is given twice", pointer(at), key)
				}
				seen[key] = true
				m, err := p.value(at+"/"+escape(key), depth+1)
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

// pointer names a place in errors.
func pointer(at string) string { return "#" + at }

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

func escape(key string) string { return pointerEscape.Replace(key) }

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
