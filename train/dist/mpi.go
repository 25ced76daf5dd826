//go:build mpi && cgo && unix

package dist

/*
#include "core.h"
*/
import "C"

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"talf/internal/launch"
)

// A World is all ranks of an MPI program, or this process if it was started alone.
type World struct {
	alone   Alone
	rank    int
	size    int // 0: alone
	peers   []peer
	pins    runtime.Pinner // of the memory that operations in progress use
	err     error          // of an operation that could not start
	pending bool
}

// A peer is a rank's process.
type peer struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
}

// frame is the size of the message that every rank sends first: the length of its message and
// the beginning.
const frame = 512

func join(l launch.Place) (*World, error) {
	var rank, size C.int
	if err := mpiError("start MPI", C.talf_mpi_open(&rank, &size)); err != nil {
		return nil, err
	}
	w := &World{rank: int(rank), size: int(size)}
	if w.size != l.Count {
		return nil, fmt.Errorf("%s started %d ranks, but MPI knows %d: was talf built with the mpicc of another MPI?", l.By, l.Count, w.size)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "" // then no rank is known to be on this machine
	}
	msg, err := json.Marshal(peer{host, os.Getpid()})
	if err != nil {
		return nil, err
	}
	all, err := w.Gather(context.Background(), msg)
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		var p peer
		if err := json.Unmarshal(b, &p); err != nil {
			return nil, fmt.Errorf("a rank introduces itself: %w", err)
		}
		w.peers = append(w.peers, p)
	}
	return w, nil
}

// mpiError returns nil if code means success.
func mpiError(what string, code C.int) error {
	if code == 0 {
		return nil
	}
	var text [512]C.char
	C.talf_mpi_error(code, &text[0], C.int(len(text)))
	return fmt.Errorf("%s: %s", what, C.GoString(&text[0]))
}

// Rank returns the process's number, from 0.
func (w *World) Rank() int { return w.rank }

// Size returns the number of ranks.
func (w *World) Size() int { return max(1, w.size) }

// By names what sums: with the number of ranks and their library it decides the order of a sum.
func (w *World) By() string { return "MPI" }

// Close leaves the group once all ranks do.
func (w *World) Close() error {
	if w.size == 0 {
		return nil
	}
	return mpiError("end MPI", C.talf_mpi_close())
}

// Lost returns the ranks on this machine that have ended. Others are unknown.
func (w *World) Lost() (ranks []int) {
	for i, p := range w.peers {
		if p.Host != "" && p.Host == w.peers[w.rank].Host && errors.Is(syscall.Kill(p.PID, 0), syscall.ESRCH) {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// Reduce implements Group. The order of a sum is MPI's, and the same on all ranks.
func (w *World) Reduce(x []float32) {
	if w.size > 0 && len(x) > 0 {
		w.begin("all-reduce", x, func(p *C.float, n C.int) C.int { return C.talf_mpi_reduce(p, n) })
	}
}

func (w *World) begin(what string, x []float32, start func(*C.float, C.int) C.int) {
	if w.err != nil {
		return
	}
	if len(x) > math.MaxInt32 {
		w.err = fmt.Errorf("%s of %d numbers: want at most %d", what, len(x), math.MaxInt32)
		return
	}
	p := unsafe.SliceData(x)
	w.pins.Pin(p)
	w.err = mpiError(what, start((*C.float)(p), C.int(len(x))))
	w.pending = true
}

// Wait implements Group.
func (w *World) Wait(ctx context.Context) error {
	if w.err != nil {
		return w.err
	}
	for w.pending {
		var done C.int
		const slice = 20 * time.Millisecond // after which ctx is asked
		if w.err = mpiError("wait for the other ranks", C.talf_mpi_wait(C.int(slice.Microseconds()), &done)); w.err != nil {
			return w.err
		}
		if done != 0 {
			w.pending = false
			w.pins.Unpin()
		} else if ctx.Err() != nil {
			w.err = context.Cause(ctx)
			return w.err
		}
	}
	return nil
}

// Gather implements Group.
func (w *World) Gather(ctx context.Context, msg []byte) ([][]byte, error) {
	if w.size == 0 {
		return w.alone.Gather(ctx, msg)
	}
	if len(msg) > math.MaxInt32/w.size-4 {
		return nil, fmt.Errorf("message of %d bytes to %d ranks is too long", len(msg), w.size)
	}
	first := binary.LittleEndian.AppendUint32(make([]byte, 0, max(frame, 4+len(msg))), uint32(len(msg)))
	first = append(first, msg...)
	got, err := w.gather(ctx, first[:frame], frame)
	if err != nil {
		return nil, err
	}
	longest := frame
	for r := range w.size {
		longest = max(longest, 4+int(binary.LittleEndian.Uint32(got[r*frame:])))
	}
	if longest > frame {
		if got, err = w.gather(ctx, first, longest); err != nil {
			return nil, err
		}
	}
	out := make([][]byte, w.size)
	for r := range out {
		m := got[r*longest : (r+1)*longest]
		out[r] = m[4 : 4+binary.LittleEndian.Uint32(m)]
	}
	return out, nil
}

// gather gathers n bytes from every rank; msg may be shorter.
func (w *World) gather(ctx context.Context, msg []byte, n int) ([]byte, error) {
	if err := w.Wait(ctx); err != nil {
		return nil, err
	}
	from, to := make([]byte, n), make([]byte, n*w.size)
	copy(from, msg)
	w.pins.Pin(&from[0])
	w.pins.Pin(&to[0])
	w.err = mpiError("gather", C.talf_mpi_gather(unsafe.Pointer(&from[0]), C.int(n), unsafe.Pointer(&to[0])))
	w.pending = true
	return to, w.Wait(ctx)
}

// Broadcast implements Group.
func (w *World) Broadcast(ctx context.Context, x []float32) error {
	if w.size > 0 && len(x) > 0 {
		w.begin("broadcast", x, func(p *C.float, n C.int) C.int { return C.talf_mpi_broadcast(p, n) })
	}
	return w.Wait(ctx)
}
