package safetensors

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// SHA256 returns the hexadecimal SHA-256 of every tensor's name, type, shape and
// bytes, in the order of names.
func (s *Set) SHA256() string {
	h := sha256.New()
	var b []byte
	for _, name := range s.Names() {
		t, _ := s.Tensor(name)
		b = append(b[:0], name...)
		b = append(b, 0)
		b = append(b, t.DType...)
		b = append(b, 0)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(t.Shape)))
		for _, d := range t.Shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(d))
		}
		h.Write(b)
		for lo := 0; lo < len(t.Data); lo += scanPiece { // so that a large tensor never takes memory as a whole
			hi := min(lo+scanPiece, len(t.Data))
			h.Write(t.Data[lo:hi])
			s.Release(name, lo, hi)
		}
		s.Release(name, 0, len(t.Data))
	}
	return hex.EncodeToString(h.Sum(nil))
}
