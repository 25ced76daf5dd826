package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"
)

// A tracer runs one command. Its methods stay on one thread, the only one from which the kernel
// accepts ptrace requests.
type tracer struct {
	log     io.Writer
	stderr  *os.File       // the command's
	threads map[int]*tiles // every thread that has stopped at least once
	count   [opcodes]int
}

// run starts the command and returns its exit status.
func (t *tracer) run(args []string) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{
		Env:   append(os.Environ(), "AMXEMU=1"),
		Files: []uintptr{0, 1, t.stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return 0, fmt.Errorf("cannot start %s under ptrace: %w", path, err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, syscall.WALL, nil); err != nil {
		return 0, fmt.Errorf("wait for %s: %w", path, err)
	}
	if !ws.Stopped() {
		return 0, fmt.Errorf("%s did not stop at its start: status %#x", path, ws)
	}
	const exitKill = 0x100000 // PTRACE_O_EXITKILL
	const options = exitKill | syscall.PTRACE_O_TRACECLONE | syscall.PTRACE_O_TRACEFORK |
		syscall.PTRACE_O_TRACEVFORK | syscall.PTRACE_O_TRACEEXEC
	if err := syscall.PtraceSetOptions(pid, options); err != nil {
		return 0, fmt.Errorf("ptrace options: %w", err)
	}
	t.threads = map[int]*tiles{pid: {}}
	if err := resume(pid, 0); err != nil {
		return 0, err
	}
	for {
		tid, err := syscall.Wait4(-1, &ws, syscall.WALL, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("wait: %w", err)
		case tid == pid && ws.Exited():
			return ws.ExitStatus(), nil
		case tid == pid && ws.Signaled():
			return 128 + int(ws.Signal()), nil
		case !ws.Stopped():
			delete(t.threads, tid)
			continue
		}
		sig, err := t.stopped(tid, ws)
		if err == nil {
			err = resume(tid, sig)
		}
		// A thread may be killed at any moment, by its own process's exit.
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return 0, err
		}
	}
}

func resume(tid int, sig syscall.Signal) error {
	if err := syscall.PtraceCont(tid, int(sig)); err != nil {
		return fmt.Errorf("ptrace continue: %w", err)
	}
	return nil
}

// stopped handles a stop and returns the signal to deliver to the thread.
func (t *tracer) stopped(tid int, ws syscall.WaitStatus) (syscall.Signal, error) {
	sig := ws.StopSignal()
	s, known := t.threads[tid]
	if !known {
		s = &tiles{}
		t.threads[tid] = s
		if sig == syscall.SIGSTOP { // which starts the tracing of a new thread
			return 0, nil
		}
	}
	switch {
	case sig == syscall.SIGTRAP && ws.TrapCause() > 0: // a new thread, or a new program
		if ws.TrapCause() == syscall.PTRACE_EVENT_EXEC {
			*s = tiles{}
		}
		return 0, nil
	case sig == syscall.SIGILL:
		return t.illegal(tid, s)
	}
	return sig, nil
}

// illegal executes the tile instructions at a thread's program counter.
func (t *tracer) illegal(tid int, s *tiles) (syscall.Signal, error) {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
		return 0, fmt.Errorf("ptrace registers: %w", err)
	}
	m := process(tid)
	for n := 0; ; n++ {
		i, ok := decode(m.code(regs.Rip))
		if !ok {
			if n == 0 {
				return syscall.SIGILL, nil
			}
			// The next instruction is left to the processor.
			if err := syscall.PtraceSetRegs(tid, &regs); err != nil {
				return 0, fmt.Errorf("ptrace registers: %w", err)
			}
			return 0, nil
		}
		addr, stride := i.mem.resolve(&regs, i.size)
		if i.op == ldTileCfg || i.op == stTileCfg {
			addr += stride
		}
		if err := s.execute(i, addr, stride, m); err != nil {
			if err := syscall.PtraceSetRegs(tid, &regs); err != nil {
				return 0, fmt.Errorf("ptrace registers: %w", err)
			}
			return t.raise(tid, regs.Rip, err)
		}
		t.count[i.op]++
		regs.Rip += uint64(i.size)
	}
}

// raise returns the signal of a fault, after setting the details that a handler reads.
func (t *tracer) raise(tid int, pc uint64, err error) (syscall.Signal, error) {
	var f *fault
	if !errors.As(err, &f) {
		return 0, err
	}
	fmt.Fprintf(t.log, "amxemu: thread %d at %#x: %v\n", tid, pc, f)
	if f.kind == undefined {
		return syscall.SIGILL, nil
	}
	const (
		ptraceSetSigInfo = 0x4203
		segvMapErr       = 1
		siKernel         = 0x80
	)
	var info [128]byte // signo, errno, code, padding, address
	binary.LittleEndian.PutUint32(info[0:], uint32(syscall.SIGSEGV))
	binary.LittleEndian.PutUint32(info[8:], siKernel)
	if f.kind == pageFault {
		binary.LittleEndian.PutUint32(info[8:], segvMapErr)
		binary.LittleEndian.PutUint64(info[16:], f.addr)
	}
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, ptraceSetSigInfo, uintptr(tid), 0,
		uintptr(unsafe.Pointer(&info)), 0, 0); e != 0 {
		return 0, fmt.Errorf("ptrace signal: %w", e)
	}
	return syscall.SIGSEGV, nil
}

// resolve returns an operand's address without the index, and the scaled index.
func (o operand) resolve(r *syscall.PtraceRegs, size int) (addr, stride uint64) {
	reg := [...]uint64{
		r.Rax, r.Rcx, r.Rdx, r.Rbx, r.Rsp, r.Rbp, r.Rsi, r.Rdi,
		r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15,
	}
	addr = uint64(int64(o.disp))
	switch o.base {
	case none:
	case rip:
		addr += r.Rip + uint64(size)
	default:
		addr += reg[o.base]
	}
	if o.index != none {
		stride = reg[o.index] << o.shift
	}
	return addr, stride
}

// A process is the memory of the process that a thread belongs to.
type process int

const (
	sysProcessVMReadv  = 310
	sysProcessVMWritev = 311
)

func (p process) read(addr, stride uint64, rows [][]byte) int {
	return p.move(sysProcessVMReadv, addr, stride, rows)
}

func (p process) write(addr, stride uint64, rows [][]byte) int {
	return p.move(sysProcessVMWritev, addr, stride, rows)
}

func (p process) move(call uintptr, addr, stride uint64, rows [][]byte) int {
	type iovec struct {
		base uintptr
		len  uint64
	}
	var local [tileRows]syscall.Iovec
	var remote [tileRows]iovec
	for i, row := range rows {
		local[i] = syscall.Iovec{Base: &row[0], Len: uint64(len(row))}
		remote[i] = iovec{uintptr(addr + uint64(i)*stride), uint64(len(row))}
	}
	n, _, e := syscall.Syscall6(call, uintptr(p), uintptr(unsafe.Pointer(&local)), uintptr(len(rows)),
		uintptr(unsafe.Pointer(&remote)), uintptr(len(rows)), 0)
	if e != 0 {
		return 0
	}
	return int(n) / len(rows[0])
}

// code returns up to maxSize bytes at addr, fewer before the end of a mapping.
func (p process) code(addr uint64) []byte {
	var b [maxSize]byte
	for n := maxSize; n > 0; n-- {
		if p.read(addr, 0, [][]byte{b[:n]}) == 1 {
			return b[:n]
		}
	}
	return nil
}
