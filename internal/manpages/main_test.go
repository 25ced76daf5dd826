package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/cmd/talf/command"
)

func TestEveryCommandHasAPage(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir, "2026-11-22"); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range command.Tree().Commands() {
		if c.Name() == "help" || !c.IsAvailableCommand() {
			continue
		}
		n++
		page, err := os.ReadFile(filepath.Join(dir, "talf-"+c.Name()+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(page), `"Nov 2026"`) || !strings.Contains(string(page), ".SH OPTIONS") {
			t.Errorf("the page of %s has no date or no options:\n%.300s", c.Name(), page)
		}
	}
	if n < 10 {
		t.Errorf("%d commands", n)
	}
	if err := write(dir, "yesterday"); err == nil {
		t.Error("a date that is none is accepted")
	}
}
