package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"talf/compute/cpu/kern"
)

// RunSelfTest compares the kernels of this process's class with plain Go, and writes the name of each on a line before it runs.
func RunSelfTest(w io.Writer) error {
	f, err := kern.For(kern.Best())
	if err != nil {
		return err
	}
	return f.SelfTest(func(kernel string) { fmt.Fprintln(w, kernel) })
}

// SelfTest runs the self-test: in a process of its own if this one's program is talf.
func SelfTest(program bool) error {
	if !program {
		return RunSelfTest(io.Discard)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start the self-test: %w", err)
	}
	return selfTestBy(exec.Command(self, "doctor", "--self-test"))
}

// selfTestBy is the self-test in a process of its own, whose output is RunSelfTest's: an instruction that the processor
// does not have ends the process, and the last name that it wrote says in which kernel.
func selfTestBy(cmd *exec.Cmd) error {
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		return fmt.Errorf("start the self-test: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	why, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
	return fmt.Errorf("in %s: %w: %s", lines[len(lines)-1], err, why)
}
