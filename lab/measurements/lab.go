package measurements

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"talf/lab/measurements/results"
)

// A lab is where measurements are made: the program, and a folder with models, prompts and what was
// made of them.
type lab struct {
	root string // of the repository
	work string // relative to root
	talf string
	prog string // the program lab
	// commands are those run since they were last cleared, as a reader would type them.
	commands []string
	// small: it takes few prompts, tokens and steps.
	small bool
	// earlier is what steps took that a table counts as its own.
	earlier time.Duration
}

// amount is how much of something is made.
func (l *lab) amount(n int) int {
	if l.small {
		n = max(n/100, 1)
	}
	return n
}

// scaled are the flags of talf bench and lab decode. Small ones leave a prompt of each set, 16
// tokens, two repetitions where there are several, and one pass of each size.
func (l *lab) scaled(flags []string) []string {
	flags = slices.Clone(flags)
	if !l.small {
		return flags
	}
	most := map[string]string{"--limit": "1", "--warmup": "0", "--max-tokens": "16", "--repeat": "2", "--reps": "1"}
	for i := range flags[:max(len(flags)-1, 0)] {
		if v, ok := most[flags[i]]; ok {
			flags[i+1] = v
		}
	}
	return flags
}

// open builds the program and unpacks models and prompts.
func open(ctx context.Context, root, work string) (*lab, error) {
	if filepath.IsAbs(work) {
		return nil, fmt.Errorf("--work is %s, want a folder relative to the repository", work)
	}
	l := &lab{root: root, work: filepath.ToSlash(work)}
	if err := os.MkdirAll(filepath.Join(root, work), 0o755); err != nil {
		return nil, err
	}
	suffix := ""
	if runtime.GOOS == "windows" {
		suffix = ".exe"
	}
	l.talf, l.prog = filepath.Join(root, work, "talf"+suffix), filepath.Join(root, work, "lab"+suffix)
	for _, args := range [][]string{{"go", "build", "-o", l.talf, "./cmd/talf"}, {"go", "build", "-C", "lab", "-o", l.prog, "./cmd/lab"}, {l.prog, "unpack", work}} {
		if _, err := l.exec(ctx, args[0], args[1:]...); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// path of a file in the work folder, relative to the repository.
func (l *lab) path(elem ...string) string {
	return strings.Join(append([]string{l.work}, elem...), "/")
}

// run runs talf in the repository and returns what it printed. It notes the command.
func (l *lab) run(ctx context.Context, args ...string) ([]byte, error) {
	l.commands = append(l.commands, typed("talf", args))
	return l.exec(ctx, l.talf, append(slices.Clone(args), "--quiet")...)
}

// pair runs commands of talf two at a time, each on one thread, and notes them. Two that do not wait for each
// other use two cores better than one after another on two threads, the more so where others want the cores too.
func (l *lab) pair(ctx context.Context, commands ...[]string) error {
	next := make(chan []string, len(commands))
	for _, args := range commands {
		args = append(slices.Clone(args), "--threads", "1")
		l.commands = append(l.commands, typed("talf", args))
		next <- args
	}
	close(next)
	var errs [2]error
	var both sync.WaitGroup
	for i := range errs {
		both.Go(func() {
			for args := range next {
				if _, errs[i] = l.exec(ctx, l.talf, append(args, "--quiet")...); errs[i] != nil {
					return
				}
			}
		})
	}
	both.Wait()
	return errors.Join(errs[:]...)
}

func (l *lab) exec(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, _, err := l.process(ctx, name, args...)
	return out, err
}

// process runs a program in the repository and returns what it printed, and how it ended.
func (l *lab) process(ctx context.Context, name string, args ...string) ([]byte, *os.ProcessState, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = l.root, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return nil, nil, fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err)
	}
	return out.Bytes(), cmd.ProcessState, nil
}

// typed shows a command on lines of at most 128 characters.
func typed(program string, args []string) string {
	const most = 124
	line, out := program, ""
	for i := 0; i < len(args); i++ {
		word := quoted(args[i])
		if strings.HasPrefix(word, "--") && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") { // a flag and its value stay together
			i++
			word += " " + quoted(args[i])
		}
		if len(line)+1+len(word) > most {
			out += line + " \\\n        "
			line = word
			continue
		}
		line += " " + word
	}
	return out + line
}

func quoted(s string) string {
	if s == "" || strings.ContainsAny(s, " \t\n'\"\\$*?{}()<>|&;") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// json runs talf or lab, which prints JSON, and reads that.
func (l *lab) json(ctx context.Context, into any, program string, args ...string) error {
	path := map[string]string{"talf": l.talf, "lab": l.prog}[program]
	l.commands = append(l.commands, typed(program, args))
	b, err := l.exec(ctx, path, append(slices.Clone(args), "--quiet")...)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// bench runs talf bench on gsm10m with flags and reads the report that it writes.
func (l *lab) bench(ctx context.Context, name string, flags ...string) (*results.Report, error) {
	return l.benchOn(ctx, "gsm10m", name, flags...)
}

// benchOn does the same on another model of the lab.
func (l *lab) benchOn(ctx context.Context, model, name string, flags ...string) (*results.Report, error) {
	return l.benchWith(ctx, "talf", l.talf, model, name, flags...)
}

// paper runs lab bench, which has the tables of publications, on gsm10m.
func (l *lab) paper(ctx context.Context, name string, flags ...string) (*results.Report, error) {
	return l.benchWith(ctx, "lab", l.prog, "gsm10m", name, flags...)
}

func (l *lab) benchWith(ctx context.Context, program, path, model, name string, flags ...string) (*results.Report, error) {
	args := append([]string{"bench", "--model", l.path(model)}, l.scaled(flags)...)
	l.commands = append(l.commands, typed(program, args))
	out := filepath.Join(l.root, l.work, name+".json")
	if _, err := l.exec(ctx, path, append(slices.Clone(args), "--quiet", "--out", out)...); err != nil {
		return nil, err
	}
	return results.Read(out)
}

// machine names the processor, its cores and the device.
func (l *lab) machine(ctx context.Context) (string, error) {
	b, err := l.exec(ctx, l.prog, "decode", "--shape", "10m", "--rows", "1", "--reps", "1", "--dtype", "f32", "--json", "--quiet")
	if err != nil {
		return "", err
	}
	var r struct{ Machine, Device string }
	if err := json.Unmarshal(b, &r); err != nil {
		return "", err
	}
	if r.Machine == "" || r.Device == "" || strings.Contains(r.Machine+r.Device, ";") {
		return "", fmt.Errorf("decode names the machine %q and the device %q", r.Machine, r.Device)
	}
	return r.Machine + ", " + r.Device, nil
}

// load is the number of processes that ran or waited for a processor, over the last minute; 0 where
// the system does not say.
func load() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	f, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return f
}

// A step makes something that tables need, once: again only when its code changed, or that of what
// it uses.
type step struct {
	name string
	of   string // how much of it is made; another amount is made anew
	code []string
	run  func(ctx context.Context, l *lab) error
	// after are the steps whose results it uses.
	after []*step
}

// A made is what a step noted about itself.
type made struct {
	Key     string  `json:"key"`
	Seconds float64 `json:"seconds"`
	// Commands are what was run, as a reader would type it.
	Commands []string `json:"commands"`
}

func (s *step) file(l *lab) string { return filepath.Join(l.root, l.work, s.name+".step.json") }

func (s *step) made(l *lab) (*made, error) {
	b, err := os.ReadFile(s.file(l))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := &made{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("%s: %w: remove it", s.file(l), err)
	}
	return m, nil
}

// key identifies what a step makes: by its amount, its code and what it uses.
func (s *step) key(ctx context.Context, l *lab) (string, error) {
	d, err := digest(ctx, l.root, s.code)
	if err != nil {
		return "", err
	}
	key := s.of + " " + d
	if l.small {
		key = "small " + key
	}
	for _, a := range s.after {
		k, err := a.key(ctx, l)
		if err != nil {
			return "", err
		}
		key += ", " + a.name + " " + k
	}
	return strings.TrimSpace(key), nil
}

func (s *step) make(ctx context.Context, l *lab) error {
	for _, a := range s.after {
		if err := a.make(ctx, l); err != nil {
			return err
		}
	}
	now, err := s.key(ctx, l)
	if err != nil {
		return err
	}
	m, err := s.made(l)
	if err != nil {
		return err
	}
	if m != nil && m.Key == now {
		return nil
	}
	fmt.Printf("  %s\n", s.name)
	// What is there may be half replaced from here on.
	if err := os.Remove(s.file(l)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	began := time.Now()
	l.commands = nil
	if err := s.run(ctx, l); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	b, err := json.Marshal(made{Key: now, Seconds: time.Since(began).Seconds(), Commands: l.commands})
	if err != nil {
		return err
	}
	return os.WriteFile(s.file(l), append(b, '\n'), 0o644)
}
