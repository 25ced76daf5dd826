// Package measurements runs the tables of docs/measurements that a clone can run and writes them there,
// each with the machine, the date, the commit and the commands, and the figures that README.md and
// docs/performance.md quote. It fetches nothing: models and prompts come from the repository.
package measurements

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"talf/lab/measurements/tables"
)

// Options choose what Run does with tables.
type Options struct {
	Age   bool   // say which tables are older than the code that they measure
	List  bool   // list them
	Quote bool   // write the quoted figures alone
	Small bool   // take few prompts, tokens and steps, print the tables and write none
	Make  bool   // make steps that tables need, named instead of tables
	Work  string // folder for models, labels, heads and results, in the repository; small runs add -small to its name
}

// Run runs the tables with these names, all if there are none, in the repository that the working
// directory is in.
func Run(ctx context.Context, o *Options, names []string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	if o.Make {
		return makeSteps(ctx, o, root, names)
	}
	pick, err := named(names)
	if err != nil {
		return err
	}
	switch {
	case o.List:
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		for _, x := range pick {
			fmt.Fprintf(w, "%s\t%s\t%s\n", x.name, x.page, x.doc)
		}
		return w.Flush()
	case o.Age:
		return printAges(ctx, root)
	case o.Quote:
		return quoteAll(root)
	}
	l, err := clean(ctx, root, o)
	if err != nil {
		return err
	}
	for _, x := range pick {
		fmt.Printf("%s: %s\n", x.name, x.doc)
		if err := measure(ctx, l, x); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	if o.Small {
		return nil
	}
	return quoteAll(root)
}

// folder is where the lab lies. Small runs have one of their own: what they make would replace the labels and heads of
// the others, which take long.
func (o *Options) folder() string {
	if o.Small {
		return filepath.Clean(o.Work) + "-small"
	}
	return o.Work
}

// clean opens the lab of a repository without changes that are not committed, which may be there in
// small runs.
func clean(ctx context.Context, root string, o *Options) (*lab, error) {
	dirty, err := git(ctx, root, "status", "--porcelain", "--untracked-files=no", "--", ":!*.md")
	if err != nil {
		return nil, err
	}
	if dirty != "" && !o.Small {
		return nil, fmt.Errorf("commit these changes first, so that the tables can name what they measured:\n%s", dirty)
	}
	l, err := open(ctx, root, o.folder())
	if err != nil {
		return nil, err
	}
	l.small = o.Small
	return l, nil
}

// makeSteps makes steps, and what they need, that are not made yet.
func makeSteps(ctx context.Context, o *Options, root string, names []string) error {
	known := map[string]*step{}
	var learn func(steps []*step)
	learn = func(steps []*step) {
		for _, s := range steps {
			known[s.name] = s
			learn(s.after)
		}
	}
	for _, x := range exhibits {
		learn(x.needs)
	}
	for _, n := range names {
		if known[n] == nil {
			return fmt.Errorf("no step %s, want one of %s", n, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	l, err := clean(ctx, root, o)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := known[n].make(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// measure runs an exhibit and writes it into its page, or prints it if it is small.
func measure(ctx context.Context, l *lab, x *exhibit) error {
	for _, s := range x.needs {
		if err := s.make(ctx, l); err != nil {
			return err
		}
	}
	h := tables.Header{Date: time.Now().Format("2 January 2006"), Load: load(), Code: x.code}
	var err error
	if h.Machine, err = l.machine(ctx); err != nil {
		return err
	}
	// The last that changed this code: later ones may not be published as they are.
	if h.Commit, err = git(ctx, l.root, append([]string{"log", "-1", "--abbrev=12", "--format=%h", "--"}, x.code...)...); err != nil {
		return err
	}
	if h.Digest, err = digest(ctx, l.root, x.code); err != nil {
		return err
	}
	l.commands, l.earlier = nil, 0
	began := time.Now()
	body, err := x.run(ctx, l)
	if err != nil {
		return err
	}
	h.Took = (time.Since(began) + l.earlier).Round(time.Second)
	if l.small {
		fmt.Print(h.String() + commands(l.commands) + "\n" + body)
		return nil
	}
	return rewrite(filepath.Join(l.root, x.page), func(page string) (string, error) {
		return tables.ReplaceBlock(page, x.name, h.String()+commands(l.commands)+"\n"+strings.TrimSpace(body)+"\n")
	})
}

// commands shows what was run, as a reader of the repository would type it.
func commands(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString("    " + l + "\n")
	}
	return b.String()
}

func named(names []string) ([]*exhibit, error) {
	if len(names) == 0 {
		return exhibits, nil
	}
	var out []*exhibit
	var unknown []error
	for _, n := range names {
		if x := find(n); x != nil {
			out = append(out, x)
		} else {
			unknown = append(unknown, fmt.Errorf("no table %s: --list shows them", n))
		}
	}
	return out, errors.Join(unknown...)
}

func find(name string) *exhibit {
	for _, x := range exhibits {
		if x.name == name {
			return x
		}
	}
	return nil
}

// repository is the nearest directory above that has this project's go.mod.
func repository() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module talf\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside the repository talf", wd)
		}
	}
}

// rewrite replaces a file by what f makes of it, whole or not at all.
func rewrite(path string, f func(string) (string, error)) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s, err := f(string(b))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if s == string(b) {
		return nil
	}
	if err := os.WriteFile(path+".part", []byte(s), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}
