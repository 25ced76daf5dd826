package kern

import (
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"
)

// fenced returns two pages of float32 between two inaccessible ones.
func fenced(t *testing.T) []float32 {
	t.Helper()
	size := syscall.Getpagesize()
	m, err := syscall.Mmap(-1, 0, 4*size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	for _, guard := range [][]byte{m[:size], m[3*size:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&m[size])), size/2)
}

// words returns the memory of x as another type.
func words(x []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

func halfWords(x []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))
}

func octets(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// Masked loads and stores must not fault on memory beyond a slice, and no kernel may read it
// otherwise: weights are mapped memory.
func TestKernelsStayInsideTheirSlices(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	pages := make([][]float32, 5)
	for i := range pages {
		pages[i] = fenced(t)
	}
	h := &Adam{Eps: 1}
	for _, c := range Available() {
		f, err := For(c)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 50 {
			for _, atEnd := range []bool{false, true} {
				at := func(i, n int) []float32 {
					p := pages[i]
					if atEnd {
						return p[len(p)-n:]
					}
					return p[:n:n]
				}
				x, y, z, u, v := at(0, n), at(1, n), at(2, n), at(3, n), at(4, n)
				f.Exp(x, y)
				f.Max(x)
				f.ArgMax(x)
				f.Peaks(at(0, n%9), 1, at(1, n%9*Panel), Panel, n%9)
				f.ExpSum(x, y, 0)
				f.ExpTotal(x, 0)
				f.Scale(x, 2)
				f.Add(x, y, z)
				f.Mul(x, y, z)
				f.Axpy(x, 1, y)
				f.Dot(x, y)
				f.SiLUMul(x, y, z)
				f.SiLUMulGrad(x, y, z, u, v)
				f.GELU(x, y)
				f.AdamW(x, y, z, u, h)
				f.Rope(at(0, 2*n), y, z)
				rows, k := 1+n%(f.MaxRows+3), n%13
				f.Gemm(at(0, rows*Panel), Panel, at(1, rows*k), k, 1, at(2, k*Panel), Panel, rows, k, n%2 == 0)
				h := halfWords(at(2, BF16PanelLen(k)/2))
				f.GemmBF16(at(0, rows*Panel), Panel, at(1, rows*k), k, 1, h, rows, k, n%2 == 0)
				f.GemmBF16(at(0, rows*Panel), Panel, at(1, rows*k), 1, rows, h, rows, k, n%2 == 0)
				RoundPairs(words(at(3, (n+1)/2)), y)
				f.GemmPairs(at(0, rows*Panel), Panel, words(at(1, rows*((k+1)/2))), (k+1)/2, h, rows, k, n%2 == 0)
				for planes := 1; planes <= 2; planes++ {
					blocks := n % 3
					rows := 1 + n%9
					q := words(at(1, rows*blocks*Q8ABlockLen))
					f.QuantA(words(at(3, Q8ALen(n))), y, planes)
					f.GemmQ8(at(0, rows*Panel), Panel, q, blocks*Q8ABlockLen, octets(at(2, blocks*Q8BlockLen/4)), rows, blocks, planes, n%2 == 0)
					f.GemmQ4(at(0, rows*Panel), Panel, q, blocks*Q8ABlockLen, octets(at(2, blocks*Q4BlockLen/4)), rows, blocks, planes, n%2 == 0)
					f.GemmQ4K(at(0, rows*Panel), Panel, words(at(1, rows*8*Q8ABlockLen)), 8*Q8ABlockLen, octets(at(2, Q4KBlockLen/4)), rows, 1, planes, n%2 == 0)
					f.GemmQ6K(at(0, rows*Panel), Panel, words(at(1, rows*8*Q8ABlockLen)), 8*Q8ABlockLen, octets(at(2, Q6KBlockLen/4)), rows, 1, planes, n%2 == 0)
				}
			}
		}
	}
	for k := 1; k <= 32; k++ {
		for _, rows := range []int{1, 31, 32} {
			p := pages[0]
			PackRows(pages[1][len(p)-PanelLen(rows, k):], p[len(p)-rows*k:], rows, k, k)
			PackBF16(halfWords(pages[1])[2*len(p)-BF16Len(rows, k):], p[len(p)-rows*k:], rows, k, k)
			if n := Q8Len(rows, k); n <= 4*len(p) {
				PackQ8(octets(pages[1])[4*len(p)-n:], p[len(p)-rows*k:], rows, k, k)
			}
			FromBF16(pages[1][len(p)-rows*k:], octets(pages[0])[4*len(p)-2*rows*k:])
			FromF16(pages[1][len(p)-rows*k:], octets(pages[0])[4*len(p)-2*rows*k:])
			PackCols(pages[1][len(p)-PanelLen(rows, k):], p[len(p)-rows*k:], k, rows, rows)
		}
	}
}
