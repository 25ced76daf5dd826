// Package mapped opens files as memory-mapped bytes, if the system can map them.
//
// A mapped file can lose its bytes while they are in use: another program writes it anew in place,
// a disk fails, a network file system goes away. Reading a byte that is gone raises SIGBUS, which
// ends a Go process, unless the goroutine has asked for a panic instead. So the rule is: mapped
// bytes are read under Guard, or by goroutines that pass their panics on to a guarded one: those of
// a Group, and the workers of compute devices. Commands run under
// a Guard as a whole; libraries guard what loads and looks up, so that they return errors.
package mapped

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A FaultError says that bytes of a mapped file could not be read.
type FaultError struct{ Path string }

func (e *FaultError) Error() string {
	return fmt.Sprintf("%s: its bytes could not be read while it was in use: it was cut short or rewritten, or its disk failed", e.Path)
}

// Guard makes faults in mapped files errors, until the returned function runs, which must be
// deferred:
//
//	func Load(path string) (err error) {
//		defer mapped.Guard(&err)()
//
// All other panics go on. It holds for the goroutine that calls it.
func Guard(err *error) (done func()) {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if v := recover(); v != nil {
			fault := Fault(v)
			if fault == nil {
				panic(v)
			}
			*err = fault
		}
	}
}

// Fault returns the error of a recovered panic if it is a fault in a mapped file, or such an error, otherwise nil.
func Fault(v any) error {
	if e, ok := v.(*FaultError); ok {
		return e
	}
	at, ok := v.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		return nil
	}
	known.Lock()
	defer known.Unlock()
	for _, m := range known.live {
		if m.has(at.Addr()) {
			return &FaultError{m.path}
		}
	}
	// What a function defers closes its files before a Guard further out hears of the fault. But
	// a closed file may also be read by mistake, so its bytes must be missing.
	for _, m := range known.closed {
		if m.has(at.Addr()) && m.lacks() {
			return &FaultError{m.path}
		}
	}
	return nil
}

// A Group is goroutines that read mapped files. Its zero value is ready for use.
type Group struct {
	wg     sync.WaitGroup
	failed atomic.Pointer[any]
}

// Go runs f on a goroutine.
func (g *Group) Go(f func()) {
	g.wg.Go(func() {
		debug.SetPanicOnFault(true)
		defer func() {
			if v := recover(); v != nil {
				g.failed.CompareAndSwap(nil, &v)
			}
		}()
		f()
	})
}

// Wait waits for the goroutines. If one panicked, Wait panics with the same value.
func (g *Group) Wait() {
	g.wg.Wait()
	if v := g.failed.Load(); v != nil {
		panic(*v)
	}
}

// A mapping is a file that is or was mapped.
type mapping struct {
	path string
	at   uintptr
	n    int // bytes
}

func mappingOf(path string, b []byte) mapping {
	return mapping{path, uintptr(unsafe.Pointer(unsafe.SliceData(b))), len(b)}
}

func (m *mapping) has(at uintptr) bool { return at >= m.at && at-m.at < uintptr(m.n) }

// lacks reports whether the file is shorter than it was, or cannot be looked at.
func (m *mapping) lacks() bool {
	info, err := os.Stat(m.path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // the bytes of a removed file stay
	}
	return info.Size() < int64(m.n)
}

// maxClosed bounds the closed files that are remembered. A model has up to some two hundred.
const maxClosed = 512

// known lists the mappings, because a fault tells only an address.
var known struct {
	sync.Mutex
	live, closed []mapping
}

func add(m mapping) {
	known.Lock()
	defer known.Unlock()
	known.live = append(known.live, m)
	known.closed = slices.DeleteFunc(known.closed, func(x mapping) bool { return m.has(x.at) || x.has(m.at) })
}

func remove(m mapping) {
	known.Lock()
	defer known.Unlock()
	known.live = slices.DeleteFunc(known.live, func(x mapping) bool { return x == m })
	if len(known.closed) == maxClosed {
		known.closed = slices.Delete(known.closed, 0, 1)
	}
	known.closed = append(known.closed, m)
}
