// Command licences reads the licences of everything that is linked into talf on some
// platform or with some build tag. It fails on a module whose licence it does not know
// or that this project does not accept. With -notice it prints them, as releases
// carry them in NOTICE.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	print := flag.Bool("notice", false, "print the text of NOTICE")
	root := flag.String("root", "..", "the repository's root")
	flag.Parse()
	if err := run(*root, *print, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(root string, print bool, out io.Writer) error {
	modules, err := linked(root)
	if err != nil {
		return err
	}
	var errs []error
	for i := range modules {
		if err := modules[i].read(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	goLicence, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(goroot)), "LICENSE"))
	if err != nil {
		return fmt.Errorf("read the licence of Go: %w", err)
	}
	std := module{Path: "Go's standard library"}
	if err := std.add("LICENSE", string(goLicence)); err != nil {
		return err
	}
	if print {
		_, err = out.Write(notice(append([]module{std}, modules...)))
		return err
	}
	_, err = fmt.Fprintf(out, "the licences of %d modules are accepted\n", len(modules))
	return err
}

const preamble = `talf

Licensed under the Apache License, Version 2.0: see LICENSE.

The binaries contain the software listed below, some of it on certain platforms
or with certain build tags only. Each module keeps its own licence, whose text
follows the list. This file was generated for a release.

`

// notice is the text of NOTICE: a list of modules, then every distinct text
// once, under the names of the modules that it belongs to.
func notice(modules []module) []byte {
	var b bytes.Buffer
	b.WriteString(preamble)
	for _, m := range modules {
		fmt.Fprintf(&b, "%s: %s\n", strings.TrimSpace(m.Path+" "+m.Version), strings.Join(m.licences, ", "))
	}
	owners := map[string][]string{}
	var order []string
	for _, m := range modules {
		for _, f := range m.files {
			if owners[f.text] == nil {
				order = append(order, f.text)
			}
			owners[f.text] = append(owners[f.text], m.Path+" ("+f.name+")")
		}
	}
	rule := strings.Repeat("-", 80)
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n%s\n\n%s\n", rule, strings.Join(owners[text], "\n"), rule, text)
	}
	return b.Bytes()
}
