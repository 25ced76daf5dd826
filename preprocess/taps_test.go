package preprocess_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/data"
	"talf/data/corpus"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// What EAGLE-3 heads read is stored as the target computes it: every token's states before the named
// layers, whatever passes they came from; labels are those of any other set.
func TestStatesBeforeLayersAreStored(t *testing.T) {
	file := write(t, "in.jsonl", problems(14, 97))
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Options{MaxRows: 50})
	in := preprocess.Inputs{Target: m, Tokenizer: numbers{1}}
	plain, c := config(t, file), config(t, file)
	c.Features, c.Rows = "taps:2+0", 37
	for _, x := range []preprocess.Config{plain, c} {
		if _, err := preprocess.Run(context.Background(), x, in); err != nil {
			t.Fatal(err)
		}
	}
	_, labels := rows(t, plain.Out)
	meta, got := rows(t, c.Out)
	if meta.Features != data.Taps || !slices.Equal(meta.Taps, []int{2, 0}) || len(m.Taps()) != 0 {
		t.Fatalf("features %s of %v; the target keeps %v", meta.Features, meta.Taps, m.Taps())
	}
	if err := m.Tap(2, 0); err != nil {
		t.Fatal(err)
	}
	for i, r := range got {
		if !slices.Equal(r.LabelProbs, labels[i].LabelProbs) || !slices.Equal(r.TreeTokens, labels[i].TreeTokens) {
			t.Fatalf("row %d: other labels than without the states", i)
		}
		s := m.NewSeq()
		var want []byte
		for _, id := range r.Tokens { // one by one: not the passes of preprocess
			out, err := s.Append(context.Background(), []int32{id}, nil, model.WantNone)
			if err != nil {
				t.Fatal(err)
			}
			x := make([]float32, 2*meta.Hidden)
			out.ReadTaps(x, out.HiddenRow(0, 0))
			want = data.AppendBF16(want, x)
		}
		s.Close()
		if !slices.Equal(r.Features, want) {
			t.Fatalf("row %d: other states", i)
		}
	}
}

// What docs/sizing.md counts for a token's features is what a shard takes for them.
func TestFeaturesTakeTheirCountedBytes(t *testing.T) {
	o := modeltest.Default()
	o.Layers, o.Hidden = 7, 128 // the fewest layers with default taps
	m := target(t, modeltest.Random(t, o, 5), cpu.Default(), model.Default())
	rng := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for range 8 { // equal beginnings would have equal features, which are packed
		for range 100 {
			fmt.Fprintf(&text, "%d ", 3+rng.IntN(94))
		}
		text.WriteString("\n\n")
	}
	file := write(t, "in.txt", text.String())
	bytes := func(mode data.FeatureMode) (perToken float64) {
		c := config(t, file)
		c.Load = corpus.Default()
		c.Features, c.Depth, c.TopK, c.Shard = mode, 1, 1, 64
		st, err := preprocess.Run(t.Context(), c, preprocess.Inputs{Target: m, Tokenizer: numbers{1}})
		if err != nil {
			t.Fatal(err)
		}
		set, err := data.Open(c.Out)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		for _, s := range set.Shards() {
			perToken += float64(s.Bytes) / float64(st.Tokens)
		}
		return perToken
	}
	none := bytes(data.None)
	for mode, want := range map[data.FeatureMode]int{
		data.BF16: 2 * m.Spec().Hidden,
		data.Taps: 2 * m.Spec().Eagle3For(nil, 0).FeatureSize(),
	} {
		if got := bytes(mode) - none; got < 0.95*float64(want) || got > 1.02*float64(want) {
			t.Errorf("%s: %.1f bytes per token of a shard, want %d as docs/sizing.md counts them", mode, got, want)
		} else {
			t.Logf("%s: %.1f bytes per token, counted %d", mode, got, want)
		}
	}
}

func TestLayersThatNoHeadCanReadAreRefused(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	for text, want := range map[data.FeatureMode]string{
		"taps":      "want at least 7 for EAGLE-3's default taps",
		"taps:2+99": "the target has only",
		"taps:2+2":  "want different layers",
		"taps:":     "want different layers",
		"bf16:2":    `want "bf16", "taps" (with layers: taps:2+16+29) or "none"`,
	} {
		c := config(t, write(t, "in.jsonl", problems(3, 97)))
		c.Features = text
		if _, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: numbers{1}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
}
