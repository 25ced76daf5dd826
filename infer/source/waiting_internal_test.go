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

// Features that wait are bounded, those of closed sequences included, and what is left unread is
// counted right whatever is opened, read, closed and forgotten.
func TestWhatWaitsIsBounded(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	conf := modeltest.Default()
	conf.MaxPos = 2048
	m, err := model.Load(modeltest.Random(t, conf, 1), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	spec := m.Spec().DraftFor(true)
	hm, err := head.FromTensors(spec, m, head.Default(), modeltest.Tensors(spec, false, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.NewStore(1)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHead(hm, 3)
	if h.most < tree.MaxNodes {
		t.Fatalf("%d positions may wait", h.most)
	}
	h.most = 1000
	h.Postpone(true)
	const part = 100
	most := 0
	for id := range infer.SeqID(12) {
		prompt := []int32{int32(id % 5), 2}
		if err := h.Open(id, prompt, min(h.Match(prompt), len(prompt)-2)); err != nil {
			t.Fatal(err)
		}
		for range 2 + id%4 {
			chunk, path := tree.New(h.open[id].tokens[len(h.open[id].tokens)-1], part), []int{0}
			for i := range part - 1 {
				path = append(path, chunk.Add(i, int32(id)))
			}
			if err := h.Commit(id, infer.Proposal{Tree: chunk}, infer.Verdict{Path: path, Next: 1}, rows{f: st.At(0)}); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Rows(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			most = max(most, h.waiting())
			if n := h.waiting(); n > h.most {
				t.Errorf("sequence %d: %d positions wait, want at most %d", id, n, h.most)
			}
		}
		if id%3 != 2 {
			h.Close(id)
		}
	}
	if most < h.most/2 {
		t.Errorf("at most %d positions waited", most)
	}
	for id := range infer.SeqID(12) {
		h.Close(id)
	}
	if h.kept.Len() == 0 || h.held < 0 {
		t.Errorf("%d sequences are kept, %d positions wait", h.kept.Len(), h.held)
	}
	for h.kept.Evict() {
	}
	if h.held != 0 || hm.KV().Used != 0 {
		t.Errorf("nothing is kept, and %d positions wait in %d blocks", h.held, hm.KV().Used)
	}
}
