package head_test

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute/cpu"
	"talf/internal/golden"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
	"talf/model/safetensors"
	"talf/tree"
)

func device(t testing.TB) *cpu.Device {
	t.Helper()
	c := cpu.Default()
	c.Threads = 2
	d, err := cpu.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func get(t testing.TB, s *safetensors.Set, name string) safetensors.Tensor {
	t.Helper()
	x, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func floats(t testing.TB, s *safetensors.Set, name string) []float32 {
	t.Helper()
	x := get(t, s, name)
	v, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ints(t testing.TB, s *safetensors.Set, name string) []int32 {
	t.Helper()
	x := get(t, s, name)
	v, err := x.Int32s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// target returns a model with the file's embedding and LM head and a single random
// layer: a head sees nothing else of its target.
func target(t testing.TB, dir string) *model.Model {
	t.Helper()
	spec, err := arch.LoadDraft(dir)
	if err != nil {
		t.Fatal(err)
	}
	spec.Draft, spec.Terms = false, arch.Llama().Terms
	file, err := safetensors.Open(filepath.Join(dir, "target.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	tensors := modeltest.Tensors(spec, false, 1)
	for i, x := range tensors {
		if own, ok := file.Tensor(x.Name); ok {
			tensors[i] = own
		}
	}
	m, err := model.New(spec, safetensors.Of("target", tensors...), device(t), model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func near(t testing.TB, what string, got, want []float32, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	var worst float64
	for i := range want {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if !(d <= tol) {
			t.Fatalf("%s: element %d is %v, want %v ± %v", what, i, got[i], want[i], tol)
		}
		worst = max(worst, d)
	}
	t.Logf("%s: largest difference %.2g", what, worst)
}

// The reference's recommendation for float32: more than ten times the distance of its
// float32 from its float64 results, for values up to 5 and 18.
const (
	tolHidden = 2e-5
	tolLogits = 1e-4
)

func TestAgreesWithEAGLE(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"bias", "nobias"} {
		t.Run(name, func(t *testing.T) {
			dir := golden.File(t, "reference/eagle_head/"+name)
			tgt := target(t, dir)
			h, err := head.Load(dir, tgt, head.Default())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if h.Spec().FCBias != (name == "bias") {
				t.Errorf("fc bias: %v", h.Spec().FCBias)
			}
			c, err := safetensors.Open(filepath.Join(dir, "case.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ids, feats := ints(t, c, "token_ids"), floats(t, c, "features")
			T, H, V := len(ids)-1, h.Spec().Hidden, h.Spec().Vocab

			tokens, parents := ints(t, c, "tree_tokens"), ints(t, c, "tree_parents")
			store, err := h.NewStore(T + 1 + len(tokens))
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Load(0, feats); err != nil {
				t.Fatal(err)
			}
			var in []model.Feature
			for i := range T {
				in = append(in, store.At(i))
			}
			for _, chunk := range []int{T, 3, 1} {
				s := h.NewSeq()
				var fHat, logits []float32
				var last model.Feature
				for i := 0; i < T; i += chunk {
					n := min(chunk, T-i)
					o, err := s.Append(ctx, ids[i+1:i+1+n], in[i:i+n], model.WantAll)
					if err != nil {
						t.Fatal(err)
					}
					x, l := make([]float32, n*H), make([]float32, n*V)
					o.ReadHidden(x, 0)
					o.ReadLogits(l, 0)
					fHat, logits = append(fHat, x...), append(logits, l...)
					last = o.Feature(0, o.LastNode(0))
				}
				near(t, "f_hat", fHat, floats(t, c, "f_hat"), tolHidden)
				near(t, "logits", logits, floats(t, c, "logits"), tolLogits)

				// The tree, level by level, below the last true position.
				if err := store.Put(T, last); err != nil {
					t.Fatal(err)
				}
				tr := tree.New(ids[T], 1+len(tokens))
				b := s.BranchLast()
				wantF, wantL := floats(t, c, "tree_f_hat"), floats(t, c, "tree_logits")
				pos := ints(t, c, "tree_positions")
				for from := 1; from <= len(tokens); {
					var g model.Segment
					for n := from; n <= len(tokens) && (n == from || int(parents[n-1])+1 < from); n++ {
						tr.Add(int(parents[n-1])+1, tokens[n-1])
						if got := s.Len() - 1 + tr.Depth(n); got != int(pos[n-1]) {
							t.Fatalf("node %d at position %d, want %d", n, got, pos[n-1])
						}
						g.Feat = append(g.Feat, store.At(T+int(parents[n-1])+1))
					}
					g.Rows, g.Tree, g.From, g.Want = b, tr, from, model.WantAll
					o, err := h.Forward(ctx, []model.Segment{g})
					if err != nil {
						t.Fatal(err)
					}
					n := tr.Len() - from
					x, l := make([]float32, n*H), make([]float32, n*V)
					o.ReadHidden(x, 0)
					o.ReadLogits(l, 0)
					near(t, "tree_f_hat", x, wantF[(from-1)*H:(tr.Len()-1)*H], tolHidden)
					near(t, "tree_logits", l, wantL[(from-1)*V:(tr.Len()-1)*V], tolLogits)
					for k := range n {
						if err := store.Put(T+from+k, o.Feature(0, from+k)); err != nil {
							t.Fatal(err)
						}
					}
					from = tr.Len()
				}
				b.Drop()
				s.Close()
			}
			if used := h.KV().Used; used != 0 {
				t.Errorf("%d blocks in use", used)
			}
		})
	}
}

// random returns a target and the spec of a head for it.
func random(t testing.TB, seed uint64) (*model.Model, *arch.Spec) {
	t.Helper()
	m, err := model.Load(modeltest.Random(t, modeltest.Default(), seed), device(t), model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m, m.Spec().DraftFor(false)
}

// draft returns f̂ and logits for a fixed input with features from the target.
func draft(t testing.TB, h *head.Head, m *model.Model) []float32 {
	t.Helper()
	ctx := context.Background()
	ids := []int32{1, 5, 9, 13, 2, 60}
	s, hs := m.NewSeq(), h.NewSeq()
	defer s.Close()
	defer hs.Close()
	o, err := s.Append(ctx, ids, nil, model.WantNone)
	if err != nil {
		t.Fatal(err)
	}
	var in []model.Feature
	for i := range len(ids) - 1 {
		in = append(in, o.Feature(0, i))
	}
	p, err := hs.Append(ctx, ids[1:], in, model.WantAll)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, len(in)*h.Spec().Hidden)
	p.ReadHidden(x, 0)
	y := make([]float32, len(in)*h.Spec().Vocab)
	p.ReadLogits(y, 0)
	return append(x, y...)
}

func TestWrittenHeadsLoadUnchanged(t *testing.T) {
	m, spec := random(t, 1)
	spec.FCBias = true
	spec.EOS = []int32{2, 3}
	spec.Rope = arch.Rope{Type: "linear", Theta: 5e5, Factor: 2}
	tensors := modeltest.Tensors(spec, false, 4)[1:] // without the embedding
	mem, err := head.FromTensors(spec, m, head.Default(), tensors...)
	if err != nil {
		t.Fatal(err)
	}
	want := draft(t, mem, m)
	if err := mem.Tap(0); err == nil {
		t.Error("a head is tapped")
	}

	emb, err := m.HostEmbed()
	if err != nil {
		t.Fatal(err)
	}
	for i := range emb {
		emb[i] *= 2
	}
	other := safetensors.F32(spec.Weight(arch.Embed, 0), emb, spec.Vocab, spec.Hidden)
	same, _ := m.Tensors().Tensor(m.Spec().Weight(arch.Embed, 0))
	same.Name = other.Name
	for _, c := range []struct {
		name  string
		extra []safetensors.Tensor
		equal bool
	}{
		{"without an embedding", nil, true},
		{"with the target's embedding", []safetensors.Tensor{same}, true},
		{"with its own embedding", []safetensors.Tensor{other}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			all := append(c.extra, tensors...)
			meta := identity.To(m.Identity())
			if err := head.Write(t.Context(), dir, spec, meta, all...); err != nil {
				t.Fatal(err)
			}
			h, err := head.Load(dir, m, head.Default())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if d := cmp.Diff(spec, h.Spec()); d != "" {
				t.Errorf("spec (-want +got):\n%s", d)
			}
			if got := draft(t, h, m); cmp.Equal(got, want) != c.equal {
				t.Errorf("same output as from memory: %v, want %v", !c.equal, c.equal)
			}
			again := t.TempDir()
			if err := head.Write(t.Context(), again, spec, meta, all...); err != nil {
				t.Fatal(err)
			}
			for _, f := range []string{"config.json", "model.safetensors"} {
				a, err1 := os.ReadFile(filepath.Join(dir, f))
				b, err2 := os.ReadFile(filepath.Join(again, f))
				if err1 != nil || err2 != nil || string(a) != string(b) {
					t.Errorf("%s differs when written again (%v, %v)", f, err1, err2)
				}
			}
		})
	}
}

func TestAnotherTargetsHeadIsRefused(t *testing.T) {
	m, spec := random(t, 1)
	dir := t.TempDir()
	if err := head.Write(t.Context(), dir, spec, identity.To(m.Identity()), head.Random(spec, 1)...); err != nil {
		t.Fatal(err)
	}
	twin, _ := random(t, 2)
	if _, err := head.Load(dir, twin, head.Default()); err == nil || !strings.Contains(err.Error(), "the hash of the weights is") {
		t.Errorf("a head of other weights: %v", err)
	}
	forced := head.Default()
	forced.Force = true
	h, err := head.Load(dir, twin, forced)
	if err != nil {
		t.Fatalf("forced: %v", err)
	}
	h.Close()

	for field, c := range map[string]modeltest.Config{
		"hidden_size": func() modeltest.Config { c := modeltest.Default(); c.Hidden = 48; return c }(),
		"vocab_size":  func() modeltest.Config { c := modeltest.Default(); c.Vocab = 96; return c }(),
	} {
		other, err := model.Load(modeltest.Random(t, c, 1), device(t), model.Default())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := head.Load(dir, other, forced); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("another %s: error %v, want it to name the field", field, err)
		}
	}

	bad := head.Random(spec, 1)
	if err := head.Write(t.Context(), t.TempDir(), spec, identity.Tie{}, bad[1:]...); err == nil || !strings.Contains(err.Error(), "fc.weight") {
		t.Errorf("written without fc: %v", err)
	}
	if _, err := head.FromTensors(spec, m, head.Default(), bad[1:]...); err == nil || !strings.Contains(err.Error(), "fc.weight") {
		t.Errorf("built without fc: %v", err)
	}
}

func TestRandomDependsOnlyOnTheSeed(t *testing.T) {
	_, spec := random(t, 1)
	bytesOf := func(seed uint64) string {
		var b bytes.Buffer
		if err := safetensors.Write(&b, nil, head.Random(spec, seed)...); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	first := bytesOf(7)
	if again := bytesOf(7); again != first {
		t.Error("equal seeds give different heads")
	}
	if bytesOf(8) == first {
		t.Error("other seeds give the same head")
	}
}

// TestFeaturesOfThePreviousPass: a pass may take the hidden states of its model's
// previous pass as input, however it is divided into row blocks.
func TestFeaturesOfThePreviousPass(t *testing.T) {
	ctx := context.Background()
	m, spec := random(t, 1)
	tensors := head.Random(spec, 3)
	var want []float32
	for _, maxRows := range []int{512, 3, 1} {
		opt := head.Default()
		opt.Model.MaxRows = maxRows
		h, err := head.FromTensors(spec, m, opt, tensors...)
		if err != nil {
			t.Fatal(err)
		}
		s := m.NewSeq()
		ids := []int32{4, 8, 15, 16, 23, 42, 4, 8, 15}
		o, err := s.Append(ctx, ids, nil, model.WantNone)
		if err != nil {
			t.Fatal(err)
		}
		var in []model.Feature
		for i := range ids {
			in = append(in, o.Feature(0, i))
		}
		hs := h.NewSeq()
		var got []float32
		for range 3 {
			// The features are f̂ of the previous pass in reverse order, so that a row
			// block would read rows that another block has overwritten.
			p, err := hs.Append(ctx, ids, in, model.WantNone)
			if err != nil {
				t.Fatal(err)
			}
			x := make([]float32, len(ids)*spec.Hidden)
			p.ReadHidden(x, 0)
			got = append(got, x...)
			for i := range in {
				in[i] = p.Feature(0, len(ids)-1-i)
			}
		}
		if want == nil {
			want = got
		}
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("MaxRows %d: value %d is %v, want %v", maxRows, i, got[i], want[i])
			}
		}
		hs.Close()
		s.Close()
	}
}

// LoadDraft reads what Config writes, for every type of positions.
func TestConfigKeepsRotaryScaling(t *testing.T) {
	_, base := random(t, 1)
	for _, r := range []arch.Rope{
		{Type: "default", Theta: 1e6},
		{Type: "linear", Theta: 5e5, Factor: 2},
		{Type: "llama3", Theta: 5e5, Factor: 8, LowFreq: 1, HighFreq: 4, Original: 64},
		{Type: "yarn", Theta: 1e6, Factor: 4, Original: 64, BetaFast: 32, BetaSlow: 1, Scale: 1.25, Truncate: true},
	} {
		want := *base
		want.Rope = r
		conf, err := head.Config(&want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := arch.ParseDraft("config.json", conf, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", r.Type, d)
		}
	}
}
