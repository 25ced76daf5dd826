// Package spec reads specifications, such as "salf:th=0.4,N=60", against a table
// of names and their parameters:
//
//	specification = name [ ":" item { "," item } ]
//	item          = key "=" value | value
//	key           = letter { letter | digit | "_" }
//
// A value without its key is allowed only in the first place, for the parameter that the line of
// the table calls Main. An item is a value without a key if the text before its first "=" is not
// a key: "a.b=c" is one, "ab=c" is not. Values contain no comma. A parameter made by Specs holds
// whole specifications, joined by "+", in which ";" stands for the comma.
//
// Every value is checked against its parameter's type before a maker sees any.
package spec

import (
	"fmt"
	"slices"
	"strings"
)

// A Line is what a table says about one name. Embed it in the type of the table's lines.
type Line struct {
	Name, Doc string
	Params    []Param
	// Main names the parameter that may be given first and without its key, such as the shape in
	// "static:chain-5"; empty if there is none.
	Main string
}

func (l Line) line() Line { return l }

// A Liner is a line of a table: any type that embeds Line.
type Liner interface{ line() Line }

// A Table is what names are looked up in. Lines are in the order of help and errors.
type Table[T Liner] struct {
	Kind  string // what a line is, as errors call it: "method", "verifier", …
	Lines []T
}

// Names lists the names in order.
func (t Table[T]) Names() []string {
	names := make([]string, len(t.Lines))
	for i, x := range t.Lines {
		names[i] = x.line().Name
	}
	return names
}

// Find returns the line called name. The error of an unknown name lists those that
// are known.
func (t Table[T]) Find(name string) (T, error) {
	for _, x := range t.Lines {
		if x.line().Name == name {
			return x, nil
		}
	}
	var none T
	names := t.Names()
	return none, fmt.Errorf("unknown %s %q%s, want one of %s", t.Kind, name, nearest(name, names), strings.Join(names, ", "))
}

// Parse parses a specification into its line of the table and the values of all of the line's
// parameters.
func (t Table[T]) Parse(text string) (T, Values, error) {
	name, rest, _ := strings.Cut(text, ":")
	x, err := t.Find(name)
	if err != nil {
		return x, Values{}, err
	}
	v, err := x.line().Read(rest)
	if err != nil {
		var none T
		return none, Values{}, fmt.Errorf("%s %q: %w", t.Kind, text, err)
	}
	return x, v, nil
}

// Check reports errors in the table itself; a test calls it.
func (t Table[T]) Check() error {
	var names []string
	for _, x := range t.Lines {
		l := x.line()
		if !isKey(strings.ReplaceAll(l.Name, "-", "_")) || slices.Contains(names, l.Name) {
			return fmt.Errorf("%s %q: the name is used twice, or is not a word", t.Kind, l.Name)
		}
		names = append(names, l.Name)
		if err := l.check(); err != nil {
			return fmt.Errorf("%s %q: %w", t.Kind, l.Name, err)
		}
	}
	return nil
}

func (l Line) check() error {
	if l.Doc == "" {
		return fmt.Errorf("no description")
	}
	var keys []string
	for _, p := range l.Params {
		switch {
		case !isKey(p.Name) || slices.Contains(keys, p.Name):
			return fmt.Errorf("parameter %q is declared twice, or is not a key", p.Name)
		case p.Doc == "":
			return fmt.Errorf("parameter %s has no description", p.Name)
		case p.read == nil:
			return fmt.Errorf("parameter %s has no type: make it with Int, Float, …", p.Name)
		}
		if _, err := p.read(p.Default); err != nil {
			return fmt.Errorf("the default of parameter %s: %w", p.Name, err)
		}
		keys = append(keys, p.Name)
	}
	if l.Main != "" && !slices.Contains(keys, l.Main) {
		return fmt.Errorf("the main parameter %q is not one of %s", l.Main, strings.Join(keys, ", "))
	}
	return nil
}

// Read parses the parameters of a specification: the text after the name and its colon.
func (l Line) Read(rest string) (Values, error) {
	v := Values{all: make(map[string]value, len(l.Params))}
	keys := make([]string, len(l.Params))
	for i, p := range l.Params {
		keys[i] = p.Name
	}
	if rest != "" {
		for i, item := range strings.Split(rest, ",") {
			key, text, err := l.item(item, i == 0, keys)
			if err != nil {
				return Values{}, err
			}
			if v.Given(key) {
				return Values{}, fmt.Errorf("parameter %q is given twice", key)
			}
			p := l.Params[slices.Index(keys, key)]
			x, err := p.read(text)
			if err != nil {
				return Values{}, fmt.Errorf("%s is %w", key, err)
			}
			v.all[key] = value{text: text, is: x, given: true}
		}
	}
	for _, p := range l.Params {
		if v.Given(p.Name) {
			continue
		}
		x, err := p.read(p.Default)
		if err != nil {
			return Values{}, fmt.Errorf("the default of parameter %s: %w", p.Name, err)
		}
		v.all[p.Name] = value{text: p.Default, is: x}
	}
	v.keys = keys
	return v, nil
}

// Under returns v with the values of rest, which reads as in Read, in place of v's defaults: those
// that were given stay.
func (l Line) Under(v Values, rest string) (Values, error) {
	set, err := l.Read(rest)
	if err != nil {
		return Values{}, err
	}
	for key, x := range set.all {
		if !x.given || v.Given(key) {
			set.all[key] = v.all[key]
			continue
		}
		x.given = false
		set.all[key] = x
	}
	return set, nil
}

// item splits an item into a known key and its value.
func (l Line) item(item string, first bool, keys []string) (key, text string, err error) {
	key, text, ok := strings.Cut(item, "=")
	if bare := ok && !isKey(key) || !ok && !slices.Contains(keys, item); bare && first && l.Main != "" {
		return l.Main, item, nil
	}
	switch {
	case !slices.Contains(keys, key) && len(keys) == 0:
		return "", "", fmt.Errorf("unknown parameter %q: it has no parameters", key)
	case !slices.Contains(keys, key):
		return "", "", fmt.Errorf("unknown parameter %q%s: known are %s", key, nearest(key, keys), strings.Join(keys, ", "))
	case !ok:
		return "", "", fmt.Errorf("parameter %q has no value, want %s=…", key, key)
	}
	return key, text, nil
}

func isKey(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r != '_' && (r < '0' || r > '9')) {
			return false
		}
	}
	return s != ""
}

// nearest suggests the known name that was probably meant, if there is one.
func nearest(name string, known []string) string {
	best, least := "", max(1, len(name)/3)
	for _, k := range known {
		d := distance(strings.ToLower(name), strings.ToLower(k))
		if d <= least && d < len(k) {
			best, least = k, d-1
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

// distance counts the bytes inserted, deleted, replaced or swapped with a neighbour
// that turn a into b (optimal string alignment).
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
