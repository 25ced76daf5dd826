package gsm10m

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
)

// Weights are stored as gzip of the file's bytes in another order: the header of the safetensors
// file as it is, the exponents of all bfloat16 values, then their signs and fractions, a byte of
// each per value. Exponents of trained weights take few values and shrink to 2.6 bits; signs and
// fractions are noise. That saves a third, where gzip of the file itself saves a fifth.

// pack returns what unpack reads. file is a safetensors file of bfloat16 tensors alone.
func pack(file []byte) ([]byte, error) {
	at, err := data(file)
	if err != nil {
		return nil, err
	}
	n := (len(file) - at) / 2
	planes := make([]byte, len(file))
	copy(planes, file[:at])
	exponents, rest := planes[at:at+n], planes[at+n:]
	for i := range n {
		v := binary.LittleEndian.Uint16(file[at+2*i:])
		exponents[i] = byte(v >> 7)
		rest[i] = byte(v>>8)&0x80 | byte(v)&0x7f
	}
	var out bytes.Buffer
	// Matches between distant values are chance; codes for single bytes alone are shorter.
	for _, part := range []struct {
		bytes []byte
		level int
	}{{planes[:at], gzip.BestCompression}, {exponents, gzip.HuffmanOnly}, {rest, gzip.HuffmanOnly}} {
		z, err := gzip.NewWriterLevel(&out, part.level) // one member of the file each
		if err != nil {
			return nil, err
		}
		if _, err := z.Write(part.bytes); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// unpack restores the file that pack was given.
func unpack(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("packed weights: %w", err)
	}
	planes, err := io.ReadAll(z) // gzip's checksums show that it is what was packed
	if err != nil {
		return nil, fmt.Errorf("packed weights: %w", err)
	}
	at, err := data(planes)
	if err != nil {
		return nil, err
	}
	n := (len(planes) - at) / 2
	file := make([]byte, len(planes))
	copy(file, planes[:at])
	exponents, rest := planes[at:at+n], planes[at+n:]
	for i, e := range exponents {
		binary.LittleEndian.PutUint16(file[at+2*i:], uint16(rest[i]&0x80)<<8|uint16(e)<<7|uint16(rest[i]&0x7f))
	}
	return file, nil
}

// data returns where the values of a safetensors file begin.
func data(file []byte) (int, error) {
	if len(file) < 8 {
		return 0, fmt.Errorf("packed weights: %d bytes, want a safetensors file", len(file))
	}
	n := binary.LittleEndian.Uint64(file)
	if n > uint64(len(file)-8) || (uint64(len(file))-n)%2 != 0 {
		return 0, fmt.Errorf("packed weights: a header of %d bytes in a file of %d, want a safetensors file of 16-bit values", n, len(file))
	}
	return 8 + int(n), nil
}
