package durable

import (
	"context"
	"io"
	"slices"
)

// piece is how many bytes are written between two looks at a context: a disk takes them in a fraction of a second.
const piece = 4 << 20

// Until returns a writer to w that writes long data in pieces, and fails with ctx's error once ctx has ended.
func Until(ctx context.Context, w io.Writer) io.Writer { return &untilWriter{ctx, w} }

type untilWriter struct {
	ctx context.Context
	w   io.Writer
}

func (u *untilWriter) Write(b []byte) (n int, err error) {
	for part := range slices.Chunk(b, piece) {
		if err := u.ctx.Err(); err != nil {
			return n, err
		}
		k, err := u.w.Write(part)
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}
