package durable

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// An ending writer ends a context with its second piece.
type ending struct {
	bytes.Buffer
	pieces int
	end    context.CancelFunc
}

func (e *ending) Write(b []byte) (int, error) {
	if e.pieces++; e.pieces == 2 {
		e.end()
	}
	return e.Buffer.Write(b)
}

func TestAWriterEndsWithItsContext(t *testing.T) {
	data := make([]byte, 3*piece+5)
	for i := range data {
		data[i] = byte(i % 251)
	}
	var whole bytes.Buffer
	if n, err := Until(t.Context(), &whole).Write(data); n != len(data) || err != nil || !bytes.Equal(whole.Bytes(), data) {
		t.Errorf("wrote %d bytes of %d: %v", n, len(data), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &ending{end: cancel}
	if n, err := Until(ctx, w).Write(data); !errors.Is(err, context.Canceled) || n != 2*piece || w.pieces != 2 {
		t.Errorf("wrote %d bytes in %d pieces: %v, want two pieces", n, w.pieces, err)
	}
}
