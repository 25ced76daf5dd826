package source

import (
	"testing"

	"talf/infer"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/tree"
)

// Features of closed sequences that wait are bounded, and what is left unread is counted right whatever is opened, read, closed and forgotten.
func TestWhatWaitsIsBounded(t *testing.T) {
	conf := modeltest.Default()
	conf.MaxPos = 2048
	hm, f := randomHead(t, conf)
	h := NewHead(hm, 3)
	if h.most < tree.MaxNodes {
		t.Fatalf("%d positions may wait", h.most)
	}
	h.most = 700
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
			before := h.Backlog(id)
			if err := h.Commit(id, infer.Proposal{Tree: chunk}, infer.Verdict{Path: path, Next: 1}, rows{f: f}); err != nil {
				t.Fatal(err)
			}
			if got := h.Backlog(id); got != before+part {
				t.Errorf("%d positions wait, want %d", got, before+part)
			}
			if id%4 == 1 {
				if _, err := h.Rows(t.Context(), []infer.Ask{{ID: id, Width: 30}}); err != nil {
					t.Fatal(err)
				}
				if got := h.Backlog(id); got != before+part-30 {
					t.Errorf("%d positions wait after 30 were read, want %d", got, before+part-30)
				}
			}
		}
		if id%3 != 2 {
			h.Close(id)
		}
		if most = max(most, h.held); h.held > h.most {
			t.Errorf("%d positions wait, want at most %d", h.held, h.most)
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

// The bound is one of bytes: an EAGLE-3 head keeps all that it reads of its target for every position.
func TestWhatWaitsIsBoundedInBytes(t *testing.T) {
	target := &arch.Spec{Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 512, FFN: 8192}
	for _, c := range []struct {
		spec  *arch.Spec
		bytes int // of a position
	}{
		{target.DraftFor(true), 4 * 4096},
		{target.Eagle3For(nil, 0), 3 * 4 * 4096},
		{target.Eagle3For([]int{2, 8}, 0), 2 * 4 * 4096},
	} {
		if got := mostWaiting(c.spec); got != waitingBytes/c.bytes {
			t.Errorf("%d positions of %d bytes may wait, want %d", got, c.bytes, waitingBytes/c.bytes)
		}
	}
}
