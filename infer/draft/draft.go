// Package draft holds the ways to propose a tree, one file each. An
// implementation must pass drafttest.Run.
package draft

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talf/infer"
)

// A Method is a line of the table.
type Method struct {
	Name   string
	Doc    string
	Source bool // needs a draft model to ask
	Params []Param
	New    func(p *Params) (infer.Drafter, error)
}

// A Param is a key of a method's specification.
type Param struct {
	Name, Default, Doc string
}

// Methods lists every drafter.
func Methods() []Method {
	return []Method{ar(), beam(), optimal(), salf()}
}

// Params are the values of one specification, defaults filled in. The first bad
// value is kept and returned by New.
type Params struct {
	values map[string]string
	err    error
}

// String returns key's value.
func (p *Params) String(key string) string {
	v, ok := p.values[key]
	if !ok {
		panic("draft: the table has no parameter " + key)
	}
	return v
}

// Int returns key's value as a whole number.
func (p *Params) Int(key string) int {
	n, err := strconv.Atoi(p.String(key))
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s is %q, want a whole number", key, p.String(key))
	}
	return n
}

// Float returns key's value as a number.
func (p *Params) Float(key string) float64 {
	x, err := strconv.ParseFloat(p.String(key), 64)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s is %q, want a number", key, p.String(key))
	}
	return x
}

// Find reads a specification such as "salf:th=0.4,N=60" and returns its method
// and values. Unknown names and keys are refused with what is known.
func Find(spec string) (Method, *Params, error) {
	name, rest, _ := strings.Cut(spec, ":")
	var names []string
	for _, m := range Methods() {
		if m.Name != name {
			names = append(names, m.Name)
			continue
		}
		p, err := m.read(rest)
		if err != nil {
			return Method{}, nil, fmt.Errorf("draft: method %q: %w", spec, err)
		}
		return m, p, nil
	}
	return Method{}, nil, fmt.Errorf("draft: unknown method %q, want one of %s", name, strings.Join(names, ", "))
}

func (m Method) read(rest string) (*Params, error) {
	p := &Params{values: map[string]string{}}
	var keys []string
	for _, q := range m.Params {
		p.values[q.Name] = q.Default
		keys = append(keys, q.Name)
	}
	known := "it has no parameters"
	if len(keys) > 0 {
		known = "known are " + strings.Join(keys, ", ")
	}
	if rest == "" {
		return p, nil
	}
	var seen []string
	for _, item := range strings.Split(rest, ",") {
		key, value, ok := strings.Cut(item, "=")
		switch {
		case !slices.Contains(keys, key):
			return nil, fmt.Errorf("unknown parameter %q: %s", key, known)
		case !ok:
			return nil, fmt.Errorf("parameter %q has no value, want %s=…", key, key)
		case slices.Contains(seen, key):
			return nil, fmt.Errorf("parameter %q is given twice", key)
		}
		seen = append(seen, key)
		p.values[key] = value
	}
	return p, nil
}

// New returns a drafter for a specification, and its line of the table.
func New(spec string) (infer.Drafter, Method, error) {
	m, p, err := Find(spec)
	if err != nil {
		return nil, Method{}, err
	}
	d, err := m.New(p)
	if p.err != nil {
		err = p.err
	}
	if err != nil {
		return nil, Method{}, fmt.Errorf("draft: method %q: %w", spec, err)
	}
	return d, m, nil
}
