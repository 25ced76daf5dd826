package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"talf/checkpoints"
	"talf/internal/cli"
)

// noConfig are the flags that a configuration file does not hold: they say what to do
// with one, or how to print.
var noConfig = []string{"config", "print-config", "json", "help", "verbose", "quiet"}

// clashes are pairs of flags that exclude each other: one on the command line replaces the
// other in a configuration file.
var clashes = [][2]string{{"stage", "loss"}, {"stage", "steps"}, {"stage", "epochs"}, {"steps", "epochs"}}

// readConfig sets the flags that the YAML file at path gives and the command line
// does not. Keys are the flags' names; flags that may be repeated take lists.
func readConfig(f *pflag.FlagSet, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
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
		for _, c := range clashes {
			if c[0] == name && slices.Contains(given, c[1]) || c[1] == name && slices.Contains(given, c[0]) {
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
		case flag == nil || slices.Contains(noConfig, key.Value):
			return fail("no such option: the names are those of the flags")
		case seen[key.Value]:
			return fail("given twice")
		}
		seen[key.Value] = true
		vals := []*yaml.Node{val}
		if _, list := flag.Value.(*cli.Files); list && val.Kind == yaml.SequenceNode {
			vals = val.Content
		}
		skip := aside(key.Value)
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
			if err := f.Set(key.Value, v.Value); err != nil {
				if bad := (*pflag.InvalidValueError)(nil); errors.As(err, &bad) {
					err = cli.ValueError(bad)
				}
				return fail("%q, %w", v.Value, err)
			}
		}
	}
	return nil
}

// printConfig writes all flags with their values as a file that readConfig reads.
func printConfig(w io.Writer, f *pflag.FlagSet) error {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	f.VisitAll(func(x *pflag.Flag) {
		if slices.Contains(noConfig, x.Name) || x.Hidden {
			return
		}
		// A default is left out if a flag that was given excludes it, or if it does not apply
		// to what is trained: the file would be refused otherwise.
		if !x.Changed {
			for _, c := range clashes {
				if x.Name == c[0] && f.Changed(c[1]) || x.Name == c[1] && f.Changed(c[0]) {
					return
				}
			}
			if lm := f.Lookup("kind").Value.String() == checkpoints.KindLM; lm && slices.Contains(headOnly, x.Name) || !lm && slices.Contains(lmOnly, x.Name) {
				return
			}
		}
		var val *yaml.Node
		switch v := x.Value.(type) {
		case *cli.Files:
			if len(*v) == 0 {
				return
			}
			val = &yaml.Node{Kind: yaml.SequenceNode}
			for _, s := range *v {
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
