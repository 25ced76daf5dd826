package model_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/modeltest"
	"talf/tree"
)

// dtypes are the storage types of weights.
var dtypes = []compute.DType{compute.F32, compute.BF16, compute.BF16DP, compute.Q8}

// oracleClass returns the class whose bits class must have for weights of a type: with
// bfloat16, tiles have bits of their own.
func oracleClass(class kern.Class, dt compute.DType) kern.Class {
	if class == kern.AMX && dt == compute.BF16 {
		return class
	}
	return kern.Portable
}

// TestBatchesOfTreesHaveTheBitsOfPlainDecoding runs batches of 1 to 8 sequences, each
// with its own tree, one of them of 256 nodes. It does so on every class, with several
// thread counts and types of weights, in slots that other sequences left in disorder.
// It compares nodes with plain decoding, token by token, on another device.
func TestBatchesOfTreesHaveTheBitsOfPlainDecoding(t *testing.T) {
	c := modeltest.Default()
	c.MaxPos = 400
	dir := modeltest.Random(t, c, 2)
	for _, dt := range dtypes {
		for _, class := range classes() {
			threads := []int{1, 2, 3}
			if testing.Short() || class == kern.Portable {
				threads = threads[2:]
			}
			for _, n := range threads {
				t.Run(fmt.Sprintf("%v/%v/%d threads", dt, class, n), func(t *testing.T) {
					plain := load(t, dir, device(t, oracleClass(class, dt), 1), model.Options{DType: dt, MaxRows: 1})
					m := load(t, dir, device(t, class, n), model.Options{DType: dt, MaxRows: 512})
					batchesAgree(t, m, plain, uint64(n))
				})
			}
		}
	}
}

func batchesAgree(t *testing.T, m, plain *model.Model, seed uint64) {
	ctx := context.Background()
	v := m.Spec().Vocab
	r := rand.New(rand.NewPCG(seed, 2))
	tokens := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = r.Int32N(int32(v))
		}
		return ids
	}
	// Sequences that come and go leave free blocks in random order.
	var gone []*model.Seq
	for range 6 {
		s := m.NewSeq()
		must[*model.Output](t)(s.Append(ctx, tokens(1+r.IntN(100)), nil, model.WantNone))
		gone = append(gone, s)
	}
	r.Shuffle(len(gone), func(i, j int) { gone[i], gone[j] = gone[j], gone[i] })
	for _, s := range gone {
		s.Close()
	}
	sizes := []int{1, 3, 8}
	if testing.Short() {
		sizes = sizes[2:]
	}
	row, want := make([]float32, v), make([]float32, v)
	for _, size := range sizes {
		var batch []model.Segment
		var seqs []*model.Seq
		var prefixes [][]int32
		for i := range size {
			s, ids := m.NewSeq(), tokens(1+r.IntN(90))
			if i%2 == 1 { // starts from another sequence's prefix
				n := 1 + r.IntN(len(prefixes[i-1]))
				s.Close()
				s = seqs[i-1].Fork()
				s.Truncate(n)
				must[*model.Output](t)(s.Append(ctx, ids, nil, model.WantNone))
				ids = append(append([]int32{}, prefixes[i-1][:n]...), ids...)
			} else {
				for at := 0; at < len(ids); { // in uneven chunks
					n := min(1+r.IntN(40), len(ids)-at)
					must[*model.Output](t)(s.Append(ctx, ids[at:at+n], nil, model.WantNone))
					at += n
				}
			}
			seqs, prefixes = append(seqs, s), append(prefixes, ids)
		}
		for i, s := range seqs {
			nodes := 1 + r.IntN(60)
			if i == size-1 {
				nodes = 256
			}
			batch = append(batch, model.Segment{Rows: s.Branch(s.Len()), Tree: randomTree(r, v, nodes), Want: model.WantAll})
		}
		o := must[*model.Output](t)(m.Forward(ctx, batch))
		for i, g := range batch {
			// The last node and some others. The path to each one runs token by token.
			for _, n := range []int{g.Tree.Len() - 1, r.IntN(g.Tree.Len()), r.IntN(g.Tree.Len())} {
				o.ReadLogits(row, o.LogitsRow(i, n))
				decode(t, plain, prefixes[i], g.Tree, n, want)
				if err := sameBits(row, want); err != nil {
					t.Fatalf("batch of %d, sequence %d of %d tokens, node %d of %d: %v", size, i, len(prefixes[i]), n, g.Tree.Len(), err)
				}
			}
		}
		for i, s := range seqs {
			batch[i].Rows.Drop()
			s.Close()
		}
	}
}

// decode puts the logits of node n of tr, after prefix, into row, by plain decoding.
func decode(t *testing.T, m *model.Model, prefix []int32, tr *tree.Tree, n int, row []float32) {
	t.Helper()
	ctx := context.Background()
	s := m.NewSeq()
	defer s.Close()
	must[*model.Output](t)(s.Append(ctx, prefix, nil, model.WantNone))
	var o *model.Output
	for _, p := range tr.AppendPath(nil, n) {
		o = must[*model.Output](t)(s.Append(ctx, []int32{tr.Token(p)}, nil, model.WantLast))
	}
	o.ReadLogits(row, 0)
}

func TestPromptsHaveTheSameBitsForEveryFormat(t *testing.T) {
	c := modeltest.Default()
	c.MaxPos = 700
	dir := modeltest.Random(t, c, 4)
	r := rand.New(rand.NewPCG(7, 7))
	ids := make([]int32, 600)
	for i := range ids {
		ids[i] = r.Int32N(int32(c.Vocab))
	}
	for _, dt := range dtypes {
		for _, class := range classes() {
			if class == kern.Portable && testing.Short() {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", dt, class), func(t *testing.T) {
				m := load(t, dir, device(t, class, 2), model.Options{DType: dt, MaxRows: 512})
				one := load(t, dir, device(t, oracleClass(class, dt), 1), model.Options{DType: dt, MaxRows: 1})
				n := 130
				if class != kern.Portable {
					n = len(ids)
				}
				want, hidden := run(t, one, ids[:n], 1)
				for _, chunk := range []int{7, 512} {
					l, h := run(t, m, ids[:n], chunk)
					if err := sameBits(l, want); err != nil {
						t.Fatalf("chunks of %d: %v", chunk, err)
					}
					if err := sameBits(h, hidden); err != nil {
						t.Fatalf("chunks of %d: %v", chunk, err)
					}
				}
			})
		}
	}
}

// TestEightBitActivationsHaveTheSameBitsEverywhere checks the same promise for them.
func TestEightBitActivationsHaveTheSameBitsEverywhere(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 6)
	one := func(class kern.Class, threads int) *model.Model {
		d, err := cpu.New(cpu.Config{Class: class, Threads: threads, ActBits: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return load(t, dir, d, model.Options{DType: compute.Q8, MaxRows: 512})
	}
	plain := one(kern.Portable, 1)
	two := load(t, dir, device(t, kern.Portable, 1), model.Options{DType: compute.Q8, MaxRows: 512})
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}
	a, _ := run(t, plain, ids, 1)
	b, _ := run(t, two, ids, 1)
	if sameBits(a, b) == nil {
		t.Error("activations of 8 and of 16 bits give the same logits")
	}
	for _, class := range classes() {
		batchesAgree(t, one(class, 2), plain, 5)
	}
}

// TestHalfKeysAndValuesKeepThePromise stores keys and values in bfloat16: the bits
// differ from F32's, and are the same for trees, chunks, batches, classes and threads.
func TestHalfKeysAndValuesKeepThePromise(t *testing.T) {
	c := modeltest.Default()
	c.MaxPos = 400
	dir := modeltest.Random(t, c, 8)
	opt := model.Options{DType: compute.F32, KV: compute.BF16, MaxRows: 1}
	plain := load(t, dir, device(t, kern.Portable, 1), opt)
	full := load(t, dir, device(t, kern.Portable, 1), model.Options{MaxRows: 1})
	r := rand.New(rand.NewPCG(7, 7))
	ids := make([]int32, 150)
	for i := range ids {
		ids[i] = r.Int32N(int32(c.Vocab))
	}
	want, _ := run(t, plain, ids, 1)
	other, _ := run(t, full, ids, 1)
	if sameBits(want, other) == nil {
		t.Error("keys and values of 16 and of 32 bits give the same logits")
	}
	opt.MaxRows = 512
	for _, class := range classes() {
		m := load(t, dir, device(t, class, 3), opt)
		for _, chunk := range []int{7, 64, len(ids)} {
			got, _ := run(t, m, ids, chunk)
			if err := sameBits(got, want); err != nil {
				t.Fatalf("%v, chunks of %d: %v", class, chunk, err)
			}
		}
		batchesAgree(t, m, plain, 6)
	}
}
