//go:build gpu && linux && cgo

package e2e

import (
	"fmt"
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
	"talf/model/sample"
)

// A token that the device draws is the host's, bit for bit: at quantiles that are as close to a token's boundary as numbers come.
func TestTokensDrawnOnACUDADeviceAreTheHosts(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dev, err := cuda.New(cuda.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	q := dev.Queue()
	can := q.Abilities()
	r := rand.New(rand.NewPCG(5, 21))
	for _, vocab := range []int{3, 130, 1000, 8200} {
		logits := make([]float32, vocab)
		for i := range logits {
			logits[i] = float32(3 * r.NormFloat64())
		}
		buf, err := dev.Alloc(compute.F32, 64, vocab)
		if err != nil {
			t.Fatal(err)
		}
		var rows []float32
		for range 64 {
			rows = append(rows, logits...)
		}
		q.Write(buf, rows)
		p := sample.Default()
		p.Temperature = 0.3 + r.Float64()
		s := sample.New(p, 0)
		by, _ := s.Scale()
		var draws []compute.Draw
		for len(draws) < 64 {
			// Between two quantiles with different tokens there are two neighbours with different tokens.
			lo, hi := r.Float64(), r.Float64()
			if lo > hi {
				lo, hi = hi, lo
			}
			first := s.Quantile(logits, lo)
			if s.Quantile(logits, hi) == first {
				continue
			}
			for mid := lo + (hi-lo)/2; mid > lo && mid < hi; mid = lo + (hi-lo)/2 {
				if s.Quantile(logits, mid) == first {
					lo = mid
				} else {
					hi = mid
				}
			}
			draws = append(draws, compute.Draw{By: by, U: lo}, compute.Draw{By: by, U: hi})
		}
		tokens := make([]int32, len(draws))
		can.Replay.Pass(len(draws))
		if !can.Draw.Draw(tokens, buf, draws, len(draws)) {
			t.Fatal("the device does not draw")
		}
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, d := range draws {
			if want := s.Quantile(logits, d.U); tokens[i] != want {
				t.Errorf("%d tokens, quantile %v: token %d, the host's %d", vocab, d.U, tokens[i], want)
			}
		}
	}
}

// A pass of more rows than are collected draws nothing, and says so: the host draws then.
func TestALargePassDrawsNothingOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dev, err := cuda.New(cuda.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	q := dev.Queue()
	can := q.Abilities()
	for rows, want := range map[int]bool{512: true, 513: false} {
		buf, err := dev.Alloc(compute.F32, rows, 2)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, 2*rows)
		q.Write(buf, x)
		tokens, draws := make([]int32, rows), make([]compute.Draw, rows)
		for i := range draws {
			tokens[i], draws[i] = 7, compute.Draw{By: 1, U: 0.75}
		}
		can.Replay.Pass(rows)
		if got := can.Draw.Draw(tokens, buf, draws, rows); got != want {
			t.Errorf("%d rows: Draw says %v", rows, got)
		}
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect := int32(7) // as it was
		if want {
			expect = 1
		}
		if i := slices.IndexFunc(tokens, func(id int32) bool { return id != expect }); i >= 0 {
			t.Errorf("%d rows: token %d is %d, want %d", rows, i, tokens[i], expect)
		}
	}
}

// TestSampledTextOnACUDADevice decodes with sampling: plainly and with trees, alone and in a batch, with every verifier.
// Text is that of plain decoding under the verifier that promises it, and the CPU's, whose logits are close; no
// round reads logits, or waits more than greedy decoding.
func TestSampledTextOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	headDir := talftest.TinyHead(t, dir, 2)
	meter := newMeter(t)
	emulated, err := cuda.New(cuda.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer emulated.Close()
	host, err := devices.OpenCPU(devices.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	params := func(temperature float64) sample.Params {
		p := sample.Default()
		p.Temperature = temperature
		return p
	}
	topP := params(1)
	topP.TopP = 0.9
	for _, dev := range []compute.Device{emulated, host} {
		m, err := model.Load(dir, dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if m.Draws() != (dev == emulated) {
			t.Fatalf("%s: the model says of draws: %v", dev.Name(), m.Draws())
		}
	}
	// decode returns the texts of requests that run together, and what the driver was asked in a round of the second half.
	decode := func(dev compute.Device, method, verifier string, ps ...sample.Params) (texts [][]int32, calls []tally) {
		t.Helper()
		m, err := model.Load(dir, dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
		var seqs []*infer.Sequence
		for i, p := range ps {
			req := infer.Request{Prompt: []int32{5, 7, 9, 11}, MaxTokens: 16, NoEOS: true, Seed: uint64(3 + i)}
			if req.Verifier, err = verify.New(verifier, p.Temperature); err != nil {
				t.Fatal(err)
			}
			if req.Processor, err = infer.NewSampling(p, len(req.Prompt)); err != nil {
				t.Fatal(err)
			}
			if method != "" {
				h, err := head.Load(headDir, m, head.Default())
				if err != nil {
					t.Fatal(err)
				}
				req.Source = source.NewHead(h, 0)
				mk, _, err := draft.Open(method, draft.Env{Temperature: p.Temperature, Vocab: m.Spec().Vocab})
				if err != nil {
					t.Fatal(err)
				}
				req.Drafter = mk.New()
			}
			s, err := e.Open(req)
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, s)
		}
		for left := true; left; {
			meter.take(emulated)
			if err := e.Step(t.Context(), seqs); err != nil {
				t.Fatal(err)
			}
			if tokens := len(seqs[0].Tokens()); tokens > 8 && tokens < 16 {
				calls = append(calls, meter.take(emulated))
			}
			left = slices.ContainsFunc(seqs, func(s *infer.Sequence) bool { _, done := s.Done(); return !done })
		}
		for _, s := range seqs {
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			texts = append(texts, s.Tokens())
			e.Close(s)
		}
		return texts, calls
	}
	for _, p := range []sample.Params{params(1), params(0.6), topP} {
		t.Run(fmt.Sprintf("temperature %v, top-p %v", p.Temperature, p.TopP), func(t *testing.T) {
			plain, calls := decode(emulated, "", "target", p)
			cpu, _ := decode(host, "", "target", p)
			if !slices.Equal(plain[0], cpu[0]) {
				t.Errorf("%v, on the CPU %v", plain, cpu)
			}
			for _, method := range []string{"beam:N=10,k=4,depth=3", "salf:th=0.4,N=12,B=4"} {
				if got, _ := decode(emulated, method, "target", p); !slices.Equal(got[0], plain[0]) {
					t.Errorf("%s: %v, plain decoding %v", method, got, plain)
				}
			}
			greedy, asked := decode(emulated, "", "greedy", sample.Greedy())
			t.Logf("a round asks %v of bytes %v, greedily %v of %v", calls[len(calls)-1].calls, calls[len(calls)-1].bytes, asked[len(asked)-1].calls, asked[len(asked)-1].bytes)
			vocab := 4 * talftest.TinyConfig().Vocab
			for _, c := range calls {
				if p.TopP == 1 && (c.calls["synchronize"] != 1 || c.calls["dtoh"] != 1 || c.bytes["dtoh"] > 64) {
					t.Errorf("a round asks %v of bytes %v, whose logits are %d", c.calls, c.bytes, vocab)
				}
			}
			// Beside others: one that is greedy, and one that is drawn from the host's distribution.
			beside, _ := decode(emulated, "", "", p, sample.Greedy(), topP)
			if !slices.Equal(beside[0], plain[0]) {
				t.Errorf("%v, beside others %v", plain[0], beside[0])
			}
			if !slices.Equal(beside[1], greedy[0]) {
				t.Errorf("greedy %v, beside others %v", greedy[0], beside[1])
			}
		})
	}
	// Verifiers that reject draw their residual tokens on the host.
	for verifier, method := range map[string]string{"rrs": "static:binary-3,draw=repeated", "rrsw": "static:binary-3,draw=distinct", "traversal": "static:binary-3,draw=distinct", "block": "static:chain-3,draw=distinct"} {
		p := params(1)
		got, _ := decode(emulated, method, verifier, p)
		want, _ := decode(host, method, verifier, p)
		if !slices.Equal(got[0], want[0]) {
			t.Errorf("%s, %s: %v, on the CPU %v", method, verifier, got[0], want[0])
		}
	}
}
