package computetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"talf/compute"
)

func rowsAreCopied(b *bench) {
	const v1, v2, w = 60, 37, 21
	// Values that every element type holds exactly.
	tab := make([]float32, (v1+v2)*w)
	for i := range tab {
		tab[i] = float32(b.r.IntN(255)-127) / 16
	}
	for _, typ := range []compute.DType{compute.F32, compute.F16, compute.BF16} {
		table, err := b.dev.Pack(compute.F32, matrix(tab[:v1*w], v1, w, typ), matrix(tab[v1*w:], v2, w, typ))
		if err != nil {
			b.Fatal(err)
		}
		ids := []int32{0, 96, 59, 60, 31, 32, 5, 5}
		dst := b.alloc(compute.F32, len(ids)+1, w+4)
		b.q.Embed(dst, 3, table, ids)
		got := b.read(dst, (len(ids)+1)*(w+4))
		want := make([]float32, len(got))
		for r, id := range ids {
			copy(want[r*(w+4)+3:], tab[int(id)*w:][:w])
		}
		b.same("embedding rows of "+typ.String(), got, want)
	}
	src := b.buffer(tab, v1+v2, w)
	dst := b.alloc(compute.F32, 7, w+2)
	b.q.Gather(dst, 2, 1, src, []int32{90, 0, 3})
	want := make([]float32, 7*(w+2))
	for i, r := range []int{90, 0, 3} {
		copy(want[(2+i)*(w+2)+1:], tab[r*w:][:w])
	}
	b.same("gathered rows", b.read(dst, len(want)), want)

	// Write and Read of integers, from an offset.
	ib := b.alloc(compute.I32, 5)
	b.q.Write(ib, []int32{1, 2, 3, 4, 5})
	got := make([]int32, 2)
	b.q.Read(got, ib, 3)
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	if got[0] != 4 || got[1] != 5 {
		b.Fatalf("read %v, want [4 5]", got)
	}
}

func packRefuses(b *bench) {
	ok := matrix(b.random(6), 2, 3, compute.F32)
	short := ok
	short.Data = short.Data[:20]
	for name, parts := range map[string][]compute.Matrix{
		"no matrix":         {},
		"missing bytes":     {short},
		"differing columns": {ok, matrix(b.random(4), 2, 2, compute.F32)},
		"integers":          {{Rows: 2, Cols: 3, Type: compute.I32, Data: ok.Data}},
		"no rows":           {{Rows: 0, Cols: 3, Type: compute.F32}},
	} {
		if _, err := b.dev.Pack(compute.F32, parts...); err == nil {
			b.Errorf("Pack accepts %s", name)
		}
	}
	if _, err := b.dev.Alloc(compute.F32, 2, -1); err == nil {
		b.Error("Alloc accepts a negative size")
	}
	if _, err := b.dev.NewKV(compute.KVConfig{Layers: 1, KVHeads: 0, HeadDim: 8}); err == nil {
		b.Error("NewKV accepts no heads")
	}
}

func normRef(x, w []float64, eps float64) []float64 {
	h := len(w)
	y := make([]float64, len(x))
	for r := 0; r < len(x); r += h {
		ss := 0.0
		for _, v := range x[r : r+h] {
			ss += v * v
		}
		inv := 1 / math.Sqrt(ss/float64(h)+eps)
		for i := range h {
			y[r+i] = x[r+i] * inv * w[i]
		}
	}
	return y
}

func swigluRef(gu []float64, f int) []float64 {
	var y []float64
	for r := 0; r < len(gu); r += 2 * f {
		for i := range f {
			g := gu[r+i]
			y = append(y, g/(1+math.Exp(-g))*gu[r+f+i])
		}
	}
	return y
}

func pointwiseAgrees(b *bench) {
	for _, h := range []int{1, 20, 64, 97, 600} {
		for _, n := range []int{1, 5, 40} {
			x, w := b.random(n*h), b.random(h)
			dst, xb := b.alloc(compute.F32, n, h), b.buffer(x, n, h)
			norm := &compute.Norm{Weight: b.buffer(w, h), Eps: 1e-5}
			b.q.Norm(dst, xb, norm, n)
			got := b.read(dst, n*h)
			b.near("Norm", got, normRef(wide(x), wide(w), float64(float32(1e-5))), 2e-6)
			b.q.Norm(xb, xb, norm, n)
			b.same("Norm in place", b.read(xb, n*h), got)
			one := b.alloc(compute.F32, 1, h)
			b.q.Norm(one, b.buffer(x[(n-1)*h:], 1, h), norm, 1)
			b.same("Norm of one row", b.read(one, h), got[(n-1)*h:])

			gu := b.random(2 * n * h)
			dst = b.alloc(compute.F32, n, h)
			b.q.SwiGLU(dst, b.buffer(gu, n, 2*h), n)
			got = b.read(dst, n*h)
			b.near("SwiGLU", got, swigluRef(wide(gu), h), 2e-6)
			b.q.SwiGLU(one, b.buffer(gu[2*(n-1)*h:], 1, 2*h), 1)
			b.same("SwiGLU of one row", b.read(one, h), got[(n-1)*h:])
		}
	}
}

func topKAgrees(b *bench) {
	for _, v := range []int{5, 97, 512, 5000} {
		for _, k := range []int{1, 4, 5} {
			const n = 4
			x := b.random(n * v)
			for i := range x {
				x[i] = float32(math.Round(float64(x[i])*4)) / 4 // ties
			}
			if v > 4000 {
				x[4999] = 30 // a late and large one
			}
			ids, logp := b.alloc(compute.I32, n, k), b.alloc(compute.F32, n, k)
			b.q.TopK(ids, logp, b.buffer(x, n, v), k, n)
			gotID := make([]int32, n*k)
			b.q.Read(gotID, ids, 0)
			gotP := b.read(logp, n*k)
			want := make([]float64, 0, n*k)
			for r := range n {
				row := x[r*v:][:v]
				sum := 0.0
				for _, l := range row {
					sum += math.Exp(float64(l))
				}
				used := make([]bool, v)
				for i := range k {
					best := -1
					for j, l := range row {
						if !used[j] && (best < 0 || l > row[best]) {
							best = j
						}
					}
					used[best] = true
					if gotID[r*k+i] != int32(best) {
						b.Fatalf("row %d of %d logits: choice %d is %d, want %d", r, v, i, gotID[r*k+i], best)
					}
					want = append(want, float64(row[best])-math.Log(sum))
				}
			}
			b.near("log-probabilities", gotP, want, 1e-6)
		}
	}
	// Many of many; −∞, whose rank is that of its id; rows apart, so that none borrows another's.
	const v, k = 5000, 2500
	x := make([]float32, 2*v)
	for i := range x[:v] {
		x[i] = float32(-i % 1250)
		x[v+i] = float32(math.Inf(-1))
	}
	x[v+4100], x[v+3], x[v+2049] = 1, 2, 1
	ids, logp := b.alloc(compute.I32, 2, k), b.alloc(compute.F32, 2, k)
	b.q.TopK(ids, logp, b.buffer(x, 2, v), k, 2)
	got := make([]int32, 2*k)
	b.q.Read(got, ids, 0)
	gotP := b.read(logp, 2*k)
	sum := 0.0
	for i := range 1250 {
		sum += 4 * math.Exp(float64(-i))
	}
	for i := range k {
		if want := int32(i%4*1250 + i/4); got[i] != want {
			b.Fatalf("choice %d of %d is %d, want %d", i, k, got[i], want)
		}
		if want := float64(-(i / 4)) - math.Log(sum); math.Abs(float64(gotP[i])-want) > 1e-6*max(1, -want) {
			b.Fatalf("log-probability %d of %d is %v, want %v", i, k, gotP[i], want)
		}
	}
	if !slices.Equal(got[k:][:6], []int32{3, 2049, 4100, 0, 1, 2}) {
		b.Fatalf("choices beside −∞: %v", got[k:][:6])
	}
	all := math.Log(math.Exp(2) + 2*math.Exp(1))
	b.near("log-probabilities beside −∞", gotP[k:][:3], []float64{2 - all, 1 - all, 1 - all}, 1e-6)
	if !math.IsInf(float64(gotP[k+3]), -1) {
		b.Fatalf("the log-probability of −∞ is %v", gotP[k+3])
	}
}

// peaksAgree compares a Peaker with Linear and TopK, bit for bit.
func peaksAgree(b *bench) {
	p := b.q.Abilities().Peaks
	if p == nil {
		return
	}
	for _, s := range []struct{ n, v, in int }{{1, 32, 8}, {3, 5, 3}, {5, 40, 2}, {9, 97, 16}, {17, 3000, 4}, {130, 333, 12}, {2, 5000, 1}} {
		w := b.random(s.v * s.in)
		for i := range w {
			w[i] = float32(math.Round(float64(w[i]) * 2)) // ties
		}
		x := b.random(s.n * s.in)
		for i := range x {
			x[i] = float32(math.Round(float64(x[i]) * 2))
		}
		l := &compute.Linear{W: b.weight(w, s.v, s.in)}
		if s.n%2 == 1 {
			bias := b.random(s.v)
			for i := range bias { // some rows have few numbers, or none
				switch odd := b.r.IntN(8); {
				case s.n == 5, s.n == 9 && (odd < 3 || i%compute.PeakLen == 0), s.n == 17 && i > 9 && odd > 0:
					bias[i] = float32(math.NaN())
				case s.n == 3, s.n == 9 && odd < 6, s.n == 17 && i > 4:
					bias[i] = float32(math.Inf(-1))
				}
			}
			l.Bias = b.buffer(bias, s.v)
		}
		in, want, got := b.buffer(x, s.n, s.in), b.alloc(compute.F32, s.n, s.v), b.alloc(compute.F32, s.n, s.v)
		np := (s.v + compute.PeakLen - 1) / compute.PeakLen
		peaks := b.alloc(compute.F32, s.n, np)
		b.q.Linear(want, in, l, compute.Store, s.n)
		p.LinearPeaks(got, peaks, in, l, s.n)
		rows := b.read(want, s.n*s.v)
		b.same(fmt.Sprintf("%d rows of %d outputs", s.n, s.v), b.read(got, s.n*s.v), rows)
		var most []float32
		for r := range s.n {
			for i := 0; i < s.v; i += compute.PeakLen {
				top := float32(math.Inf(-1))
				for _, v := range rows[r*s.v:][i:min(i+compute.PeakLen, s.v)] {
					if v > top {
						top = v
					}
				}
				most = append(most, top)
			}
		}
		b.same(fmt.Sprintf("peaks of %d rows of %d outputs", s.n, s.v), b.read(peaks, s.n*np), most)
		for _, k := range []int{1, 2, 10, 40, min(s.v, 100)} {
			if k > s.v {
				continue
			}
			ids, logp := b.alloc(compute.I32, s.n, k), b.alloc(compute.F32, s.n, k)
			b.q.TopK(ids, logp, want, k, s.n)
			wantID, wantP := make([]int32, s.n*k), b.read(logp, s.n*k)
			b.q.Read(wantID, ids, 0)
			if best := sorted(rows, s.v, k); !slices.Equal(wantID, best) {
				b.Fatalf("TopK of %d of %d outputs: %v, want %v", k, s.v, wantID, best)
			}
			for row := range min(3, s.n) {
				n := s.n - row
				for _, values := range []compute.Buffer{b.alloc(compute.F32, n, k), nil} {
					ids := b.alloc(compute.I32, n, k)
					p.TopPeaks(ids, values, got, peaks, row, k, n)
					gotID := make([]int32, n*k)
					b.q.Read(gotID, ids, 0)
					if !slices.Equal(gotID, wantID[row*k:]) {
						b.Fatalf("%d of %d outputs of rows from %d: %v, want %v", k, s.v, row, gotID, wantID[row*k:])
					}
					if values != nil {
						b.same("their log-probabilities", b.read(values, n*k), wantP[row*k:])
					}
				}
			}
		}
	}
}

// sorted returns the k largest of each row of v elements, ties to the lower index
// and NaNs last.
func sorted(rows []float32, v, k int) (ids []int32) {
	for ; len(rows) > 0; rows = rows[v:] {
		all := make([]int32, v)
		for i := range all {
			all[i] = int32(i)
		}
		slices.SortStableFunc(all, func(i, j int32) int { return cmp.Compare(rows[j], rows[i]) })
		ids = append(ids, all[:k]...)
	}
	return ids
}
