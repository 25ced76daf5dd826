package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Param is a parameter of a specification. Int, Float and the other constructors
// make one of each type.
type Param struct {
	Name    string
	Default string // as a user would give it
	Doc     string

	// read returns the value of a text; its error continues "key is …".
	read func(text string) (any, error)
}

// Or allows words instead of a number, such as "auto".
func (p Param) Or(words ...string) Param {
	number := p.read
	p.read = func(text string) (any, error) {
		if slices.Contains(words, text) {
			return word(text), nil
		}
		x, err := number(text)
		if bad := (noNumber{}); errors.As(err, &bad) {
			bad.want = strings.Join(words, ", ") + " or " + bad.want
			return nil, bad
		}
		return x, err
	}
	return p
}

type word string

// noNumber is the error of a text that is not a number.
type noNumber struct{ text, want string }

func (e noNumber) Error() string { return fmt.Sprintf("%q, want %s", e.text, e.want) }

// With replaces the default.
func (p Param) With(text string) Param {
	p.Default = text
	return p
}

// Int returns an integer parameter between least and most.
func Int(name string, preset, least, most int, doc string) Param {
	return Param{name, strconv.Itoa(preset), doc, func(text string) (any, error) {
		n, err := strconv.Atoi(text)
		if errors.Is(err, strconv.ErrSyntax) {
			return nil, noNumber{text, fmt.Sprintf("a whole number, %d..%d", least, most)}
		}
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("%s, want %d..%d", text, least, most)
		}
		return n, nil
	}}
}

// Float returns a number within an interval. NaN is in none.
func Float(name string, preset float64, in Interval, doc string) Param {
	return Param{name, strconv.FormatFloat(preset, 'g', -1, 64), doc, func(text string) (any, error) {
		return in.read(name, text)
	}}
}

// Choice returns a choice between words, the first of which is the default.
func Choice(name, doc string, words ...string) Param {
	return Param{name, words[0], doc, func(text string) (any, error) {
		i := slices.Index(words, text)
		if i < 0 {
			return nil, fmt.Errorf("%q, want %s or %s", text, strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
		}
		return i, nil
	}}
}

// Switch returns a parameter that is on or off.
func Switch(name string, preset bool, doc string) Param {
	p := Choice(name, doc, "on", "off")
	if !preset {
		p.Default = "off"
	}
	return p
}

// Text returns a parameter of any text without a comma.
func Text(name, preset, doc string) Param {
	return Param{name, preset, doc, func(text string) (any, error) { return text, nil }}
}

// File returns the name of a file, "" for none. Values.Files reports it.
func File(name, doc string) Param {
	return Param{name, "", doc, func(text string) (any, error) { return path(text), nil }}
}

type path string

// Floats returns numbers within an interval, joined by "/".
func Floats(name, preset string, in Interval, doc string) Param {
	return Param{name, preset, doc, func(text string) (any, error) {
		var all []float64
		for _, f := range strings.Split(text, "/") {
			x, err := in.read(name, f)
			if bad := (noNumber{}); errors.As(err, &bad) {
				return nil, noNumber{text, "numbers such as 0.5/0.2"}
			}
			if err != nil {
				return nil, err
			}
			all = append(all, x)
		}
		return all, nil
	}}
}

// An Interval bounds a number.
type Interval struct {
	least, most float64
	notMost     bool
}

// Closed returns the interval with both of its ends.
func Closed(least, most float64) Interval { return Interval{least: least, most: most} }

// Below returns the interval without its upper end.
func Below(least, most float64) Interval { return Interval{least: least, most: most, notMost: true} }

// read reads a number, called name, of the interval.
func (in Interval) read(name, text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		return 0, noNumber{text, "a number, " + in.want(name)}
	}
	if in.notMost && x == in.most || !(x >= in.least && x <= in.most) {
		return 0, fmt.Errorf("%s, want %s", text, in.want(name))
	}
	return x, nil
}

func (in Interval) want(name string) string {
	if !in.notMost {
		return fmt.Sprintf("%v..%v", in.least, in.most)
	}
	return fmt.Sprintf("%v <= %s < %v", in.least, name, in.most)
}

// Values are the values of one specification, with defaults filled in. Its methods panic for a
// key that the table lacks or that has another type: then the maker and the table disagree.
type Values struct {
	keys []string
	all  map[string]value
}

type value struct {
	text  string
	is    any
	given bool
}

func get[T any](v Values, key string) T {
	x, ok := v.all[key]
	if !ok {
		panic("spec: the table has no parameter " + key)
	}
	is, ok := x.is.(T)
	if !ok {
		panic(fmt.Sprintf("spec: parameter %s holds a %T, not a %T", key, x.is, is))
	}
	return is
}

// Given reports whether the specification gives key's value itself.
func (v Values) Given(key string) bool { return v.all[key].given }

// Text returns key's value as it was given, whatever its type.
func (v Values) Text(key string) string {
	x, ok := v.all[key]
	if !ok {
		panic("spec: the table has no parameter " + key)
	}
	return x.text
}

// Int returns an integer.
func (v Values) Int(key string) int { return get[int](v, key) }

// Float returns a number.
func (v Values) Float(key string) float64 { return get[float64](v, key) }

// Float32 returns a number rounded once, from its text.
func (v Values) Float32(key string) float32 {
	_ = get[float64](v, key)
	x, _ := strconv.ParseFloat(v.all[key].text, 32) // out of range it is ±Inf, as it should be
	return float32(x)
}

// Is reports whether key's value is a word that was allowed instead of a number.
func (v Values) Is(key, text string) bool {
	w, ok := v.all[key].is.(word)
	return ok && string(w) == text
}

// Choice returns which of its words a Choice is, from 0.
func (v Values) Choice(key string) int { return get[int](v, key) }

// On reports whether a Switch is on.
func (v Values) On(key string) bool { return v.Choice(key) == 0 }

// File returns the name of a file, "" if none was given.
func (v Values) File(key string) string { return string(get[path](v, key)) }

// Files returns the names of all files given, in the table's order. It does not look
// into nested specifications.
func (v Values) Files() []string {
	var files []string
	for _, key := range v.keys {
		if f, ok := v.all[key].is.(path); ok && f != "" {
			files = append(files, string(f))
		}
	}
	return files
}

// Floats returns a list of numbers.
func (v Values) Floats(key string) []float64 { return slices.Clone(get[[]float64](v, key)) }
