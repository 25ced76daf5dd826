package cli

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Completing reports whether a command line is a shell's question how to complete another one.
func Completing(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// Complete makes shells complete the values of flags: those of the flags in words with these,
// and those of the flags in dirs with directories. It covers c and the commands below it. Cobra keeps
// them all until the process ends: call it if Completing.
func Complete(c *cobra.Command, words map[string][]string, dirs ...string) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		var offer cobra.CompletionFunc
		switch v, known := words[f.Name]; {
		case known:
			offer = cobra.FixedCompletions(v, cobra.ShellCompDirectiveNoFileComp)
		case slices.Contains(dirs, f.Name):
			offer = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
		default:
			return
		}
		if err := c.RegisterFlagCompletionFunc(f.Name, offer); err != nil {
			panic("cli: " + err.Error()) // the flag is this command's
		}
	})
	for _, sub := range c.Commands() {
		Complete(sub, words, dirs...)
	}
}

// A count is a flag with a value that is not negative.
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

// CountVar adds a flag for *p with a value that is not negative.
func CountVar(f *pflag.FlagSet, p *int, name string, value int, doc string) {
	*p = value
	f.Var((*count)(p), name, doc)
}

// A duration is a flag with a time that is not negative.
type duration time.Duration

func (d *duration) Type() string { return "duration" }

func (d *duration) String() string {
	if *d == 0 {
		return "0" // which help does not print as a default
	}
	return time.Duration(*d).String()
}

func (d *duration) Set(s string) error {
	t, err := time.ParseDuration(s)
	if err != nil || t < 0 {
		return errors.New("want a duration, 0 or more, such as 30s")
	}
	*d = duration(t)
	return nil
}

// DurationVar adds a flag for *p with a time that is not negative.
func DurationVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, doc string) {
	*p = value
	f.Var((*duration)(p), name, doc)
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

// NumbersVar adds a flag for the numbers in *p.
func NumbersVar(f *pflag.FlagSet, p *[]float64, name string, value []float64, doc string) {
	*p = value
	f.Var(&numbers{p: p}, name, doc)
}

// Files is a flag that may be repeated, and is "" while empty.
type Files []string

func (f *Files) String() string     { return strings.Join(*f, ",") }
func (f *Files) Set(s string) error { *f = append(*f, s); return nil }
func (f *Files) Type() string       { return "file" }
