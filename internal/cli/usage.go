package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A UsageError is the user's mistake in writing the command line.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Usage returns err as a UsageError, and nil for nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return UsageError{err}
}

// Usagef formats a UsageError.
func Usagef(format string, args ...any) error {
	return UsageError{fmt.Errorf(format, args...)}
}

// Explain makes root and all commands below it report mistakes in a command line as usage errors
// in plain words, with suggestions. It is called once all commands are added. The function that
// it returns, called after root was executed, returns why no help was printed: the command whose
// help was requested does not exist.
func Explain(root *cobra.Command) (misspelt func() error) {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SuggestionsMinimumDistance = 2
	root.Args = cobra.ArbitraryArgs
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// The flags of a mistyped command are unknown only because it is.
		if args := cmd.Flags().Args(); cmd == root && len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return UsageError{flagError(err)}
	})
	for _, c := range root.Commands() {
		usageArgs(c)
	}
	var wrong error
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		// To cobra, "talf trian --help" asks for the help of the root.
		if rest := cmd.Flags().Args(); len(rest) > 0 && cmd.HasAvailableSubCommands() && cmd.Name() != "help" {
			if cmd == root || cmd.Args(cmd, rest) != nil {
				wrong = unknownCommand(cmd, rest[0])
				return
			}
		}
		help(cmd, args)
	})
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = func(_ *cobra.Command, args []string) error {
				if found, _, err := root.Find(args); err == nil && found == root && len(args) > 0 {
					return unknownCommand(root, args[0])
				}
				return nil
			}
		}
	}
	return func() error { return wrong }
}

// usageArgs makes c and the commands below it report wrong arguments as usage errors.
func usageArgs(c *cobra.Command) {
	check := takeArguments
	if own := c.Args; own != nil {
		check = func(cmd *cobra.Command, args []string) error {
			if own(cmd, args) != nil {
				return argsError(cmd, args)
			}
			return nil
		}
	}
	c.Args = func(cmd *cobra.Command, args []string) error { return Usage(check(cmd, args)) }
	for _, sub := range c.Commands() {
		usageArgs(sub)
	}
}

// argsError says what is wrong with the arguments of cmd, whose Use names the arguments that it
// takes.
func argsError(cmd *cobra.Command, args []string) error {
	var want string // such as PATH
	if words := strings.Fields(cmd.Use); len(words) > 1 && !strings.HasPrefix(words[1], "-") && !strings.HasPrefix(words[1], "[") {
		want = words[1]
	}
	if len(args) == 0 {
		return fmt.Errorf("missing %s", want)
	}
	swallowed := swallowed(cmd)
	switch {
	case swallowed != nil:
		return swallowed
	case want != "":
		return fmt.Errorf("unexpected argument %q: want one %s", args[1], want)
	case cmd.HasAvailableSubCommands():
		return unknownCommand(cmd, args[0])
	}
	return fmt.Errorf("unexpected argument %q: all that %s takes are flags", args[0], cmd.CommandPath())
}

func unknownCommand(root *cobra.Command, name string) error {
	if s := root.SuggestionsFor(name); len(s) > 0 {
		return Usagef("unknown command %q: did you mean %s?", name, strings.Join(s, " or "))
	}
	return Usagef("unknown command %q", name)
}

// flagError says in plain words what is wrong with the value of a flag.
func flagError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("--%s is %q, %w", bad.GetFlag().Name, bad.GetValue(), valueError(bad))
}

// valueError says why a flag does not take a value: "want a number".
func valueError(bad *pflag.InvalidValueError) error {
	var num *strconv.NumError
	if !errors.As(bad, &num) {
		return bad.Unwrap()
	}
	want := "want a whole number"
	switch kind := bad.GetFlag().Value.Type(); {
	case strings.HasPrefix(kind, "float"):
		want = "want a number"
	case strings.HasPrefix(kind, "uint"):
		want = "want a whole number, 0 or more"
	case kind == "bool":
		want = "want true or false"
	}
	if errors.Is(num, strconv.ErrRange) {
		want += ", not as large"
	}
	return errors.New(want)
}

// Need returns a usage error unless every named flag was given.
func Need(cmd *cobra.Command, names ...string) error {
	var missing []string
	for _, n := range names {
		f := cmd.Flags().Lookup(n)
		if f == nil || f.Value.String() == "" || f.Value.String() == "[]" { // [] is a list without values
			missing = append(missing, "--"+n)
		}
	}
	if len(missing) > 0 {
		return Usagef("missing %s", strings.Join(missing, ", "))
	}
	return nil
}

// OnlyFor returns a usage error if one of the named flags was given, and not as empty, although
// what they are for, of, is not on. The error names them all.
func OnlyFor(f *pflag.FlagSet, of string, on bool, names []string) error {
	for _, n := range names {
		if !on && f.Changed(n) && f.Lookup(n).Value.String() != "" {
			last := len(names) - 1
			return Usagef("--%s and --%s are for %s", strings.Join(names[:last], ", --"), names[last], of)
		}
	}
	return nil
}

// Only returns a usage error if one of the named flags was given although what they are for, --of,
// is not on.
func Only(cmd *cobra.Command, of string, on bool, names ...string) error {
	for _, n := range names {
		if !on && cmd.Flags().Changed(n) {
			return Usagef("--%s is for --%s", n, of)
		}
	}
	return nil
}
