package train

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/data"
	"talf/train/mix"
	"talf/train/profile"
)

// reportOf reads the report in a directory of a profile.
func reportOf(t *testing.T, dir string) (r profile.Report) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, profile.JSONFile))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A profiled run has the bits of any other, and its files tell what its steps did.
func TestAProfileSaysWhatAStepCosts(t *testing.T) {
	dev := device(t, 2)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.BF16)
	cfg := tinyConfig()
	cfg.Steps, cfg.Loss = 5, "talf"
	plain, out, prof := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "new", "profile")
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: plain}); err != nil {
		t.Fatal(err)
	}
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Profile: prof}); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, "a profiled run", files(t, out), files(t, plain))

	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(prof, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, name := range []string{profile.CPUFile, profile.HeapFile} {
		if b := read(name); len(b) < 2 || b[0] != 0x1f || b[1] != 0x8b { // gzip
			t.Errorf("%s is no profile: %d bytes", name, len(b))
		}
	}
	s := reportOf(t, prof)
	if s.Steps != 4 || s.Seconds <= 0 || s.SGEMM <= 0 || s.Memory <= 0 || s.Device != dev.Name() {
		t.Errorf("%+v", s)
	}
	sum := 0.0
	by := make(map[string]profile.Op)
	for _, o := range s.Ops {
		sum += o.Share
		if by[o.Op].Op != "" || o.Seconds < 0 || o.Calls <= 0 {
			t.Errorf("%+v, and %+v", o, by[o.Op])
		}
		by[o.Op] = o
	}
	if math.Abs(sum-1) > 1e-6 {
		t.Errorf("the shares are %v in all", sum)
	}
	if !slices.IsSortedFunc(s.Ops, func(a, b profile.Op) int { return cmp.Compare(b.Seconds, a.Seconds) }) {
		t.Error("the longest are not the first")
	}
	// For a product, rows, inputs and outputs determine everything: a gradient costs as much as
	// the operation, on as many rows.
	spec := target.Spec()
	lm, gu := by["soft_ce lm_head"], by["linear layers.0.gate_up"]
	if lm.Calls < 2 || gu.Calls != lm.Calls {
		t.Errorf("levels: %v of the loss, %v of the layer", lm.Calls, gu.Calls)
	}
	rows := gu.FLOP / float64(4*spec.FFN*spec.Hidden)
	if rows < 1 || by["linear.d0 layers.0.gate_up"].FLOP != gu.FLOP || by["linear.d1 layers.0.gate_up"].FLOP != gu.FLOP {
		t.Errorf("gate and up: %+v, rows %v", gu, rows)
	}
	if want := rows * float64(spec.Vocab*(4*spec.Hidden+5)); math.Abs(lm.FLOP-want) > 1e-6*want {
		t.Errorf("the loss: %v FLOP, want %v", lm.FLOP, want)
	}
	for _, op := range []string{"read", "pack", "other", "adamw", "sum_squares", "attend", "attend.d0", "rope.d0", "embed embed", "norm.d0 layers.0.post_norm"} {
		if by[op].Op == "" {
			t.Errorf("no %s", op)
		}
	}
	text := string(read(profile.TextFile))
	for _, want := range []string{"4 steps of ", "linear.d1 layers.0.gate_up\n", " linear.d1\n", "roofline"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// What a block head computes beside the operations of other heads is counted, too.
func TestAProfileCountsTheOperationsOfBlockHeads(t *testing.T) {
	target := tinyTarget(t, device(t, 2))
	set := tinyData(t, target, 20, data.None)
	const h, rank, top = 16, 3, 5
	for network, want := range map[string][]string{
		"block:size=4,taps=0+1,conv=4,selector=3,top=5":         {"convolve", "convolve.d0", "mul", "mul.d0", "mul.d1", "candidates", "attend", "attend.d0"},
		"block:size=4,taps=0,markov=gated,rank=3,confidence=on": {"gate", "gate.d0", "logistic"},
	} {
		cfg, dir := tinyConfig(), t.TempDir()
		cfg.Steps, cfg.Network, cfg.Loss = 3, network, "dflash"
		if _, err := Head(t.Context(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Profile: dir}); err != nil {
			t.Fatal(err)
		}
		by := make(map[string]profile.Op) // and by no weight
		for _, o := range reportOf(t, dir).Ops {
			kind, _, _ := strings.Cut(o.Op, " ")
			by[kind] = profile.Op{FLOP: by[kind].FLOP + o.FLOP, Bytes: by[kind].Bytes + o.Bytes}
		}
		for _, op := range want {
			if o := by[op]; o.FLOP <= 0 || o.Bytes <= 0 {
				t.Errorf("%s: %s has %v FLOP and %v bytes", network, op, o.FLOP, o.Bytes)
			}
		}
		if rows := by["mul"].FLOP / rank; rows > 0 {
			v := float64(target.Spec().Vocab)
			flop := rows * (v*(2*h+1) + top*(6*(h+rank)+5))
			if got := by["candidates"].FLOP; math.Abs(got-flop) > 1e-6*flop {
				t.Errorf("the selector's loss: %v FLOP, want %v", got, flop)
			}
		}
	}
}

// A directory that cannot be created stops a run before its first step.
func TestAProfileThatCannotBeWrittenIsRefused(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.BF16)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Head(context.Background(), tinyConfig(), HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Profile: file})
	if err == nil || !strings.Contains(err.Error(), "profile: ") || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

// Only the first rank writes a profile: if it cannot, the others do not wait for it.
func TestAProfileThatCannotBeWrittenStopsAllRanks(t *testing.T) {
	r := newRanked(t, 2)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	r.job = func(rank int, j *HeadJob) {
		if rank == 0 {
			j.Profile = file
		}
	}
	_, errs := r.run(2)
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "rank 0: profile: ") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if testing.Short() {
		return
	}
	// The first rank's work does not depend on whether it is measured.
	r.job = func(rank int, j *HeadJob) {
		if rank == 0 {
			j.Profile = filepath.Join(file+"s", "here")
		}
	}
	r.trains(2)
	profiled := files(t, r.out)
	r.job, r.out = nil, filepath.Join(t.TempDir(), "plain")
	r.trains(2)
	sameFiles(t, "a profiled run of two ranks", profiled, files(t, r.out))
}

// The measurements of an interrupted run are written, and so is a profile of the run that
// continues it.
func TestAnInterruptedRunIsProfiled(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.BF16)
	cfg := tinyConfig()
	cfg.DType = BF16
	out, prof := t.TempDir(), t.TempDir()
	steps := func() int {
		t.Helper()
		return reportOf(t, prof).Steps
	}
	ctx, report := stopAfter(3)
	if _, err := Head(ctx, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Profile: prof, Report: report}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n := steps(); n != 2 && n != 3 { // the first does not count; the one in progress may
		t.Errorf("%d steps were measured before the interruption", n)
	}
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Profile: prof}); err != nil {
		t.Fatal(err)
	}
	if n, want := steps(), cfg.Steps-3-1; n != want {
		t.Errorf("%d steps were measured, want %d", n, want)
	}
	if testing.Short() {
		return
	}
	plain := t.TempDir()
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: plain}); err != nil {
		t.Fatal(err)
	}
	got, want := files(t, out), files(t, plain)
	last := fmt.Sprintf("step-%08d", cfg.Steps)
	for name := range want {
		if strings.HasPrefix(name, last) && !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s differs from an uninterrupted run's", name)
		}
	}
}
