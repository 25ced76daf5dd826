package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
)

func main() {
	verbose := flag.Bool("v", false, "say afterwards how many instructions of each kind were executed")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: amxemu [-v] command arguments…")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if hasAMX() {
		fmt.Fprintln(os.Stderr, "amxemu: this processor has AMX: run the command by itself")
		os.Exit(exitRefused)
	}
	t := &tracer{log: os.Stderr, stderr: os.Stderr}
	status, err := t.run(flag.Args())
	if err != nil {
		fmt.Fprintf(os.Stderr, "amxemu: %v\n", err)
		os.Exit(exitRefused)
	}
	if *verbose {
		for op, n := range t.count {
			if n > 0 {
				fmt.Fprintf(os.Stderr, "amxemu: %v %d\n", opcode(op), n)
			}
		}
	}
	os.Exit(status)
}

// hasAMX reports whether the processor executes some of the instructions itself: LDTILECFG needs
// no permission, so emulation would be inconsistent.
func hasAMX() bool {
	b, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && bytes.Contains(b, []byte(" amx_tile"))
}
