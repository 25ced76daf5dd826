package schema

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A draft is a version of JSON Schema.
type draft int

const (
	draft4 draft = iota
	draft6
	draft7
	draft2019
	draft2020
)

// drafts are the values of $schema, without the scheme and an empty fragment.
var drafts = map[string]draft{
	"json-schema.org/draft-04/schema": draft4, "json-schema.org/draft-06/schema": draft6, "json-schema.org/draft-07/schema": draft7,
	"json-schema.org/draft/2019-09/schema": draft2019, "json-schema.org/draft/2020-12/schema": draft2020,
	"json-schema.org/schema": draft2020,
}

// A resource is a schema with what is in it, as far as that has no $id of its own (draft 2020-12,
// core, section 8.2).
type resource struct {
	root    *value
	base    *url.URL
	name    string // base as text
	draft   draft
	anchors map[string]*value // by $anchor, of equal ones the first
}

// maps are keywords whose members are schemas under any name.
var maps = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}

// inner are keywords whose value is a schema, or a list of them.
var inner = []string{
	"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "items", "prefixItems", "additionalItems", "additionalProperties", "propertyNames",
	"contains", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
}

// A place is what stands somewhere in a document.
type place uint8

const (
	aSchema   place = iota // or a list of them
	aMap                   // of schemas under any name
	something              // that is no schema, unless a $ref says so
)

// locate gives v, and what is in it, the resource that it belongs to.
func (c *compiler) locate(v *value, in *resource, at place) error {
	if at == aSchema && v.kind == object {
		var err error
		if in, err = c.enter(v, in); err != nil {
			return err
		}
	}
	v.in = in
	for _, x := range v.items {
		if err := c.locate(x, in, at); err != nil {
			return err
		}
	}
	for _, m := range v.members {
		of := something
		switch {
		case at == aMap || at == aSchema && slices.Contains(inner, m.name):
			of = aSchema
		case at == aSchema && slices.Contains(maps, m.name):
			of = aMap
		}
		if err := c.locate(m.v, in, of); err != nil {
			return err
		}
	}
	return nil
}

// enter returns the resource of a schema within in.
func (c *compiler) enter(v *value, in *resource) (*resource, error) {
	d := draft2020
	if in != nil {
		d = in.draft
	}
	if s := v.get("$schema"); s != nil && s.kind == text {
		name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(s.str, "http://"), "https://"), "#")
		known, ok := drafts[name]
		if !ok && in == nil {
			return nil, fmt.Errorf("%s: $schema %.200q is not supported, want one of draft 4, 6, 7, 2019-09 or 2020-12", pointer(s.at), s.str)
		}
		if ok {
			d = known
		}
	}
	key := "$id"
	if d == draft4 {
		key = "id"
	}
	id := v.get(key)
	if id == nil || id.kind != text || d <= draft7 && v.get("$ref") != nil {
		id = &value{kind: text}
	}
	if in == nil || id.str != "" && !strings.HasPrefix(id.str, "#") {
		to, err := c.join(id, in, strings.TrimSuffix(id.str, "#"))
		if err != nil {
			return nil, err
		}
		in = &resource{root: v, base: to, name: to.String(), draft: d, anchors: map[string]*value{}}
		if c.resources[in.name] == nil {
			c.resources[in.name] = in
		}
	}
	for _, a := range []*value{v.get("$anchor"), id} {
		if a != nil && a.kind == text {
			name := a.str
			if a == id { // a fragment, up to draft 7
				_, name, _ = strings.Cut(name, "#")
			}
			if name != "" && in.anchors[name] == nil {
				in.anchors[name] = v
			}
		}
	}
	return in, nil
}

// legacy reports whether keywords beside $ref say nothing, as in draft 7 and before (8.3 of its core).
func (v *value) legacy() bool { return v.in != nil && v.in.draft <= draft7 }

// join is the URI of a reference, which v spells, within in. Each of many references may be as long as the
// document together with in, so bytes are charged.
func (c *compiler) join(v *value, in *resource, reference string) (*url.URL, error) {
	to, err := url.Parse(reference)
	if err != nil {
		return nil, fmt.Errorf("%s: want a URI reference", pointer(v.at))
	}
	base, n := new(url.URL), len(reference)
	if in != nil {
		base, n = in.base, n+len(in.name)
	}
	return base.ResolveReference(to), c.charge(v, n)
}

// resolve finds what a $ref refers to within the document.
func (c *compiler) resolve(ref *value) (*value, error) {
	to, ok := c.refs[ref]
	if !ok {
		var err error
		if to, err = c.find(ref); err != nil {
			return nil, err
		}
		c.refs[ref] = to
	}
	return to, nil
}

// find is resolve for the first time.
func (c *compiler) find(ref *value) (*value, error) {
	fail := func(why string) error { return fmt.Errorf("%s: $ref %.200q: %s", pointer(ref.at), ref.str, why) }
	if ref.kind != text || ref.in == nil {
		return nil, fail("want a reference to a schema")
	}
	name, fragment, _ := strings.Cut(ref.str, "#")
	in := ref.in
	if name != "" {
		to, err := c.join(ref, in, name)
		if err != nil {
			return nil, err
		}
		if in = c.resources[to.String()]; in == nil {
			return nil, fail("only places in the same schema are supported, want # or #/…, or the $id of a schema in it")
		}
	}
	path, err := url.PathUnescape(fragment)
	if err != nil {
		return nil, fail("want a JSON pointer")
	}
	if path != "" && path[0] != '/' {
		if v := in.anchors[path]; v != nil {
			return v, nil
		}
		return nil, fail("there is no such anchor")
	}
	v := in.root
	for _, part := range strings.Split(path, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		next := v.get(part)
		if v.kind == list {
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(v.items) && strconv.Itoa(i) == part {
				next = v.items[i]
			}
		}
		if next == nil {
			return nil, fail("there is no such place")
		}
		v = next
	}
	if v.kind != object && v.kind != truth {
		return nil, fail("it is not a schema")
	}
	return v, nil
}
