package datastore

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"testing"

	"talf/internal/limits/costtest"
)

// sealed gives a file the checksums of what it holds.
func sealed(b []byte) []byte {
	if len(b) >= headerSize {
		binary.LittleEndian.PutUint32(b[36:], crc32.Checksum(b[headerSize:], castagnoli))
		binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	}
	return b
}

// use opens a file, checks it and looks up in it. It reports whether that is refused.
func use(b []byte) (refused bool) {
	s, err := Parse("file", b)
	if err != nil {
		return true
	}
	_ = s.Check()
	var next []Next
	for _, text := range [][]int32{{1, 2, 3}, {0}, {5, 5, 5, 5}} {
		next = s.Append(next[:0], s.Longest(text, 1, 4), 9)
	}
	return false
}

func TestMutatedFilesAreCheap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	corpus := [][]byte{build(t, 10, []int32{1, 2, 3, 1, 2, 4}, []int32{9, 9}), build(t, 50, randomText(rng, 3000, 50))}
	n := 2000
	if testing.Short() {
		n = 200
	}
	i, refused := 0, 0
	for b := range costtest.Mutations(1, corpus, n) {
		if i++; i%8 > 0 {
			sealed(b)
		}
		costtest.Check(t, "file "+strconv.Itoa(i), costtest.Default, func(context.Context) {
			if use(b) {
				refused++
			}
		})
	}
	if refused == 0 || refused == n {
		t.Errorf("%d of %d files are refused, want some", refused, n)
	}
}

func FuzzCost(f *testing.F) {
	f.Add(build(f, 10, []int32{1, 2, 3, 1, 2, 4}, []int32{9, 9}))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = sealed(append([]byte(nil), b...))
		costtest.Check(t, "file", costtest.Default, func(context.Context) { use(b) })
	})
}
