package head_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/internal/golden"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/safetensors"
)

// The cases of data/block that decode, and their targets.
var blockCases = map[string]string{
	"dflash/a": "qwen3", "dflash/b": "llama", "dflash2/a": "qwen3", "dspark/a": "qwen3", "dspark/b": "llama",
	"jetspec/a": "qwen3", "jetspec/b": "llama",
}

// A blockCase is a head of the authors' code, and what that code made of it.
type blockCase struct {
	testing.TB
	set     *safetensors.Set
	target  *model.Model
	head    *head.Head
	store   *model.Store // taps of every position
	tokens  []int32
	anchors []int32
}

func openBlock(t testing.TB, name, target string, opt model.Options) *blockCase {
	t.Helper()
	dev, err := cpu.New(cpu.Default())
	must(t, err)
	c := &blockCase{TB: t}
	c.target, err = model.Load(golden.Shared(t, "data/block/targets/"+target), dev, opt)
	must(t, err)
	c.head, err = head.Load(golden.Shared(t, "data/block/"+name+"/head"), c.target, head.Options{Model: opt})
	must(t, err)
	c.set, err = safetensors.Open(filepath.Join(golden.Shared(t, "data/block/"+name), "case.safetensors"))
	must(t, err)
	t.Cleanup(func() {
		must(t, c.set.Close())
		must(t, c.head.Close())
		must(t, c.target.Close())
		must(t, dev.Close())
	})
	c.tokens, c.anchors = c.ints("token_ids"), c.ints("anchors")
	c.store, err = c.head.NewInputStore(len(c.tokens))
	must(t, err)
	must(t, c.store.Load(0, c.floats("taps")))
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *blockCase) floats(name string) []float32 {
	c.Helper()
	x, err := c.set.Get(name)
	must(c, err)
	f, err := x.Float32s()
	must(c, err)
	return f
}

func (c *blockCase) ints(name string) []int32 {
	c.Helper()
	x, err := c.set.Get(name)
	must(c, err)
	n, err := x.Int32s()
	must(c, err)
	return n
}

// features are those of positions [from,to).
func (c *blockCase) features(from, to int) (f []model.Feature) {
	for i := from; i < to; i++ {
		f = append(f, c.store.At(i))
	}
	return f
}

// segment is the block of anchor j over a sequence that has the first ran positions.
func (c *blockCase) segment(seq *model.Seq, j, ran int) model.BlockSegment {
	a := int(c.anchors[j])
	return model.BlockSegment{Seq: seq, Feat: c.features(ran, a), Anchor: c.tokens[a]}
}

// block runs the block of anchor j, the context in pieces of at most chunk positions, and returns hidden states and logits.
func (c *blockCase) block(j, chunk int) (hidden, logits []float32, out *model.Output) {
	c.Helper()
	seq := c.head.NewSeq()
	defer seq.Close()
	for at := chunk; at < int(c.anchors[j]); at += chunk {
		_, err := c.head.ForwardBlocks(c.Context(), []model.BlockSegment{{Seq: seq, Feat: c.features(at-chunk, at), Anchor: -1}})
		must(c, err)
	}
	out, err := c.head.ForwardBlocks(c.Context(), []model.BlockSegment{c.segment(seq, j, seq.Len())})
	must(c, err)
	if seq.Len() != int(c.anchors[j]) {
		c.Fatalf("the sequence has %d positions, want the context's %d", seq.Len(), c.anchors[j])
	}
	hidden, logits = c.read(out, 0)
	return hidden, logits, out
}

// read returns the hidden states of all rows of a segment, and the logits of those that predict.
func (c *blockCase) read(out *model.Output, seg int) (hidden, logits []float32) {
	s := c.head.Spec()
	hidden, logits = make([]float32, s.Block.Size*s.Hidden), make([]float32, s.Block.Drafts()*s.Vocab)
	out.ReadHidden(hidden, out.HiddenRow(seg, s.Block.Row(0))-s.Block.Row(0))
	out.ReadLogits(logits, out.LogitsRow(seg, s.Block.Row(0)))
	return hidden, logits
}

func TestBlocksAgreeWithTheAuthors(t *testing.T) {
	for name, target := range blockCases {
		t.Run(name, func(t *testing.T) {
			c := openBlock(t, name, target, model.Default())
			s := c.head.Spec()
			hidden, logits := c.floats("hidden"), c.floats("logits")
			b := &s.Block
			for j := range c.anchors {
				gotHidden, gotLogits, _ := c.block(j, 1000)
				near(t, "hidden", gotHidden, hidden[j*b.Size*s.Hidden:][:b.Size*s.Hidden], 1e-5)
				near(t, "logits", gotLogits, logits[(j*b.Size+b.Row(0))*s.Vocab:][:b.Drafts()*s.Vocab], 1e-5)
				for _, chunk := range []int{1, 5} {
					h, l, _ := c.block(j, chunk)
					if !slices.Equal(h, gotHidden) || !slices.Equal(l, gotLogits) {
						t.Fatalf("block %d has other bits after its context in pieces of %d", j, chunk)
					}
				}
			}
			// All at once, beside one that only reads.
			var batch []model.BlockSegment
			for j := range c.anchors {
				batch = append(batch, c.segment(c.head.NewSeq(), j, 0))
			}
			batch = append(batch, model.BlockSegment{Seq: c.head.NewSeq(), Feat: c.features(0, 9), Anchor: -1})
			slices.Reverse(batch)
			out, err := c.head.ForwardBlocks(t.Context(), batch)
			must(t, err)
			var all [][2][]float32
			for j := range c.anchors {
				h, l := c.read(out, len(batch)-1-j)
				all = append(all, [2][]float32{h, l})
			}
			for j := range c.anchors {
				if h, l, _ := c.block(j, 1000); !slices.Equal(h, all[j][0]) || !slices.Equal(l, all[j][1]) {
					t.Errorf("block %d has other bits beside others", j)
				}
			}
		})
	}
}

// Steps of few rows and contexts in pieces give the same bits, in whatever types weights, keys and values are.
func TestBlocksDoNotDependOnStepsOfAPass(t *testing.T) {
	for _, as := range []struct{ weights, kv compute.DType }{{compute.F32, compute.F32}, {compute.Q8, compute.F32}, {compute.BF16, compute.BF16}} {
		opt := model.Default()
		opt.DType, opt.KV = as.weights, as.kv
		few := opt
		few.MaxRows = 8
		c, d := openBlock(t, "dflash/a", "qwen3", opt), openBlock(t, "dflash/a", "qwen3", few)
		for j := range c.anchors {
			h, l, _ := c.block(j, 1000)
			for _, chunk := range []int{1000, 3} {
				if h2, l2, _ := d.block(j, chunk); !slices.Equal(h, h2) || !slices.Equal(l, l2) {
					t.Errorf("block %d has other bits in steps of %d rows, with %+v", j, few.MaxRows, as)
				}
			}
		}
	}
	c := openBlock(t, "dflash/a", "qwen3", model.Default())
	small := model.Default()
	small.MaxRows = 7
	_, err := head.Load(golden.Shared(t, "data/block/dflash/a/head"), c.target, head.Options{Model: small})
	if err == nil || !strings.Contains(err.Error(), "passes of at most 7 rows, want at least block_size, 8") {
		t.Errorf("a block larger than a pass: %v", err)
	}
}

func TestTapsOfTargetsAreThoseOfTransformers(t *testing.T) {
	for name, target := range blockCases {
		c := openBlock(t, name, target, model.Default())
		must(t, c.target.Tap(c.head.Spec().Block.Taps...))
		out, err := c.target.NewSeq().Append(t.Context(), c.tokens, nil, model.WantNone)
		must(t, err)
		got := make([]float32, len(c.tokens)*c.head.Spec().FeatureSize())
		out.ReadTaps(got, 0)
		near(t, name, got, c.floats("taps"), 5e-5)
	}
}

// after asks for the logits after tokens of the block of anchor j, one after another, and returns them with the estimates.
func (c *blockCase) after(j int, token func(depth int, before []float32) int32) (logits, accept []float32) {
	c.Helper()
	_, _, out := c.block(j, 1000)
	s, err := c.head.NewBlockState()
	must(c, err)
	out.Keep(0, s)
	row := []float32(nil)
	for d := range c.head.Spec().Block.Drafts() {
		at := []model.After{{Block: s, Depth: d, Token: token(d, row)}}
		o, err := c.head.ForwardAfter(context.Background(), at)
		must(c, err)
		row = make([]float32, c.head.Spec().Vocab)
		o.ReadLogits(row, 0)
		logits, accept = append(logits, row...), append(accept, at[0].Accept)
		ids, logp := make([]int32, 1), make([]float32, 1)
		if o.TopK(ids, logp, 0, 1, 1); ids[0] != best(row) {
			c.Fatalf("the likeliest token is %d, by its logits %d", ids[0], best(row))
		}
	}
	return logits, accept
}

func best(row []float32) int32 {
	b := 0
	for i, v := range row {
		if v > row[b] {
			b = i
		}
	}
	return int32(b)
}

func TestMarkovHeadsAgreeWithDeepSpec(t *testing.T) {
	for _, name := range []string{"dspark/a", "dspark/b"} {
		c := openBlock(t, name, blockCases[name], model.Default())
		size := c.head.Spec().Block.Size
		width := size * c.head.Spec().Vocab
		for j, a := range c.anchors {
			path := c.ints("path")[j*size:][:size]
			got, _ := c.after(j, func(d int, _ []float32) int32 { return path[d] })
			near(t, name+": logits after a path", got, c.floats("path_logits")[j*width:][:width], 1e-5)

			var chain []int32
			got, accept := c.after(j, func(d int, before []float32) int32 {
				if d == 0 {
					return c.tokens[a]
				}
				chain = append(chain, best(before))
				return best(before)
			})
			near(t, name+": logits of the chain", got, c.floats("draft_logits")[j*width:][:width], 1e-5)
			drafted := c.ints("drafted")[j*size:][:size]
			if chain = append(chain, best(got[width-len(got)/size:])); !slices.Equal(chain, drafted) {
				t.Errorf("%s: drafted %v, want %v", name, chain, drafted)
			}
			for k, want := range c.floats("confidence_logits")[j*size:][:size] {
				near(t, name+": confidence", accept[k:k+1], []float32{float32(1 / (1 + math.Exp(-float64(want))))}, 1e-6)
			}
		}
	}
}

// No fixture has a recurrent Markov head: it is compared with its definition in float64.
func TestARecurrentMarkovHeadIsItsDefinition(t *testing.T) {
	c := openBlock(t, "dspark/a", "qwen3", model.Default())
	spec := *c.head.Spec()
	spec.Block.Markov, spec.Block.Confidence, spec.Block.ConfidenceMarkov, spec.Block.OwnLMHead = arch.RNNMarkov, false, false, false
	h, err := head.FromTensors(&spec, c.target, head.Default(), head.Random(&spec, 3)...)
	must(t, err)
	hd, r, d := h.Spec().Hidden, h.Spec().Block.Rank, h.Spec().Block.Drafts()
	floats := func(name string) []float32 {
		x, ok := h.Tensors().Tensor(name)
		if !ok {
			t.Fatal(name)
		}
		f, err := x.Float32s()
		must(t, err)
		return f
	}
	w1, w2, joint := floats("markov_head.markov_w1.weight"), floats("markov_head.markov_w2.weight"), floats("markov_head.joint_proj.weight")
	c.head = h
	_, base, out := c.block(1, 1000)
	hidden, _ := c.read(out, 0)
	kept, err := h.NewBlockState()
	must(t, err)
	out.Keep(0, kept)
	state, want := make([]float32, r), make([]float64, r)
	for k := range d {
		token := int32(7 * (k + 1))
		at := []model.After{{Block: kept, Depth: k, Token: token, Before: state, State: make([]float32, r)}}
		o, err := h.ForwardAfter(t.Context(), at)
		must(t, err)
		state = at[0].State
		in := slices.Clone(want)
		for _, v := range slices.Concat(w1[int(token)*r:][:r], hidden[k*hd:][:hd]) {
			in = append(in, float64(v))
		}
		e := make([]float64, r)
		dot := func(row int) (sum float64) {
			for i, v := range in {
				sum += v * float64(joint[row*len(in)+i])
			}
			return sum
		}
		for i := range r {
			g := 1 / (1 + math.Exp(-dot(i)))
			want[i] = g*want[i] + (1-g)*math.Tanh(dot(r+i))
			e[i] = math.Tanh(dot(2*r + i))
		}
		row := make([]float32, h.Spec().Vocab)
		o.ReadLogits(row, 0)
		for v := range row {
			sum := float64(base[k*len(row)+v])
			for i := range e {
				sum += e[i] * float64(w2[v*r+i])
			}
			near(t, "logits", row[v:v+1], []float32{float32(sum)}, 1e-5)
		}
	}
}

func TestTheSelectorAgreesWithNeMo(t *testing.T) {
	c := openBlock(t, "dflash2/a", "qwen3", model.Default())
	b := &c.head.Spec().Block
	d, k := b.Drafts(), b.SelectorTop
	for j, a := range c.anchors {
		_, _, out := c.block(j, 1000)
		ids, scores := make([]int32, d*k), make([]float32, d*k)
		out.TopK(ids, scores, 0, d, k)
		if want := c.ints("candidates")[j*d*k:][:d*k]; !slices.Equal(ids, want) {
			t.Fatalf("candidates %v, want %v", ids, want)
		}
		s, err := c.head.NewBlockState()
		must(t, err)
		out.Keep(0, s)
		token, drafted := c.tokens[a], []int32(nil)
		for n := range d {
			got := slices.Clone(scores[n*k:][:k])
			must(t, c.head.SelectAfter(t.Context(), []model.After{{Block: s, Depth: n, Token: token}}, ids[n*k:][:k], got))
			want := slices.Clone(c.floats("scores")[(j*d+n)*k:][:k])
			token = ids[n*k+int(best(got))]
			for i := k - 1; i >= 0; i-- { // theirs are sums with logits, these with logarithms of probabilities
				got[i], want[i] = got[i]-got[0], want[i]-want[0]
			}
			near(t, "scores", got, want, 1e-5)
			drafted = append(drafted, token)
		}
		if want := c.ints("drafted")[j*d:][:d]; !slices.Equal(drafted, want) {
			t.Errorf("drafted %v, want %v", drafted, want)
		}
	}
}
