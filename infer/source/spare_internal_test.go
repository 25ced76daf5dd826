package source

import (
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/tree"
)

// rows has one hidden state for every node.
type rows struct {
	infer.Scores
	f model.Feature
}

func (r rows) Hidden(int) model.Feature { return r.f }

// randomHead returns a random head of a random target, and a hidden state for it to read.
func randomHead(t *testing.T, c modeltest.Config) (*head.Head, model.Feature) {
	t.Helper()
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m, err := model.Load(modeltest.Random(t, c, 1), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	spec := m.Spec().DraftFor(true)
	h, err := head.FromTensors(spec, m, head.Default(), modeltest.Tensors(spec, false, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.NewStore(1)
	if err != nil {
		t.Fatal(err)
	}
	return h, st.At(0)
}

// What a burst of long sequences leaves behind is bounded, in number and in size.
func TestSparesAreBounded(t *testing.T) {
	hm, f := randomHead(t, modeltest.Default())
	h := NewHead(hm, 0)
	for id := range infer.SeqID(3 * mostSpare) {
		if err := h.Open(id, []int32{1, 2}, 0); err != nil {
			t.Fatal(err)
		}
		// Half of them are longer than what is kept. Nothing runs in between, as when the
		// drafter does not ask.
		chunk := tree.New(1, 100)
		path := []int{0}
		for i := range 99 {
			path = append(path, chunk.Add(i, 3))
		}
		for range 1 + 4*int(id%2) {
			p := infer.Proposal{Tree: chunk}
			if err := h.Commit(id, p, infer.Verdict{Path: path, Next: 1}, rows{f: f}); err != nil {
				t.Fatal(err)
			}
		}
	}
	large := 0
	for _, s := range h.open {
		if s.store.Rows() > spareRows {
			large++
		}
	}
	if large == 0 {
		t.Fatal("no sequence is long")
	}
	for id := range infer.SeqID(3 * mostSpare) {
		h.Close(id)
	}
	if len(h.spare) != mostSpare {
		t.Errorf("%d spare sequences, want %d", len(h.spare), mostSpare)
	}
	for _, s := range h.spare {
		if s.store != nil && s.store.Rows() > spareRows {
			t.Errorf("a spare store of %d rows, want at most %d", s.store.Rows(), spareRows)
		}
	}
	if used := hm.KV().Used; used != 0 {
		t.Errorf("%d blocks are in use", used)
	}
}
