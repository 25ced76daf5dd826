package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"talf/internal/limits"
)

// A FlagFile describes YAML files that hold a command's flags.
type FlagFile struct {
	// Without are flags that files do not hold: they say what to do with one, or how to
	// print.
	Without []string
	// Clashes are pairs of flags that exclude each other: one on the command line replaces
	// the other in a file.
	Clashes [][2]string
}

// Read sets the flags that the YAML file at path gives and the command line does not.
// Keys are the flags' names; flags that may be repeated take lists. Mistakes in the file are those of
// a command line: a UsageError.
func (c *FlagFile) Read(f *pflag.FlagSet, path string) error {
	raw, err := limits.ReadFile(path, limits.ConfigBytes)
	if err != nil {
		return err
	}
	if err := c.set(f, path, raw); err != nil {
		return UsageError{err}
	}
	return nil
}

// set is Read of a file's content.
func (c *FlagFile) set(f *pflag.FlagSet, path string, raw []byte) error {
	var doc yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(string(raw)))
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil // an empty file
		}
		return fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: want one YAML document", path)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return fmt.Errorf("%s: want the flags' names and values, such as \"steps: 1000\"", path)
	}
	var given []string
	f.Visit(func(x *pflag.Flag) { given = append(given, x.Name) })
	aside := func(name string) bool {
		for _, p := range c.Clashes {
			if p[0] == name && slices.Contains(given, p[1]) || p[1] == name && slices.Contains(given, p[0]) {
				return true
			}
		}
		return slices.Contains(given, name)
	}
	seen := map[string]bool{}
	pairs := doc.Content[0].Content
	for i := 0; i < len(pairs); i += 2 {
		key, val := pairs[i], pairs[i+1]
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %s: %w", path, key.Line, key.Value, fmt.Errorf(format, args...))
		}
		flag := f.Lookup(key.Value)
		switch {
		case flag == nil || slices.Contains(c.Without, key.Value):
			return fail("no such option: the names are those of the flags")
		case seen[key.Value]:
			return fail("given twice")
		}
		seen[key.Value] = true
		vals := []*yaml.Node{val}
		_, files := flag.Value.(*Files)
		list, slice := flag.Value.(pflag.SliceValue)
		if (files || slice) && val.Kind == yaml.SequenceNode {
			vals = val.Content
		}
		skip := aside(key.Value)
		var all []string // of a list that is set at once, or commas would divide its values again
		for _, v := range vals {
			if v.Kind == yaml.AliasNode {
				v = v.Alias
			}
			if v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
				return fail("want a plain value")
			}
			if skip {
				continue
			}
			if slice && val.Kind == yaml.SequenceNode {
				all = append(all, v.Value)
				continue
			}
			if err := f.Set(key.Value, v.Value); err != nil {
				if bad := (*pflag.InvalidValueError)(nil); errors.As(err, &bad) {
					err = valueError(bad)
				}
				return fail("%q, %w", v.Value, err)
			}
		}
		if len(all) > 0 {
			if err := list.Replace(all); err != nil {
				return fail("%w", err)
			}
			flag.Changed = true
		}
	}
	return nil
}

// Write writes all flags with their values as a file that Read reads. idle says which
// defaults do not apply to the flags given.
func (c *FlagFile) Write(w io.Writer, f *pflag.FlagSet, idle func(name string) bool) error {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	f.VisitAll(func(x *pflag.Flag) {
		if slices.Contains(c.Without, x.Name) || x.Hidden {
			return
		}
		// A default is left out if a flag that was given excludes it, or if it does not
		// apply: the file would be refused otherwise.
		if !x.Changed {
			for _, p := range c.Clashes {
				if x.Name == p[0] && f.Changed(p[1]) || x.Name == p[1] && f.Changed(p[0]) {
					return
				}
			}
			if idle(x.Name) {
				return
			}
		}
		var val *yaml.Node
		switch v := x.Value.(type) {
		case *Files:
			if len(*v) == 0 {
				return
			}
			val = &yaml.Node{Kind: yaml.SequenceNode}
			for _, s := range *v {
				val.Content = append(val.Content, scalar(s, "string"))
			}
		case pflag.SliceValue:
			if len(v.GetSlice()) == 0 {
				return
			}
			val = &yaml.Node{Kind: yaml.SequenceNode}
			for _, s := range v.GetSlice() {
				val.Content = append(val.Content, scalar(s, "string"))
			}
		default:
			s := x.Value.String()
			if s == "" {
				return
			}
			val = scalar(s, x.Value.Type())
		}
		doc.Content = append(doc.Content, scalar(x.Name, "string"), val)
	})
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(doc); err != nil {
		return err
	}
	return enc.Close()
}

// scalar returns the YAML of a flag's value. A string stays one, whatever it looks like.
func scalar(s, kind string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: s}
	switch kind {
	case "int", "uint64", "float64", "bool":
		return n
	}
	n.SetString(s)
	return n
}
