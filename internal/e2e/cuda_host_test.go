//go:build gpu && linux && cgo

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"talf/compute"
	"talf/compute/cuda"
	"talf/compute/cuda/cudatest"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/internal/e2e/talftest"
	"talf/model"
	"talf/model/head"
	"talf/model/sample"
)

// envNull marks the process that has the driver which does nothing.
const envNull = "TALF_FAKE_NULL"

// onNullDriver runs the benchmark again in a process whose driver returns from every call at once,
// and reports true in that process.
func onNullDriver(b *testing.B) bool {
	b.Helper()
	if os.Getenv(envNull) != "" {
		return true
	}
	dir, err := cudatest.Driver(cudatest.Kernels())
	if errors.Is(err, cudatest.ErrNoCompiler) {
		b.Skip(err)
	}
	if err != nil {
		b.Fatal(err)
	}
	c := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^"+b.Name()+"$", "-test.benchmem", "-test.benchtime=3s")
	c.Env = append(cudatest.Environ(os.Environ(), dir), envNull+"=1", "TALF_FAKE_MEMORY=80000000000")
	out, err := c.CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for _, line := range strings.Split(string(out), "\n") {
		if strings.HasPrefix(line, "Benchmark") {
			fmt.Println(line)
		}
	}
	return false
}

// BenchmarkHostOfCUDA measures what the host does in a round of decoding on a device that takes no
// time: the launches of 32 layers of an 8B Llama, whose numbers do not depend on how wide the
// weights are, and those of a head of its shape. One operation is a round: a pass of the target,
// with a draft tree of that many levels before it; for a level, divide the difference.
func BenchmarkHostOfCUDA(b *testing.B) {
	if !onNullDriver(b) {
		return
	}
	c := talftest.TinyConfig()
	c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.Hidden, c.FFN, c.MaxPos = 32, 32, 8, 128, 64, 128, 1<<20
	c.EOS = -1
	dir := talftest.TinyModel(b, c, 1)
	headDir := talftest.TinyHead(b, dir, 2)
	for _, method := range []string{"", "beam:N=10,k=4,depth=3", "beam:N=60,k=10,depth=6", "optimal:N=60", "dynatree:root=4,tau=0,stop=0,deep=0,Dmax=6,N=60"} {
		name := method
		if name == "" {
			name = "ar"
		}
		b.Run(name, func(b *testing.B) { hostOfRounds(b, dir, headDir, method) })
	}
}

func hostOfRounds(b *testing.B, dir, headDir, method string) {
	dev, err := cuda.New(cuda.Default())
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Load(dir, dev, model.Options{DType: compute.BF16, MaxRows: 512})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	req := infer.Request{Prompt: []int32{5, 7, 9, 11}, MaxTokens: 1 << 19, NoEOS: true, Verifier: new(verify.Greedy)}
	if req.Processor, err = infer.NewSampling(sample.Greedy(), 0); err != nil {
		b.Fatal(err)
	}
	if method != "" {
		h, err := head.Load(headDir, m, head.Default())
		if err != nil {
			b.Fatal(err)
		}
		req.Source = source.NewHead(h, 0)
		if req.Drafter, _, err = draft.New(method); err != nil {
			b.Fatal(err)
		}
	}
	e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
	s, err := e.Open(req)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close(s)
	step := func() {
		if err := e.Step(b.Context(), []*infer.Sequence{s}); err != nil {
			b.Fatal(err)
		}
	}
	for range 64 { // the prompt, memory and graphs
		step()
	}
	before, busy := *s.Stats(), processorTime(b)
	for b.Loop() {
		step()
	}
	after := *s.Stats()
	busy = processorTime(b) - busy
	rounds := float64(after.Passes - before.Passes)
	b.ReportMetric(float64(busy.Microseconds())/rounds, "cpu-us/op") // of all threads: other work on the machine does not add to it
	b.ReportMetric(float64((after.Verify-before.Verify).Microseconds())/rounds, "pass-us/op")
	b.ReportMetric(float64((after.Draft-before.Draft).Microseconds())/rounds, "draft-us/op")
	b.ReportMetric(float64((after.Overhead-before.Overhead).Microseconds())/rounds, "rest-us/op")
	b.ReportMetric(float64(after.Drafted-before.Drafted)/rounds, "nodes/op")
}

// processorTime returns the time that processors have spent on this process.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
