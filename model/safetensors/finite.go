package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"

	"talf/internal/mapped"
	"talf/model/ggml"
)

// A ValueError names an element that no network can compute with.
type ValueError struct {
	File    string // that holds the tensor
	Tensor  string
	Index   []int   // of the element
	Value   float64 // NaN, ±Inf, or a finite value that the type of weights in memory cannot hold
	Largest float64 // magnitude that is allowed, or 0 if all finite values are
}

func (e *ValueError) Error() string {
	want := "a finite number"
	if e.Largest > 0 && !math.IsNaN(e.Value) && !math.IsInf(e.Value, 0) {
		want = fmt.Sprintf("at most %.6g in magnitude", e.Largest)
	}
	return fmt.Sprintf("%s: tensor %q: element %v is %v, want %s", e.File, e.Tensor, e.Index, e.Value, want)
}

// File returns the path of the file that holds a tensor, or the name of the set.
func (s *Set) File(name string) string {
	if f := s.files[name]; f != "" {
		return f
	}
	return s.Name
}

// scanPiece is the number of bytes that one goroutine looks at before it takes more and gives
// the pages back.
const scanPiece = 1 << 20

// Finite returns a *ValueError for the first element of an F32, F16 or BF16 tensor, or of one in
// blocks, that is not a finite number or is of magnitude limit or more, and nil for tensors of other types. limit is
// +Inf if every finite number is allowed. It looks at every element, at the speed of memory, on
// all processors, and releases the pages that it has seen.
func (s *Set) Finite(name string, limit float32) error {
	t, ok := s.tensors[name]
	if !ok {
		return nil
	}
	if v, made := s.views[name]; made {
		t.Data = v.make()
	}
	// Units of size bytes have elems elements. scan returns the first unwanted element, or −1.
	size, elems, piece := sizes[t.DType], 1, scanPiece
	var scan func([]byte) int
	blocks := ggml.Blocks(t.DType)
	switch bits := math.Float32bits(limit); t.DType {
	case "F32":
		scan = func(b []byte) int { return scan32(b, bits) }
	case "BF16": // rounded up: a bfloat16 reaches limit if its upper half does
		scan = func(b []byte) int { return scan16(b, uint16((bits+0xffff)>>16)) }
	case "F16":
		first := uint16(0x7c00)
		for limit <= 65504 && half(first-1) >= limit { // no caller asks for this, so it may be slow
			first--
		}
		scan = func(b []byte) int { return scan16(b, first) }
	default:
		if blocks == nil {
			return nil
		}
		size, elems, piece = blocks.Size, blocks.Elems, scanPiece/blocks.Size*blocks.Size
		scan = func(b []byte) int { at, _ := blocks.Find(b, limit); return at }
	}
	pieces := (len(t.Data) + piece - 1) / piece
	var next, found atomic.Int64
	found.Store(math.MaxInt64)
	work := func() {
		for {
			i := int(next.Add(1) - 1)
			lo := i * piece
			if i >= pieces || int64(lo/size*elems) > found.Load() {
				return
			}
			hi := min(lo+piece, len(t.Data))
			if at := scan(t.Data[lo:hi]); at >= 0 {
				for at := int64(lo/size*elems + at); ; {
					old := found.Load()
					if old <= at || found.CompareAndSwap(old, at) {
						break
					}
				}
			}
			s.Release(name, lo, hi)
		}
	}
	if n := min(runtime.GOMAXPROCS(0), pieces); n > 1 {
		var all mapped.Group
		for range n {
			all.Go(work)
		}
		all.Wait()
	} else {
		work()
	}
	at := found.Load()
	if at == math.MaxInt64 {
		return nil
	}
	e := &ValueError{File: s.File(name), Tensor: name, Index: make([]int, len(t.Shape))}
	rest := int(at)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		e.Index[i], rest = rest%t.Shape[i], rest/t.Shape[i]
	}
	if order := s.order[name]; order != nil {
		e.Index[0] = slices.Index(order, e.Index[0])
	}
	unit := int(at) / elems
	some := Tensor{DType: t.DType, Shape: []int{elems}, Data: t.Data[unit*size:][:size]}
	if x, err := some.Float32s(); err == nil {
		e.Value = float64(x[int(at)%elems])
	}
	if !math.IsInf(float64(limit), 1) {
		e.Largest = float64(math.Float32frombits(math.Float32bits(limit) - 1))
	}
	return e
}

// scan32 returns the index of the first of the float32 in b whose magnitude, as bits, is at least
// limit, or −1. Infinities are 0x7f800000, and NaNs are more.
func scan32(b []byte, limit uint32) int {
	const sign = 1 << 31
	for i := firstBlock(b, sign*0x0000_0001_0000_0001, uint64(sign-limit)*0x0000_0001_0000_0001); i < len(b); i += 4 {
		if binary.LittleEndian.Uint32(b[i:])&(sign-1) >= limit {
			return i / 4
		}
	}
	return -1
}

// scan16 is scan32 for types of 16 bits.
func scan16(b []byte, limit uint16) int {
	const sign = 1 << 15
	for i := firstBlock(b, sign*0x0001_0001_0001_0001, uint64(sign-limit)*0x0001_0001_0001_0001); i < len(b); i += 2 {
		if binary.LittleEndian.Uint16(b[i:])&(sign-1) >= limit {
			return i / 2
		}
	}
	return -1
}

// firstBlock returns where the first 32 bytes begin in which adding add to the magnitude of an
// element sets its sign bit, one of signs, or where the rest of less than 32 bytes does. add is
// 2³¹−limit, or 2¹⁵−limit, for each element of a word: it carries into the sign bit, and no further.
func firstBlock(b []byte, signs, add uint64) int {
	n := len(b) &^ 31
	for i := 0; i < n; i += 32 {
		x := b[i:][:32]
		hit := (binary.LittleEndian.Uint64(x) &^ signs) + add
		hit |= (binary.LittleEndian.Uint64(x[8:]) &^ signs) + add
		hit |= (binary.LittleEndian.Uint64(x[16:]) &^ signs) + add
		hit |= (binary.LittleEndian.Uint64(x[24:]) &^ signs) + add
		if hit&signs != 0 {
			return i
		}
	}
	return n
}
