package measurements

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"talf/lab/measurements/tables"
)

// An age says whether the code that a table measured is still the code of the repository.
type age struct {
	page, name string
	header     *tables.Header
	current    bool
	commits    string // that touched the code since; empty if that commit is not in the history
}

// noCode excludes what digest leaves out.
var noCode = []string{":(exclude)*_test.go", ":(exclude)*.md", ":(exclude)*/testdata/*"}

func (a *age) String() string {
	switch {
	case a.current:
		return "current"
	case a.commits != "":
		return fmt.Sprintf("older: %s commits touch %s since", a.commits, strings.Join(a.header.Code, ", "))
	}
	return fmt.Sprintf("older: %s changed since", strings.Join(a.header.Code, ", "))
}

// ages reads every block of the pages.
func ages(ctx context.Context, root string) ([]age, error) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "measurements", "*.md"))
	if err != nil {
		return nil, err
	}
	var out []age
	for _, path := range pages {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, name := range tables.Blocks(string(b)) {
			body, err := tables.Block(string(b), name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			h, err := tables.ParseHeader(body)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", path, name, err)
			}
			now, err := digest(ctx, root, h.Code)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", path, name, err)
			}
			a := age{page: filepath.Base(path), name: name, header: h, current: now == h.Digest}
			if !a.current {
				// Absent from a shallow clone, or from a history that was written anew.
				if n, err := git(ctx, root, slices.Concat([]string{"rev-list", "--count", h.Commit + "..HEAD", "--"}, h.Code, noCode)...); err == nil && n != "0" {
					a.commits = n
				}
			}
			out = append(out, a)
		}
	}
	return out, nil
}

func printAges(ctx context.Context, root string) error {
	all, err := ages(ctx, root)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "page\ttable\tmeasured\tcommit\tcode")
	for i := range all {
		a := &all[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", a.page, a.name, a.header.Date, a.header.Commit, a)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println("\nTables outside these blocks were made by hand and are as old as the dates that they give.")
	return nil
}

// digest identifies the code below paths as HEAD has it: file names and contents, without tests and
// texts.
func digest(ctx context.Context, root string, paths []string) (string, error) {
	list, err := git(ctx, root, append([]string{"ls-tree", "-r", "HEAD", "--"}, paths...)...)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	n := 0
	for line := range strings.Lines(list + "\n") {
		name := line[strings.IndexByte(line, '\t')+1:]
		name = strings.TrimSpace(name)
		if name == "" || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".md") || strings.Contains(name, "/testdata/") {
			continue
		}
		h.Write([]byte(line))
		n++
	}
	if n == 0 {
		return "", fmt.Errorf("no code below %s", strings.Join(paths, " "))
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return string(bytes.TrimRight(out, "\n")), nil
}
