package model_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"talf/compute/cpu/kern"
	"talf/internal/golden"
	"talf/model"
	"talf/tree"
)

// all returns every boundary of a model.
func all(m *model.Model) (b []int) {
	for i := range m.Spec().Layers + 1 {
		b = append(b, i)
	}
	return b
}

// tapped runs ids in chunks and returns the taps [rows][width].
func tapped(t *testing.T, m *model.Model, ids []int32, chunk int) (taps []float32) {
	t.Helper()
	seq := m.NewSeq()
	defer seq.Close()
	for part := range slices.Chunk(ids, chunk) {
		o := must[*model.Output](t)(seq.Append(t.Context(), part, nil, model.WantNone))
		x := make([]float32, len(part)*len(m.Taps())*m.Spec().Hidden)
		o.ReadTaps(x, 0)
		taps = append(taps, x...)
	}
	return taps
}

// The goldens are the states that EAGLE-3 heads are trained on: every boundary of two
// targets, for padded sequences.
func TestTapsMatchTheReference(t *testing.T) {
	for _, name := range []string{"llama", "qwen3"} {
		t.Run(name, func(t *testing.T) {
			dir := golden.File(t, "eagle3/targets/"+name)
			want := open(t, filepath.Join(dir, "batch.safetensors"))
			lengths, ids, states := ints(t, want, "lengths"), ints(t, want, "token_ids"), floats(t, want, "boundaries")
			for _, rows := range []int{512, 5} { // whole passes, and passes in steps
				m := load(t, dir, device(t, kern.Best(), 2), model.Options{MaxRows: rows})
				if err := m.Tap(all(m)...); err != nil {
					t.Fatal(err)
				}
				padded := len(ids) / len(lengths)
				width := len(m.Taps()) * m.Spec().Hidden
				for i, n := range lengths {
					got := tapped(t, m, ids[i*padded:][:n], padded)
					close32(t, fmt.Sprintf("sequence %d, steps of %d rows", i, rows), got, states[i*padded*width:][:int(n)*width])
				}
			}
		})
	}
}

// Taps of every architecture equal the residual stream, which transformers calls the
// layer's output.
func TestTapsEqualTheLayersOutputs(t *testing.T) {
	for _, name := range fixtures {
		t.Run(filepath.Base(name), func(t *testing.T) {
			dir, want := fixture(t, name)
			m := load(t, dir, device(t, kern.Best(), 2), model.Default())
			for l := range m.Spec().Layers {
				name := fmt.Sprintf("layer_out.%d", l)
				if l == m.Spec().Layers-1 {
					name = "hidden_pre"
				}
				if _, ok := want.Tensor(name); !ok {
					continue
				}
				if err := m.Tap(l + 1); err != nil {
					t.Fatal(err)
				}
				close32(t, name, tapped(t, m, ints(t, want, "input_ids"), 100), floats(t, want, name))
			}
		})
	}
}

func TestTapsOfTreeNodesHaveTheBitsOfPlainDecoding(t *testing.T) {
	m := small(t)
	layers := m.Spec().Layers
	if err := m.Tap(layers, 0, 1); err != nil { // in this order
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(4, 2))
	token := func() int32 { return r.Int32N(int32(m.Spec().Vocab)) }
	prompt := []int32{token(), token(), token(), token()}
	var tr tree.Tree
	tr.Reset(token(), 16)
	for tr.Len() < 16 {
		tr.Add(r.IntN(tr.Len()), token())
	}
	seq := m.NewSeq()
	defer seq.Close()
	must[*model.Output](t)(seq.Append(t.Context(), prompt, nil, model.WantNone))
	b := seq.Branch(seq.Len())
	defer b.Drop()
	out := must[*model.Output](t)(m.Forward(t.Context(), []model.Segment{{Rows: b, Tree: &tr, Want: model.WantAll}}))
	width := 3 * m.Spec().Hidden
	got := make([]float32, 16*width)
	out.ReadTaps(got, 0)
	for n := range tr.Len() {
		if f := out.Feature(0, n); f.Taps != out.Taps || int(f.Row) != n {
			t.Errorf("node %d is tapped at row %d", n, f.Row)
		}
	}
	for n := range tr.Len() {
		path := slices.Clone(prompt)
		for _, node := range tr.AppendPath(nil, n) {
			path = append(path, tr.Token(node))
		}
		want := tapped(t, m, path, 1)
		if err := sameBits(got[n*width:][:width], want[len(want)-width:]); err != nil {
			t.Errorf("node %d: %v", n, err)
		}
	}
}

// A pass's taps stay readable during the next pass, as its hidden states do, and
// tapping does not change a model's results.
func TestTapsChangeNothingElse(t *testing.T) {
	m := small(t)
	ids := []int32{1, 2, 3, 4, 5}
	logits, hidden := run(t, m, ids, 2)
	if err := m.Tap(1); err != nil {
		t.Fatal(err)
	}
	l, h := run(t, m, ids, 2)
	for _, err := range []error{sameBits(l, logits), sameBits(h, hidden)} {
		if err != nil {
			t.Error(err)
		}
	}
	seq := m.NewSeq()
	defer seq.Close()
	first := must[*model.Output](t)(seq.Append(t.Context(), ids[:3], nil, model.WantNone)).Feature(0, 2)
	first.Buf = first.Taps.Rows[0]
	must[*model.Output](t)(seq.Append(t.Context(), ids[3:], nil, model.WantNone))
	store := must[*model.Store](t)(m.NewStore(1))
	if err := store.Put(0, first); err != nil {
		t.Fatal(err)
	}
	kept := make([]float32, m.Spec().Hidden)
	store.Read(kept, 0)
	if err := sameBits(kept, tapped(t, m, ids[:3], 3)[2*m.Spec().Hidden:]); err != nil {
		t.Errorf("after another pass: %v", err)
	}
	if err := m.Tap(); err != nil {
		t.Fatal(err)
	}
	if o := must[*model.Output](t)(seq.Append(t.Context(), ids[:1], nil, model.WantNone)); o.Taps != nil || o.Feature(0, 0).Taps != nil {
		t.Error("a model has taps after they were turned off")
	}
}

// Taps and passes may grow at any time.
func TestTapsGrow(t *testing.T) {
	m := small(t)
	ids := make([]int32, 200)
	for i := range ids {
		ids[i] = int32(i % m.Spec().Vocab)
	}
	if err := m.Tap(all(m)...); err != nil {
		t.Fatal(err)
	}
	every := tapped(t, m, ids, 7)
	width, h := len(m.Taps())*m.Spec().Hidden, m.Spec().Hidden
	for _, b := range [][]int{{1}, {0, 1}, {1, 0, 1}, {0}, all(m)} {
		if err := m.Tap(b...); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 100, 200} {
			got := tapped(t, m, ids[:n], n)
			for r := range n {
				for i, at := range b {
					if err := sameBits(got[(r*len(b)+i)*h:][:h], every[r*width+at*h:][:h]); err != nil {
						t.Fatalf("boundaries %v, row %d of %d, the one of %d: %v", b, r, n, at, err)
					}
				}
			}
		}
	}
}

func TestTapsAreChecked(t *testing.T) {
	m := small(t)
	for _, b := range []int{-1, m.Spec().Layers + 1} {
		if err := m.Tap(b); err == nil {
			t.Errorf("boundary %d of %d layers is accepted", b, m.Spec().Layers)
		}
	}
}
