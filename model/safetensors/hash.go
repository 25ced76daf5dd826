package safetensors

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// SHA256 returns the hexadecimal SHA-256 of every tensor's name, type, shape and
// bytes, in the order of names. watch, unless nil, is called with the bytes that are read, of all; an
// error of it ends the reading.
func (s *Set) SHA256(watch func(done, total int64) error) (string, error) {
	h := sha256.New()
	var b []byte
	var done, total int64
	for _, name := range s.Names() {
		total += int64(s.Size(name))
	}
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
			if done += int64(hi - lo); watch != nil {
				if err := watch(done, total); err != nil {
					return "", err
				}
			}
		}
		s.Release(name, 0, len(t.Data))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
