package net

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// Hash returns a digest of all weights' bits.
func (p *Params) Hash() string {
	h := sha256.New()
	var b []byte
	for _, t := range p.Tensors() {
		t.Pull()
		for at := 0; at < len(t.Data); at += 1 << 14 {
			b = b[:0]
			for _, x := range t.Data[at:min(at+1<<14, len(t.Data))] {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			h.Write(b)
		}
	}
	return fmt.Sprintf("%.12x", h.Sum(nil))
}
