package cli

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// place is the annotation of a flag whose value may be given as an argument.
const place = "talf argument"

// Arguments lets commands with these flags take their values as arguments, too: the first
// argument is the value of the first of them that is not given as a flag, and so on.
func Arguments(f *pflag.FlagSet, names ...string) {
	for i, n := range names {
		if err := f.SetAnnotation(n, place, []string{strconv.Itoa(i)}); err != nil {
			panic("cli: " + err.Error()) // the flag is this command's
		}
	}
}

// arguments returns the flags of c whose values may be arguments, in the order of these.
func arguments(c *cobra.Command) (flags []*pflag.Flag) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[place] != nil {
			flags = append(flags, f)
		}
	})
	slices.SortFunc(flags, func(a, b *pflag.Flag) int { return strings.Compare(a.Annotations[place][0], b.Annotations[place][0]) })
	return flags
}

// takeArguments sets the flags whose values are given as arguments.
func takeArguments(c *cobra.Command, args []string) error {
	flags := arguments(c)
	switch {
	case len(args) == 0:
		return nil
	case len(flags) == 0:
		return argsError(c, args)
	}
	if c.HasAvailableSubCommands() && len(c.SuggestionsFor(args[0])) > 0 {
		if _, err := os.Stat(args[0]); err != nil {
			return unknownCommand(c, args[0])
		}
	}
	if err := swallowed(c); err != nil {
		return err
	}
	free := slices.DeleteFunc(slices.Clone(flags), func(f *pflag.Flag) bool { return f.Changed })
	for i, a := range args {
		if i == len(free) {
			return fmt.Errorf("unexpected argument %q: want at most %s, and quotes around text with blanks", a, strings.Join(upper(flags), " and "))
		}
		if err := c.Flags().Set(free[i].Name, a); err != nil {
			return flagError(err)
		}
	}
	return nil
}

// upper returns what help calls the arguments.
func upper(flags []*pflag.Flag) (names []string) {
	for _, f := range flags {
		names = append(names, strings.ToUpper(f.Name))
	}
	return names
}

// swallowed reports a flag whose value is the name of another: in "--model --prompt x".
func swallowed(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		if name, ok := strings.CutPrefix(f.Value.String(), "--"); ok && c.Flags().Lookup(name) != nil {
			err = fmt.Errorf("--%s has no value: what follows it is --%s", f.Name, name)
		}
	})
	return err
}

// CommandLine writes a command line of root without the values of the flags named in texts, which hold
// what a user wrote rather than how talf is run.
func CommandLine(root *cobra.Command, args []string, texts ...string) string {
	const hidden = "…"
	c, _, err := root.Find(args)
	if err != nil {
		c = root
	}
	flags := arguments(c)
	free := slices.DeleteFunc(slices.Clone(flags), func(f *pflag.Flag) bool {
		return slices.ContainsFunc(args, func(a string) bool { return a == "--"+f.Name || strings.HasPrefix(a, "--"+f.Name+"=") })
	})
	depth := len(strings.Fields(c.CommandPath())) - 1 // arguments that name the command
	out := []string{root.Name()}
	given := -depth
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, _, joined := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if a == "-" || !strings.HasPrefix(a, "-") {
			if given >= len(free) && flags != nil || given >= 0 && given < len(free) && slices.Contains(texts, free[given].Name) {
				a = hidden
			}
			given++
			out = append(out, a)
			continue
		}
		text := strings.HasPrefix(a, "--") && slices.Contains(texts, name)
		switch f := c.Flag(name); {
		case text && joined:
			out = append(out, "--"+name+"="+hidden)
		case joined || !text && (f == nil || f.NoOptDefVal != ""):
			out = append(out, a)
		default: // the next is its value
			out = append(out, a)
			if i++; text {
				out = append(out, hidden)
			} else if i < len(args) {
				out = append(out, args[i])
			}
		}
	}
	return strings.Join(strings.Fields(strings.Join(out, " ")), " ")
}
