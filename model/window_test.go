package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/modeltest"
	"talf/tree"
)

// windowed are shapes of models whose layers see windows of 20 positions: all of them, or some beside others that
// see everything, in groups of one and of two layers.
func windowed() map[string]modeltest.Config {
	gemma, qwen := modeltest.Of("gemma3_text"), modeltest.Of("qwen2")
	gemma.Layers, qwen.Layers, qwen.FullLayers = 5, 4, 2
	return map[string]modeltest.Config{"gemma3_text": gemma, "qwen2": qwen, "mistral": modeltest.Of("mistral"), "gpt_oss": modeltest.Of("gpt_oss")}
}

// Layers with windows give back what no later token sees, whatever sequences go through, and every result has the
// bits of a sequence that keeps all positions. A sequence never holds more than it may.
func TestWindowsThatGiveBlocksBackChangeNoBits(t *testing.T) {
	for name, conf := range windowed() {
		t.Run(name, func(t *testing.T) {
			var less, looked int
			inside, longest := live(t, conf, 6, func(m *model.Model, s *model.Seq) {
				kv := m.KV()
				held, _ := s.Blocks()
				if most := kv.Layout.Keeps(s.Len(), true); held > most {
					t.Fatalf("%d blocks of %d positions, want at most %d", held, s.Len(), most)
				}
				if looked++; held < len(kv.Layout.Windows)*((s.Len()+compute.BlockLen-1)/compute.BlockLen) {
					less++
				}
			})
			if inside == 0 || longest < 250 || less < looked/3 {
				t.Errorf("%d sequences were cut in their middle, the longest had %d tokens, %d of %d gave blocks back: too little was tested", inside, longest, less, looked)
			}
		})
	}
}

// A long text takes the window, a pass and a block or two in layers that have a window, and all positions in the others.
func TestALongTextTakesItsWindow(t *testing.T) {
	const window, pass = 20, 16
	for name, conf := range windowed() {
		m := load(t, modeltest.Random(t, conf, 1), device(t, kern.Best(), 1), model.Default())
		layout := m.KV().Layout
		s := m.NewSeq()
		text := make([]int32, 480)
		for i := range text {
			text[i] = int32(i % conf.Vocab)
		}
		full, most := layout.Full(), 0
		for at := 0; at < 2*len(text); at += pass {
			from := at % len(text)
			if from == 0 { // the second time over
				s.Truncate(0)
			}
			must[*model.Output](t)(s.Append(t.Context(), text[from:from+pass], nil, model.WantNone))
			held, _ := s.Blocks()
			most = max(most, held-full*(s.Len()+compute.BlockLen-1)/compute.BlockLen)
		}
		if want := (len(layout.Windows) - full) * ((window+compute.BlockLen)/compute.BlockLen + 1 + 1); most > want || most == 0 {
			t.Errorf("%s: layers with windows took %d blocks in %d groups, want at most %d", name, most, len(layout.Windows)-full, want)
		}
		s.Close()
	}
}

// A sequence goes on after any of the last 32 tokens, and at its places, and nowhere else but at its beginning.
func TestASequenceGoesOnWhereItsWindowsAre(t *testing.T) {
	m := load(t, modeltest.Random(t, windowed()["gemma3_text"], 1), device(t, kern.Best(), 1), model.Default())
	text := make([]int32, 400)
	for i := range text {
		text[i] = int32(i % 90)
	}
	s := m.NewSeq()
	defer s.Close()
	s.KeepAt(130)
	s.KeepAt(250)
	must[*model.Output](t)(s.Append(t.Context(), text[:200], nil, model.WantNone))
	must[*model.Output](t)(s.Append(t.Context(), text[200:], nil, model.WantNone))
	for _, c := range []struct{ ask, want int }{{400, 400}, {399, 399}, {368, 368}, {250, 250}, {240, 240}, {130, 130}, {120, 120}, {0, 0}} {
		if n := s.Resume(c.ask); n != c.want {
			t.Errorf("Resume(%d) is %d, want %d", c.ask, n, c.want)
		}
	}
	if n := s.Resume(330); n < 250 || n > 256 { // blocks are whole
		t.Errorf("Resume(330) is %d, want the place at 250 or the rest of its block", n)
	}
	if n := s.Resume(60); n != 0 {
		t.Errorf("Resume(60) is %d, want 0", n)
	}
	panics(t, "has given back", func() { s.Truncate(330) })
	panics(t, "without KeepPast", func() { s.Branch(60) })
	panics(t, "without KeepPast", func() { s.BranchPast(60) })

	// A fork that goes on at a place keeps it, and has the bits of a new sequence.
	f := s.Fork()
	defer f.Close()
	f.Truncate(250)
	more := slices.Repeat([]int32{7, 11, 13}, 40)
	got, want := make([]float32, m.Spec().Vocab), make([]float32, m.Spec().Vocab)
	must[*model.Output](t)(f.Append(t.Context(), more, nil, model.WantLast)).ReadLogits(got, 0)
	p := m.NewSeq()
	defer p.Close()
	p.KeepPast()
	must[*model.Output](t)(p.Append(t.Context(), slices.Concat(text[:250], more), nil, model.WantLast)).ReadLogits(want, 0)
	if err := sameBits(got, want); err != nil {
		t.Error(err)
	}
	if n := f.Resume(250); n != 250 {
		t.Errorf("the fork's Resume(250) is %d", n)
	}
	// With KeepPast a branch may begin anywhere.
	b := p.BranchPast(60)
	tr := tree.New(text[60], 3)
	tr.Add(0, 5)
	must[*model.Output](t)(m.Forward(t.Context(), []model.Segment{{Rows: b, Tree: tr, From: 1, Want: model.WantAll}}))
	b.Drop()
}

func panics(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), want) {
			t.Errorf("panic %v, want one with %q", v, want)
		}
	}()
	f()
}

// A text of 16k tokens takes a fifth of the memory that it would take if all layers kept all positions, where five of
// six layers see 512. docs/sizing.md has the figures.
func TestWhatALongTextTakesWithAndWithoutWindows(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 32k tokens")
	}
	conf := modeltest.Of("qwen2")
	conf.Layers, conf.FullLayers, conf.Window, conf.MaxPos = 6, 1, 512, 1<<14
	conf.Hidden, conf.Heads, conf.KVHeads, conf.FFN = 16, 1, 1, 16
	dir := modeltest.Random(t, conf, 1)
	text := make([]int32, conf.MaxPos)
	for i := range text {
		text[i] = int32(i % conf.Vocab)
	}
	takes := func(all bool) (bytes int64) {
		m := load(t, dir, device(t, kern.Best(), 2), model.Default())
		s := m.NewSeq()
		defer s.Close()
		if all {
			s.KeepPast()
		}
		for from := 0; from < len(text); from += 256 {
			must[*model.Output](t)(s.Append(t.Context(), text[from:from+256], nil, model.WantNone))
			bytes = max(bytes, int64(m.KV().Used)*m.BlockBytes())
		}
		return bytes
	}
	before, after := takes(true), takes(false)
	t.Logf("%d positions of %d layers, %d of them with a window of %d: %.2f MB, and %.2f MB if nothing is given back", len(text), conf.Layers, conf.Layers-conf.FullLayers, conf.Window, float64(after)/1e6, float64(before)/1e6)
	if ratio := float64(before) / float64(after); ratio < 4.5 || ratio > 6 {
		t.Errorf("%d bytes of %d, which is %.2f times less; want about 5", after, before, ratio)
	}
}
