// Package compact measures values of Thrift's compact protocol before anything decodes them.
package compact

import (
	"encoding/binary"
	"errors"
	"fmt"

	"talf/internal/limits"
)

// The wire types of Thrift's compact protocol.
const (
	thriftStop = iota
	thriftTrue
	thriftFalse
	thriftI8
	thriftI16
	thriftI32
	thriftI64
	thriftDouble
	thriftBinary
	thriftList
	thriftSet
	thriftMap
	thriftStruct
)

// maxThrift is the deepest nesting of structures and lists. Parquet's go to 6.
const maxThrift = 16

// Bytes charged for what a decoder makes of an element of a list: at least as many as
// parquet-go takes for a column chunk, its largest structure, and for what it derives
// from it.
const (
	thriftStructBytes = 1024
	thriftValueBytes  = 32 // and the bytes of a text
)

// A walker reads values of Thrift's compact protocol without decoding them: the metadata
// of a Parquet file. A decoder allocates lists by the lengths that the file claims and
// follows any nesting. What Walk has accepted is complete: no length exceeds the bytes
// that are there, and its memory is charged.
type walker struct {
	b  []byte
	at int
	m  *limits.Meter // nil: the caller decodes no lists
}

var errThriftShort = errors.New("it ends too early")

// Walk reads the structure that b begins with and returns its length.
func Walk(b []byte, m *limits.Meter) (int, error) {
	w := walker{b: b, m: m}
	if err := w.structure(0); err != nil {
		return 0, fmt.Errorf("metadata, byte %d: %w", w.at, err)
	}
	return w.at, nil
}

func (w *walker) skip(n uint64) error {
	if n > uint64(len(w.b)-w.at) {
		return errThriftShort
	}
	w.at += int(n)
	return nil
}

func (w *walker) byte() (byte, error) {
	if w.at == len(w.b) {
		return 0, errThriftShort
	}
	w.at++
	return w.b[w.at-1], nil
}

func (w *walker) varint() (uint64, error) {
	u, n := binary.Uvarint(w.b[w.at:])
	if n <= 0 {
		return 0, errThriftShort
	}
	w.at += n
	return u, nil
}

func (w *walker) structure(depth int) error {
	if depth > maxThrift {
		return fmt.Errorf("nested deeper than %d levels", maxThrift)
	}
	for {
		b, err := w.byte()
		if err != nil || b == thriftStop {
			return err
		}
		if b>>4 == 0 { // the field's number follows
			if _, err := w.varint(); err != nil {
				return err
			}
		}
		switch b & 15 {
		case thriftTrue, thriftFalse: // the type is the value
		default:
			if err := w.value(b&15, depth+1); err != nil {
				return err
			}
		}
	}
}

func (w *walker) value(kind byte, depth int) error {
	switch kind {
	case thriftTrue, thriftFalse, thriftI8:
		return w.skip(1)
	case thriftI16, thriftI32, thriftI64:
		_, err := w.varint()
		return err
	case thriftDouble:
		return w.skip(8)
	case thriftBinary:
		n, err := w.varint()
		if err != nil {
			return err
		}
		if err := w.m.Alloc(int(min(n, uint64(len(w.b))))); err != nil {
			return err
		}
		return w.skip(n)
	case thriftList, thriftSet:
		head, err := w.byte()
		if err != nil {
			return err
		}
		n := uint64(head >> 4)
		if n == 15 {
			if n, err = w.varint(); err != nil {
				return err
			}
		}
		return w.items(n, depth, head&15)
	case thriftMap:
		n, err := w.varint()
		if err != nil || n == 0 {
			return err
		}
		kinds, err := w.byte()
		if err != nil {
			return err
		}
		return w.items(n, depth, kinds>>4, kinds&15)
	case thriftStruct:
		return w.structure(depth)
	}
	return fmt.Errorf("type %d, want 1..%d", kind, thriftStruct)
}

// items reads n elements, each of one value of every kind.
func (w *walker) items(n uint64, depth int, kinds ...byte) error {
	if depth > maxThrift {
		return fmt.Errorf("nested deeper than %d levels", maxThrift)
	}
	size := 0
	for _, k := range kinds {
		if size += thriftValueBytes; k == thriftStruct {
			size += thriftStructBytes
		}
	}
	// An element takes at least one byte.
	if left := len(w.b) - w.at; n > uint64(left) {
		return fmt.Errorf("a list of %d elements in %d bytes", n, left)
	}
	if err := w.m.Alloc(int(n) * size); err != nil {
		return err
	}
	for range n {
		for _, k := range kinds {
			if err := w.value(k, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
