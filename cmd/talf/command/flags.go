package command

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/train/loss"
)

// usageArgs makes c and the commands below it report wrong arguments as usage errors, in
// our words.
func usageArgs(c *cobra.Command) {
	check := c.Args
	if check == nil {
		check = cobra.NoArgs
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{argsError(cmd, args)}
		}
		return nil
	}
	for _, sub := range c.Commands() {
		usageArgs(sub)
	}
}

// argsError says what is wrong with the arguments of cmd, whose Use names the ones that
// it takes.
func argsError(cmd *cobra.Command, args []string) error {
	var want string // such as PATH
	if words := strings.Fields(cmd.Use); len(words) > 1 && !strings.HasPrefix(words[1], "-") && !strings.HasPrefix(words[1], "[") {
		want = words[1]
	}
	if len(args) == 0 {
		return fmt.Errorf("missing %s", want)
	}
	// "--model --prompt x": the value of the one is the name of the other.
	var swallowed error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if name, ok := strings.CutPrefix(f.Value.String(), "--"); ok && cmd.Flags().Lookup(name) != nil {
			swallowed = fmt.Errorf("--%s has no value: what follows it is --%s", f.Name, name)
		}
	})
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
		return usagef("unknown command %q: did you mean %s?", name, strings.Join(s, " or "))
	}
	return usagef("unknown command %q", name)
}

// flagError says in our words what is wrong with the value of a flag.
func flagError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("--%s is %q, %w", bad.GetFlag().Name, bad.GetValue(), valueError(bad))
}

// valueError is why a flag does not take a value: "want a number".
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

// complete makes shells complete the values of flags of c and of the commands below it.
func complete(c *cobra.Command) {
	var losses []string
	for _, m := range loss.Methods() {
		losses = append(losses, m.Name)
	}
	values := map[string][]string{
		"act-bits": {"8", "16"},
		"kv-dtype": {"f32", "bf16"},
		"loss":     losses,
		"method":   strings.Split(methodNames(), ", "),
		"verify":   strings.Split(verifierNames(), ", "),
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		var offer cobra.CompletionFunc
		switch v, known := values[f.Name]; {
		case known:
			offer = cobra.FixedCompletions(v, cobra.ShellCompDirectiveNoFileComp)
		case f.Name == "model" || f.Name == "head" || f.Name == "draft":
			offer = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
		default:
			return
		}
		if err := c.RegisterFlagCompletionFunc(f.Name, offer); err != nil {
			panic("talf: " + err.Error()) // the flag is this command's
		}
	})
	for _, sub := range c.Commands() {
		complete(sub)
	}
}

// need returns a usage error unless every named flag was given.
func need(cmd *cobra.Command, names ...string) error {
	var missing []string
	for _, n := range names {
		if f := cmd.Flags().Lookup(n); f == nil || f.Value.String() == "" {
			missing = append(missing, "--"+n)
		}
	}
	if len(missing) > 0 {
		return usagef("missing %s", strings.Join(missing, ", "))
	}
	return nil
}

// A count is a flag that is not negative.
type count int

func (c *count) String() string { return strconv.Itoa(int(*c)) }
func (c *count) Type() string   { return "int" }

func (c *count) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return errors.New("want a whole number, 0 or more")
	}
	*c = count(n)
	return nil
}

// countVar adds a flag for *p that is not negative.
func countVar(f *pflag.FlagSet, p *int, name string, value int, doc string) {
	*p = value
	f.Var((*count)(p), name, doc)
}

// numbers is a flag of comma-separated numbers, which may be repeated.
type numbers struct {
	p     *[]float64
	given bool
}

func (n *numbers) Type() string { return "numbers" }

func (n *numbers) String() string {
	if n.p == nil {
		return ""
	}
	var all []string
	for _, x := range *n.p {
		all = append(all, strconv.FormatFloat(x, 'g', -1, 64))
	}
	return strings.Join(all, ",")
}

func (n *numbers) Set(s string) error {
	var all []float64
	for part := range strings.SplitSeq(s, ",") {
		x, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || math.IsInf(x, 0) {
			return errors.New("want numbers, separated by commas")
		}
		all = append(all, x)
	}
	if n.given { // the first value takes the default's place
		all = append(*n.p, all...)
	}
	*n.p, n.given = all, true
	return nil
}

// numbersVar adds a flag for the numbers in *p.
func numbersVar(f *pflag.FlagSet, p *[]float64, name string, value []float64, doc string) {
	*p = value
	f.Var(&numbers{p: p}, name, doc)
}
