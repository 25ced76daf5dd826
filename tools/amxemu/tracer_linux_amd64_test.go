package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// envProgram turns this test binary into the program that is traced.
const envProgram = "AMXEMU_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if name := os.Getenv(envProgram); name != "" {
		if os.Getenv("AMXEMU") != "1" {
			fmt.Fprintln(os.Stderr, "the environment does not say who is tracing")
			os.Exit(1)
		}
		if err := programs[name](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var programs = map[string]func() error{
	"products": productsProgram,
	"threads":  threadsProgram,
	"status":   func() error { os.Exit(7); return nil },
	"fault": func() error {
		return call(ldtilecfg, func(a *args) { a.cfg, a.p[0] = config(shape{2, 64}), nil }, load0)
	},
	"unconfigured": func() error { return call(nil, func(*args) {}, load0) },
	"illegal":      func() error { return call(nil, func(*args) {}, []byte{0x0f, 0x0b}) },
	"killed": func() error {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	},
}

// traced runs a program under its own tracer and returns its exit status, the tracer's messages,
// and the program's output.
func traced(t *testing.T, name string) (status int, log, stderr string) {
	t.Helper()
	if hasAMX() {
		t.Skip("this processor has AMX: nothing would be emulated")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(envProgram, name)
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var b bytes.Buffer
	tr := &tracer{log: &b, stderr: file}
	status, err = tr.run([]string{exe})
	if err != nil {
		if b.Len() == 0 && strings.Contains(err.Error(), "operation not permitted") {
			t.Skipf("ptrace is refused here: %v", err)
		}
		t.Fatalf("%v\n%s", err, &b)
	}
	said, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return status, b.String(), string(said)
}

func TestProgramsUnderTheTracer(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		log    string
	}{
		{"products", 0, ""},
		{"threads", 0, ""},
		{"status", 7, ""},
		{"fault", 2, "tileloadd cannot read row 0 of tile 0 at 0x0"},
		{"unconfigured", 2, "tileloadd without a configuration"},
		{"illegal", 2, ""},
		{"killed", 128 + int(syscall.SIGKILL), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, log, stderr := traced(t, c.name)
			if status != c.status {
				t.Errorf("status %d, want %d\n%s", status, c.status, stderr)
			}
			if !strings.Contains(log, c.log) || c.log == "" && log != "" {
				t.Errorf("the tracer says %q, want %q", log, c.log)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	exe, err := exec.LookPath("true")
	if err != nil {
		t.Skip("no true here")
	}
	tr := tracer{log: os.Stderr, stderr: os.Stderr}
	if _, err := tr.run([]string{"no such command"}); err == nil {
		t.Error("a missing command runs")
	}
	if hasAMX() {
		t.Skip("this processor has AMX: nothing would be emulated")
	}
	if status, err := tr.run([]string{exe}); err != nil || status != 0 {
		t.Errorf("true ends with %d, %v", status, err)
	}
}

// args is the structure that the code of call finds at RDI.
type args struct {
	cfg    *[64]byte
	p      [3]unsafe.Pointer
	stride uintptr
}

// The instructions of the programs, as the GNU assembler encodes them.
var (
	// mov (%rdi),%rax; ldtilecfg (%rax)
	ldtilecfg = []byte{0x48, 0x8b, 0x07, 0xc4, 0xe2, 0x78, 0x49, 0x00}
	// mov 8(%rdi),%rsi; mov 0x20(%rdi),%rbx; tileloadd (%rsi,%rbx,1),%tmm0
	load0 = []byte{0x48, 0x8b, 0x77, 0x08, 0x48, 0x8b, 0x5f, 0x20, 0xc4, 0xe2, 0x7b, 0x4b, 0x04, 0x1e}
	// mov 0x10(%rdi),%rsi; mov 0x20(%rdi),%rbx; tileloadd (%rsi,%rbx,1),%tmm1
	load1 = []byte{0x48, 0x8b, 0x77, 0x10, 0x48, 0x8b, 0x5f, 0x20, 0xc4, 0xe2, 0x7b, 0x4b, 0x0c, 0x1e}
	// mov 0x18(%rdi),%rsi; mov 0x20(%rdi),%rbx; tileloaddt1 (%rsi,%rbx,1),%tmm2
	load2 = []byte{0x48, 0x8b, 0x77, 0x18, 0x48, 0x8b, 0x5f, 0x20, 0xc4, 0xe2, 0x79, 0x4b, 0x14, 0x1e}
	// mov 8(%rdi),%rsi; mov 0x20(%rdi),%rbx; tilestored %tmm0,(%rsi,%rbx,1)
	store0 = []byte{0x48, 0x8b, 0x77, 0x08, 0x48, 0x8b, 0x5f, 0x20, 0xc4, 0xe2, 0x7a, 0x4b, 0x04, 0x1e}
	// mov (%rdi),%rax; sttilecfg (%rax)
	sttilecfg   = []byte{0x48, 0x8b, 0x07, 0xc4, 0xe2, 0x79, 0x49, 0x00}
	tilezero0   = []byte{0xc4, 0xe2, 0x7b, 0x49, 0xc0}
	tilerelease = []byte{0xc4, 0xe2, 0x78, 0x49, 0xc0}
	// op %tmm2,%tmm1,%tmm0
	products = map[opcode][]byte{
		tdpBF16PS: {0xc4, 0xe2, 0x6a, 0x5c, 0xc1},
		tdpBSSD:   {0xc4, 0xe2, 0x6b, 0x5e, 0xc1},
		tdpBSUD:   {0xc4, 0xe2, 0x6a, 0x5e, 0xc1},
		tdpBUSD:   {0xc4, 0xe2, 0x69, 0x5e, 0xc1},
		tdpBUUD:   {0xc4, 0xe2, 0x68, 0x5e, 0xc1},
	}
)

// compile makes a function from instructions: its argument's address is first put in RDI. They
// do not touch R14, R15, RBP, RSP and X15, which Go keeps.
func compile(codes ...[]byte) (func(*args), error) {
	b := []byte{0x48, 0x89, 0xc7} // mov %rax,%rdi
	for _, c := range codes {
		b = append(b, c...)
	}
	b = append(b, 0xc3)
	m, err := syscall.Mmap(-1, 0, len(b), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	copy(m, b)
	if err := syscall.Mprotect(m, syscall.PROT_READ|syscall.PROT_EXEC); err != nil {
		return nil, err
	}
	entry := &struct{ code *byte }{&m[0]} // a closure without variables
	return *(*func(*args))(unsafe.Pointer(&entry)), nil
}

func call(first []byte, set func(*args), codes ...[]byte) error {
	f, err := compile(append([][]byte{first}, codes...)...)
	if err != nil {
		return err
	}
	a := &args{stride: 64}
	set(a)
	f(a)
	runtime.KeepAlive(a)
	return nil
}

// productsProgram computes with each instruction and compares with the same state computed in
// this process.
func productsProgram() error {
	runtime.LockOSThread() // tiles are the thread's
	var mem [3][tileRows][rowBytes]byte
	n := byte(0)
	for i := range mem {
		for r := range mem[i] {
			for j := range mem[i][r] {
				n = n*5 + 77
				mem[i][r][j] = n
				if j%2 == 1 {
					mem[i][r][j] = 0x3c + n&3 | n&0x80 // a bfloat16 near 1
				}
			}
		}
	}
	cfg := config(shape{5, 28}, shape{5, 44}, shape{11, 28})
	for op, code := range products {
		var s tiles
		if err := s.configure(cfg); err != nil {
			return err
		}
		for i := range mem {
			for r := range s.shape[i].rows {
				copy(s.tile[i][r][:s.shape[i].cols], mem[i][r][:])
			}
		}
		if err := s.execute(inst{op: op, t: 0, a: 1, b: 2}, 0, 0, nil); err != nil {
			return err
		}
		got := mem
		stored := new([64]byte)
		set := func(a *args) {
			a.cfg = cfg
			for i := range got {
				a.p[i] = unsafe.Pointer(&got[i])
			}
		}
		if err := call(ldtilecfg, set, load0, load1, load2, code, store0); err != nil {
			return err
		}
		for r := range got[0] {
			for j := range got[0][r] {
				want := mem[0][r][j]
				if r < 5 && j < 28 {
					want = s.tile[0][r][j]
				}
				if got[0][r][j] != want {
					return fmt.Errorf("%v: byte %d,%d is %d, want %d", op, r, j, got[0][r][j], want)
				}
			}
		}
		if err := call(nil, func(a *args) { a.cfg = stored }, sttilecfg); err != nil {
			return err
		}
		if *stored != *cfg {
			return fmt.Errorf("sttilecfg stores %x, want %x", *stored, *cfg)
		}
		if err := call(tilezero0, set, store0, tilerelease); err != nil {
			return err
		}
		if w := binary.LittleEndian.Uint64(got[0][4][20:]); w != 0 {
			return fmt.Errorf("after tilezero there is %x", w)
		}
		if err := call(nil, func(a *args) { a.cfg = stored }, sttilecfg); err != nil {
			return err
		}
		if *stored != [64]byte{} {
			return fmt.Errorf("sttilecfg stores %x after tilerelease", *stored)
		}
	}
	return nil
}

// threadsProgram holds different tiles on several threads at once, while the
// collector runs and the scheduler sends its signals.
func threadsProgram() error {
	const threads = 6
	errs := make(chan error, threads)
	for id := range threads {
		go func() {
			runtime.LockOSThread() // and so the thread ends with the goroutine
			errs <- holdTiles(id)
		}()
	}
	for range threads {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

func holdTiles(id int) error {
	var mem, back [tileRows][rowBytes]byte
	for r := range mem {
		for j := range mem[r] {
			mem[r][j] = byte(id*31 + r + j)
		}
	}
	sh := shape{1 + id, 4 * (1 + id)}
	set := func(p *[tileRows][rowBytes]byte) func(a *args) {
		return func(a *args) {
			a.cfg = config(sh)
			a.p[0] = unsafe.Pointer(p)
		}
	}
	for range 50 {
		if err := call(ldtilecfg, set(&mem), load0); err != nil {
			return err
		}
		runtime.Gosched()
		runtime.GC()
		back = [tileRows][rowBytes]byte{}
		if err := call(nil, set(&back), store0, tilerelease); err != nil {
			return err
		}
		for r := range back {
			for j := range back[r] {
				want := byte(0)
				if r < sh.rows && j < sh.cols {
					want = mem[r][j]
				}
				if back[r][j] != want {
					return fmt.Errorf("thread %d: byte %d,%d is %d, want %d", id, r, j, back[r][j], want)
				}
			}
		}
	}
	return nil
}
