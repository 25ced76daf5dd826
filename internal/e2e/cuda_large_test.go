//go:build gpu && linux && cgo

package e2e

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute"
	"talf/compute/cuda"
	"talf/compute/devices"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/internal/e2e/talftest"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/model/sample"
	"talf/tree"
)

// A forest is trees that run in one pass, each after its own prefix of one prompt.
type forest struct {
	name  string
	keep  []int // of the prompt
	trees []*tree.Tree
}

// forests returns a tree of 256 nodes, and eight of 60.
func forests(r *rand.Rand, token func() int32, prompt int) []forest {
	random := func(n int) *tree.Tree {
		tr := tree.New(token(), n)
		for tr.Len() < n { // deep and broad
			tr.Add(max(0, tr.Len()-1-r.IntN(min(tr.Len(), 40))), token())
		}
		return tr
	}
	one := forest{"a tree of 256 nodes", []int{prompt}, []*tree.Tree{random(256)}}
	many := forest{name: "eight trees of 60 nodes"}
	for i := range 8 {
		many.keep, many.trees = append(many.keep, prompt-3*i), append(many.trees, random(60))
	}
	return []forest{one, many}
}

// score runs a forest in one pass and returns the logits of all nodes, and the
// sequences that the trees hang on.
func (f *forest) score(t *testing.T, m *model.Model, prompt []int32) ([]*model.Seq, [][][]float32) {
	t.Helper()
	first := m.NewSeq()
	if _, err := first.Append(t.Context(), prompt, nil, model.WantNone); err != nil {
		t.Fatal(err)
	}
	var seqs []*model.Seq
	var batch []model.Segment
	for i, keep := range f.keep {
		s := first.Fork()
		s.Truncate(keep)
		seqs = append(seqs, s)
		batch = append(batch, model.Segment{Rows: s.Branch(keep), Tree: f.trees[i], Want: model.WantAll})
	}
	out, err := m.Forward(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	all := make([][][]float32, len(batch))
	for i, tr := range f.trees {
		for n := range tr.Len() {
			row := make([]float32, m.Spec().Vocab)
			out.ReadLogits(row, out.LogitsRow(i, n))
			all[i] = append(all[i], row)
		}
		batch[i].Rows.Drop()
	}
	return seqs, all
}

// TestLargeTreesOnACUDADevice compares the logits of a tree of 256 nodes, and of eight of 60 in
// one pass, with the CPU's, and those of the longest paths bit for bit with plain decoding on
// the device.
func TestLargeTreesOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir := t.TempDir()
	if err := modeltest.Write(dir, modeltest.Default(), 3); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model.Options
		// Relative to the largest logit, as in TestTreesOnACUDADeviceHaveTheBitsOfPlainDecoding,
		// but for the tails of 30 times as many logits.
		tol float64
	}{
		{model.Options{DType: compute.F32, MaxRows: 512}, 1e-5},
		{model.Options{DType: compute.BF16, KV: compute.BF16, MaxRows: 512}, 1e-2},
		{model.Options{DType: compute.Q8, MaxRows: 512}, 5e-4},
	} {
		r := rand.New(rand.NewPCG(5, 7))
		token := func() int32 { return r.Int32N(int32(modeltest.Default().Vocab)) }
		prompt := make([]int32, 40)
		for i := range prompt {
			prompt[i] = token()
		}
		dev, err := cuda.New(cuda.Default())
		if err != nil {
			t.Fatal(err)
		}
		host, err := devices.OpenCPU(devices.Config{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		var models [2]*model.Model
		for i, d := range []compute.Device{dev, host} {
			if models[i], err = model.Load(dir, d, c.Options); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range forests(r, token, len(prompt)) {
			name := fmt.Sprintf("%v: %s", c.DType, f.name)
			seqs, got := f.score(t, models[0], prompt)
			_, want := f.score(t, models[1], prompt)
			closeToCPU(t, name, got, want, c.tol)
			for i := 0; i < len(f.trees); i += 3 {
				plainPath(t, fmt.Sprintf("%s, tree %d", name, i), seqs[i], f.trees[i], got[i])
			}
		}
		if err := errors.Join(models[0].Close(), models[1].Close(), dev.Close(), host.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// closeToCPU checks that logits are the CPU's, within tol of the largest, and that the most
// likely tokens are the CPU's unless two are that close.
func closeToCPU(t *testing.T, name string, got, want [][][]float32, tol float64) {
	t.Helper()
	big, off := 0.0, 0.0
	for i := range want {
		for n := range want[i] {
			for v, w := range want[i][n] {
				big, off = max(big, math.Abs(float64(w))), max(off, math.Abs(float64(w)-float64(got[i][n][v])))
			}
		}
	}
	if !(off <= tol*big) {
		t.Errorf("%s: off the CPU's logits by %g, of %g the largest; allowed are %g", name, off, big, tol*big)
	}
	tied, nodes := 0, 0
	for i := range want {
		for n := range want[i] {
			nodes++
			a, b := argmax(want[i][n]), argmax(got[i][n])
			if a == b {
				continue
			}
			tied++
			if gap := float64(want[i][n][a] - want[i][n][b]); gap > 2*tol*big {
				t.Errorf("%s: node %d of tree %d is followed by %d, on the CPU by %d, %g more likely", name, n, i, b, a, gap)
			}
		}
	}
	t.Logf("%s: off the CPU's logits by %.2g of the largest; another most likely token at %d of %d nodes", name, off/big, tied, nodes)
}

func argmax(x []float32) int { return slices.Index(x, slices.Max(x)) }

// plainPath decodes the longest path of a tree plainly and compares raw bits.
func plainPath(t *testing.T, name string, seq *model.Seq, tr *tree.Tree, got [][]float32) {
	t.Helper()
	deepest := 0
	for n := range tr.Len() {
		if tr.Depth(n) > tr.Depth(deepest) {
			deepest = n
		}
	}
	plain := seq.Fork()
	defer plain.Close()
	want := make([]float32, len(got[0]))
	for _, n := range tr.AppendPath(nil, deepest) {
		o, err := plain.Append(t.Context(), []int32{tr.Token(n)}, nil, model.WantLast)
		if err != nil {
			t.Fatal(err)
		}
		o.ReadLogits(want, o.LogitsRow(0, o.LastNode(0)))
		for i := range want {
			if math.Float32bits(got[n][i]) != math.Float32bits(want[i]) {
				t.Fatalf("%s: logit %d of node %d is %g, plain decoding's %g", name, i, n, got[n][i], want[i])
			}
		}
	}
}

// TestLargeDraftsOnACUDADevice decodes with drafted trees of 256 nodes, and eight sequences in
// one pass with trees of 60, and compares the output with plain decoding on the device.
func TestLargeDraftsOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	headDir := talftest.TinyHead(t, dir, 2)
	dev, err := cuda.New(cuda.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	opt := model.Default()
	opt.DType, opt.KV = compute.BF16, compute.BF16
	m, err := model.Load(dir, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	h, err := head.Load(headDir, m, head.Default())
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(2, 3))
	var prompts [][]int32
	for i := range 8 {
		p := make([]int32, 5+i)
		for j := range p {
			p[j] = 2 + r.Int32N(90)
		}
		prompts = append(prompts, p)
	}
	// decode returns the outputs of prompts that decode side by side, and the largest number of
	// nodes of a tree and of a pass.
	decode := func(method string, prompts [][]int32) (all [][]int32, nodes, rows int) {
		e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
		e.Config.MaxNodes = 256
		src := source.NewHead(h, 0)
		var seqs []*infer.Sequence
		pass := 0
		for _, p := range prompts {
			req := infer.Request{Prompt: p, MaxTokens: 3, NoEOS: true, Verifier: new(verify.Greedy)}
			req.Trace = func(round infer.Round) error {
				pass += round.Proposal.Tree.Len()
				nodes = max(nodes, round.Proposal.Tree.Len())
				return nil
			}
			if req.Processor, err = infer.NewSampling(sample.Greedy(), 0); err != nil {
				t.Fatal(err)
			}
			if method != "" {
				req.Source = src
				if req.Drafter, _, err = draft.New(method); err != nil {
					t.Fatal(err)
				}
			}
			s, err := e.Open(req)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close(s)
			seqs = append(seqs, s)
		}
		for {
			left := false
			for _, s := range seqs {
				_, done := s.Done()
				left = left || !done
			}
			if !left {
				break
			}
			pass = 0
			if err := e.Step(t.Context(), seqs); err != nil {
				t.Fatal(err)
			}
			rows = max(rows, pass)
		}
		for _, s := range seqs {
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			all = append(all, s.Tokens())
		}
		return all, nodes, rows
	}
	for _, c := range []struct {
		method      string
		sequences   int
		nodes, rows int
	}{
		{"beam:N=256,k=16,depth=3", 1, 256, 256},
		{"beam:N=60,k=8,depth=3", 8, 60, 480},
	} {
		got, nodes, rows := decode(c.method, prompts[:c.sequences])
		if nodes != c.nodes || rows != c.rows {
			t.Errorf("%s: at most %d nodes and %d rows, want %d and %d", c.method, nodes, rows, c.nodes, c.rows)
		}
		for i, p := range prompts[:c.sequences] {
			if plain, _, _ := decode("", [][]int32{p}); !slices.Equal(got[i], plain[0]) {
				t.Errorf("%s: sequence %d is %v, plainly %v", c.method, i, got[i], plain[0])
			}
		}
	}
}
