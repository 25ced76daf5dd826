package transcode

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"talf/internal/limits"
)

// A batch is a few lines that are being processed.
type batch struct {
	first int // number of its first line, from 1
	lines [][]byte
	done  chan struct{}

	out    []byte
	failed int // number of lines whose answer is an error
	err    error
	bug    any // what f panicked with, and where
}

// A batch ends at this many bytes or lines, or when no further line has arrived yet, so
// that a writer who waits for an answer before writing the next line gets it.
const (
	batchBytes = 256 << 10
	batchLines = 256
)

// Each answers the non-blank lines of r in order, on several goroutines; with 0
// threads, on as many as there are processors. It flushes w whenever no other answer is
// about to follow, so that a program may write a line and wait for its answer. failed
// counts the answers that are errors; errors refer to r by name. Each may return while
// a read of r is still blocked.
func Each(ctx context.Context, name string, r io.Reader, w io.Writer, threads int, f Func) (failed int, err error) {
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	todo, order := make(chan *batch, threads), make(chan *batch, 2*threads)
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil { // of a reader
				ended <- fmt.Errorf("%s: panic: %v\n%s", name, v, debug.Stack())
			}
		}()
		defer close(order)
		defer close(todo)
		ended <- readBatches(name, r, func(b *batch) bool {
			for _, c := range []chan *batch{order, todo} {
				select {
				case c <- b:
				case <-ctx.Done():
					return false
				}
			}
			return true
		})
	}()
	for range threads {
		go func() {
			for b := range todo {
				b.run(ctx, name, f)
				close(b.done)
			}
		}()
	}
	out := bufio.NewWriterSize(w, 1<<16)
	for {
		if len(order) == 0 {
			if err := out.Flush(); err != nil {
				return failed, fmt.Errorf("write: %w", err)
			}
		}
		b, more := receive(ctx, order)
		if !more {
			break
		}
		if _, more := receive(ctx, b.done); more || !b.ended() {
			break
		}
		if b.bug != nil {
			panic(b.bug) // on the caller's goroutine
		}
		failed += b.failed
		if _, err := out.Write(b.out); err != nil {
			return failed, fmt.Errorf("write: %w", err)
		}
		if b.err != nil {
			return failed, errors.Join(out.Flush(), b.err)
		}
	}
	if err := errors.Join(ctx.Err(), out.Flush()); err != nil {
		return failed, err
	}
	return failed, <-ended
}

// receive is a channel receive that stops when ctx is done.
func receive[T any](ctx context.Context, c <-chan T) (v T, more bool) {
	select {
	case v, more = <-c:
	case <-ctx.Done():
	}
	return v, more
}

func (b *batch) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// run answers the lines up to the first invalid one.
func (b *batch) run(ctx context.Context, name string, f Func) {
	defer func() {
		if r := recover(); r != nil {
			b.bug = fmt.Sprintf("%v\n\n%s", r, debug.Stack()) // the caller's own stack does not show where
		}
	}()
	for i, line := range b.lines {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if b.err = ctx.Err(); b.err != nil {
			return
		}
		n := len(b.out)
		out, failed, err := f(b.out, line, b.first+i)
		if err != nil {
			b.out, b.err = out[:n], err
			var wrong lineError
			if errors.As(err, &wrong) {
				b.err = fmt.Errorf("%s, line %d: %w", name, b.first+i, err)
			}
			return
		}
		b.out = append(out, '\n')
		if failed {
			b.failed++
		}
	}
	b.lines = nil
}

// readBatches divides r into batches until emit returns false.
func readBatches(name string, r io.Reader, emit func(*batch) bool) error {
	in := bufio.NewReaderSize(r, batchBytes)
	b := &batch{first: 1, done: make(chan struct{})}
	size := 0
	for {
		line, err := limits.ReadLine(in, limits.PromptBytes)
		if len(line) > 0 {
			b.lines = append(b.lines, line)
			size += len(line)
		}
		wait := err == nil
		if wait {
			ahead, _ := in.Peek(in.Buffered())
			wait = bytes.IndexByte(ahead, '\n') < 0
		}
		if len(b.lines) > 0 && (err != nil || wait || size >= batchBytes || len(b.lines) == batchLines) {
			next := &batch{first: b.first + len(b.lines), done: make(chan struct{})}
			if !emit(b) { // b now belongs to the receiver
				return nil
			}
			b, size = next, 0
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, limits.ErrTooLarge) {
			return fmt.Errorf("%s, line %d: %w", name, b.first+len(b.lines), err)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}
