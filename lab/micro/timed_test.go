package micro_test

import (
	"slices"
	"testing"

	"talf/compute"
	"talf/compute/computetest"
	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/decode"
	"talf/infer/draft"
	"talf/lab/micro"
	"talf/model"
	"talf/model/modeltest"
)

func TestATimedQueueKeepsItsAbilities(t *testing.T) {
	wrap := func(q compute.Queue) compute.Queue { return micro.NewTimed(recorder{fixed: q}).Queue() }
	computetest.Decorates(t, wrap, map[string]computetest.Treatment{
		"Peaks": computetest.Wrapped, "Replay": computetest.Passed, "Choose": computetest.Passed, "Draw": computetest.Passed, "Bulk": computetest.Passed, "BF16": computetest.Passed,
		"Train": computetest.Passed, "Block": computetest.Passed, "Remote": computetest.Passed, "Stash": computetest.Passed, "Check": computetest.Passed, "Cancel": computetest.Passed,
		"Variants": computetest.Passed, "Latent": computetest.Passed, "Recur": computetest.Passed,
	})
}

// The timed path is the one that decoding takes: the same operations reach the device in the
// same order.
func TestATimedModelRunsTheSameOperations(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	dir := modeltest.Random(t, modeltest.Default(), 1)
	run := func(dev compute.Device, ops *[]string) []string {
		m, err := model.Load(dir, dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		*ops = nil
		out, err := m.NewSeq().Append(t.Context(), []int32{3, 1, 4}, nil, model.WantAll)
		if err != nil {
			t.Fatal(err)
		}
		out.TopK(make([]int32, 2*3), nil, 0, 3, 2)
		opt := decode.Default()
		opt.Method, opt.MaxTokens = "recycle", 6 // which asks for likely tokens after every pass
		mk, _, err := opt.Open(draft.Env{Vocab: m.Spec().Vocab})
		if err != nil {
			t.Fatal(err)
		}
		req, err := opt.Request(mk, nil, []int32{3, 1, 4, 1}, 1)
		if err != nil {
			t.Fatal(err)
		}
		e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
		if _, err := e.Generate(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		return *ops
	}
	var ops []string
	plain := run(recorder{Device: dev, ops: &ops}, &ops)
	timed := run(micro.NewTimed(recorder{Device: dev, ops: &ops}), &ops)
	if !slices.Equal(plain, timed) || !slices.Contains(plain, "LinearPeaks") || !slices.Contains(plain, "TopPeaks") || !slices.Contains(plain, "Attend") {
		t.Errorf("timed: %v\nplain: %v", timed, plain)
	}
}

// A recorder notes the matrix products and attention of its queues, and how likely tokens are found.
type recorder struct {
	compute.Device
	fixed compute.Queue // the queue, or nil for one of Device
	ops   *[]string
}

func (r recorder) Queue() compute.Queue {
	if r.fixed != nil {
		return r.fixed
	}
	return recordedQueue{r.Device.Queue(), r.ops}
}

type recordedQueue struct {
	compute.Queue
	ops *[]string
}

func (q recordedQueue) Linear(dst, x compute.Buffer, l *compute.Linear, epi compute.Epilogue, n int) {
	*q.ops = append(*q.ops, "Linear")
	q.Queue.Linear(dst, x, l, epi, n)
}

func (q recordedQueue) Attend(dst, qkv compute.Buffer, kv compute.KV, layer int, a *compute.Attention, s *compute.Step) {
	*q.ops = append(*q.ops, "Attend")
	q.Queue.Attend(dst, qkv, kv, layer, a, s)
}

func (q recordedQueue) TopK(ids, logp, logits compute.Buffer, k, n int) {
	*q.ops = append(*q.ops, "TopK")
	q.Queue.TopK(ids, logp, logits, k, n)
}

func (q recordedQueue) Abilities() compute.Abilities {
	can := q.Queue.Abilities()
	can.Peaks = recordedPeaks{can.Peaks, q.ops}
	return can
}

type recordedPeaks struct {
	compute.Peaker
	ops *[]string
}

func (p recordedPeaks) LinearPeaks(dst, peaks, x compute.Buffer, l *compute.Linear, n int) {
	*p.ops = append(*p.ops, "LinearPeaks")
	p.Peaker.LinearPeaks(dst, peaks, x, l, n)
}

func (p recordedPeaks) TopPeaks(ids, logp, logits, peaks compute.Buffer, row, k, n int) {
	*p.ops = append(*p.ops, "TopPeaks")
	p.Peaker.TopPeaks(ids, logp, logits, peaks, row, k, n)
}
