// Command manpages writes a manual page for every command of talf:
//
//	manpages DIR 2026-11-22
//
// The date is that of the commit, so that equal sources give equal pages.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra/doc"

	"talf/cmd/talf/command"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: manpages DIR YYYY-MM-DD")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

func write(dir, day string) error {
	date, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return fmt.Errorf("read the date: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root := command.Tree()
	root.DisableAutoGenTag = true // it contains the date of the build
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "talf", Manual: "talf", Date: &date}, dir)
}
