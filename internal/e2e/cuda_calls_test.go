//go:build gpu && linux && cgo

package e2e

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"talf/compute"
	"talf/compute/cuda"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/internal/e2e/talftest"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/model/safetensors"
	"talf/model/sample"
)

// A meter reads the calls that the emulated driver received.
type meter struct {
	t    *testing.T
	name string
	at   int64
}

func newMeter(t *testing.T) *meter {
	m := &meter{t: t, name: filepath.Join(t.TempDir(), "trace")}
	if err := os.WriteFile(m.name, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TALF_FAKE_TRACE", m.name)
	return m
}

// A tally is calls of the driver and their bytes, by name.
type tally struct {
	calls, bytes map[string]int
}

// take returns the calls since the last time, including what is queued.
func (m *meter) take(dev compute.Device) tally {
	m.t.Helper()
	if _, err := dev.Abilities().Plan.Free(); err != nil { // asked after all that is queued
		m.t.Fatal(err)
	}
	b, err := os.ReadFile(m.name)
	if err != nil {
		m.t.Fatal(err)
	}
	y := tally{map[string]int{}, map[string]int{}}
	for _, line := range strings.Split(strings.TrimSpace(string(b[m.at:])), "\n") {
		var name string
		var n int
		if _, err := fmt.Sscan(line, &name, &n); err == nil {
			y.calls[name]++
			y.bytes[name] += n
		}
	}
	m.at = int64(len(b))
	return y
}

// A metered source counts its passes, one per level of a draft tree, and the calls between them:
// verification, verdict and commits.
type metered struct {
	infer.Source
	m      *meter
	dev    compute.Device
	levels []tally
	rounds []tally
	wide   []int    // rows that a level asked for
	first  []bool   // whether a level is the first of its tree
	seen   []uint32 // nodes that were asked, and answers
	head   *source.Head
	single bool // levels are not to run before they are asked for
}

func (*metered) Abilities() infer.Abilities { return infer.Abilities{} }

func (s *metered) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	if len(asks) == 0 { // a chunk of the prompt
		return s.Source.Rows(ctx, asks)
	}
	if asks[0].From == 0 {
		s.rounds = append(s.rounds, s.m.take(s.dev))
	} else {
		s.m.take(s.dev)
	}
	for i := range asks {
		asks[i].Full = asks[i].Full || s.single // whole rows cannot be read ahead
		for n := asks[i].From; n < asks[i].Tree.Len(); n++ {
			s.seen = append(s.seen, uint32(asks[i].Tree.Token(n)), uint32(asks[i].Tree.Parent(n)))
		}
	}
	rows, err := s.Source.Rows(ctx, asks)
	for i := range rows {
		rows[i].Logits = nil
		for j, token := range rows[i].Tokens {
			s.seen = append(s.seen, uint32(token), math.Float32bits(rows[i].LogProb[j]))
		}
	}
	s.levels, s.wide, s.first = append(s.levels, s.m.take(s.dev)), append(s.wide, len(rows)), append(s.first, asks[0].From == 0)
	return rows, err
}

// decodeMetered decodes a text of so many tokens with a method that asks the head in headDir; without one if method is empty.
func decodeMetered(t *testing.T, meter *meter, c cuda.Config, dir, headDir, method string, tokens int, alone bool) ([]int32, *metered) {
	t.Helper()
	dev, err := cuda.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Load(dir, dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	req := infer.Request{Prompt: []int32{5, 7, 9, 11}, MaxTokens: tokens, NoEOS: true, Verifier: new(verify.Greedy)}
	if req.Processor, err = infer.NewSampling(sample.Greedy(), 0); err != nil {
		t.Fatal(err)
	}
	var src *metered
	if method != "" {
		h, err := head.Load(headDir, m, head.Default())
		if err != nil {
			t.Fatal(err)
		}
		src = &metered{m: meter, dev: dev, single: alone, head: source.NewHead(h, 0)}
		src.Source = src.head
		src.head.Pace(time.Second, time.Microsecond) // a device whose waits are dear, which the emulated one is not
		req.Source = src
		if req.Drafter, _, err = draft.New(method); err != nil {
			t.Fatal(err)
		}
	}
	e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
	s, err := e.Generate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return s.Tokens(), src
}

// TestLevelsThatRunAhead counts what drafts of each method wait for the device, when levels run before they are
// asked for and when they do not.
func TestLevelsThatRunAhead(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir := peakedModel(t, 3)
	headDir := talftest.TinyHead(t, dir, 2)
	meter := newMeter(t)
	const tokens = 20
	plain, _ := decodeMetered(t, meter, cuda.Default(), dir, headDir, "", tokens, false)
	for _, c := range []struct {
		method string
		waits  float64 // of a round, on average
	}{
		{"beam:N=16,k=4,depth=6", 2},
		{"optimal:N=24,B=4", 2.5},
		{"salf:N=24,B=4,th=0.1", 2.5},
		{"static", 9}, // which asks by rank: what is guessed is wrong, and not guessed again for a while
		{"dynatree:root=3,tau=0,stop=0,deep=0,Dmax=5,N=24", 2.5},
	} {
		got, src := decodeMetered(t, meter, cuda.Default(), dir, headDir, c.method, tokens, false)
		if !slices.Equal(got, plain) {
			t.Errorf("%s: %v, plain decoding %v", c.method, got, plain)
		}
		_, one := decodeMetered(t, meter, cuda.Default(), dir, headDir, c.method, tokens, true)
		if !slices.Equal(src.seen, one.seen) {
			t.Errorf("%s: levels that run ahead ask and answer otherwise", c.method)
		}
		waits, levels := src.perRound()
		ran, asked := src.head.RanAhead()
		t.Logf("%s: a round asks for %.2f levels and waits %.2f times; of %d nodes that ran ahead %d were asked for", c.method, levels, waits, ran, asked)
		if waits > c.waits || waits > levels {
			t.Errorf("%s: a round waits %.2f times and asks for %.2f levels, want at most %.2f waits", c.method, waits, levels, c.waits)
		}
	}
}

// peakedModel writes a random model whose distributions have most of their mass in few tokens, as those of trained
// models do: a tree then has likely paths.
func peakedModel(t *testing.T, gain float32) string {
	t.Helper()
	c := talftest.TinyConfig()
	dir := talftest.TinyModel(t, c, 1)
	tensors := modeltest.Tensors(c.Spec(), false, 1)
	for i := range tensors {
		if x := &tensors[i]; x.Name == "lm_head.weight" {
			v, err := x.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			v = slices.Clone(v)
			for j := range v {
				v[j] *= gain
			}
			*x = safetensors.F32(x.Name, v, x.Shape...)
		}
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), map[string]string{"format": "pt"}, tensors...); err != nil {
		t.Fatal(err)
	}
	return dir
}

// perRound returns how often a round waits for the device, and how many levels it asks for, without the first rounds.
func (s *metered) perRound() (waits, levels float64) {
	rounds, from := 0, len(s.levels)/3
	for i, l := range s.levels[from:] {
		if s.first[from+i] {
			rounds++
		}
		if rounds > 0 {
			waits, levels = waits+float64(l.calls["synchronize"]), levels+1
		}
	}
	return waits / float64(rounds), levels / float64(rounds)
}

// TestCallsOfTheCUDADriver counts the driver calls of decoding with a head: a level of the draft
// tree waits once and reads one small piece, its likely tokens, and so does a verification,
// whose tree and commits cost a handful of calls.
func TestCallsOfTheCUDADriver(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	headDir := talftest.TinyHead(t, dir, 2)
	meter := newMeter(t)
	alone := false
	decode := func(c cuda.Config, method string) ([]int32, *metered) {
		return decodeMetered(t, meter, c, dir, headDir, method, 16, alone)
	}
	plain, _ := decode(cuda.Default(), "")
	for method, width := range map[string]int{"salf:th=0.4,N=12,B=4": 11, "beam:N=10,k=4,depth=3": 4, "beam:N=16,k=4,depth=6": 4} {
		got, src := decode(cuda.Default(), method)
		if !slices.Equal(got, plain) {
			t.Errorf("%s: %v, plain decoding %v", method, got, plain)
		}
		single, _ := decode(cuda.Config{NoGraphs: true}, method)
		if !slices.Equal(single, plain) {
			t.Errorf("%s without graphs: %v, plain decoding %v", method, single, plain)
		}
		alone = true
		_, one := decode(cuda.Default(), method)
		if alone = false; !slices.Equal(src.seen, one.seen) {
			t.Errorf("%s: levels that run ahead ask and answer otherwise", method)
		}
		// Passes of the first rounds allocate memory and build graphs.
		half := len(src.levels) / 2
		levels, wide, first, rounds := src.levels[half:], src.wide[half:], src.first[half:], src.rounds[len(src.rounds)/2:]
		if len(levels) < 6 || len(rounds) < 3 {
			t.Fatalf("%s: %d levels and %d rounds are too few", method, len(levels), len(rounds))
		}
		replayed, waits, most, ahead := 0, 0, 0, 0
		for i, l := range levels {
			if first[i] {
				waits = 0
			}
			waits += l.calls["synchronize"]
			most = max(most, waits)
			if len(l.calls) == 0 && strings.HasPrefix(method, "beam") {
				ahead++ // it has run with the level before
				replayed++
				continue
			}
			replayed += l.calls["graph"]
			if i > 0 && first[i-1] && strings.HasPrefix(method, "beam") {
				if l.calls["synchronize"] != 1 || l.calls["dtoh"] > 6 || l.bytes["dtoh"] > 16<<10 || l.calls["htod"] > 2 || l.bytes["htod"] > 128<<10 || l.calls["dtod"] != 0 || l.calls["graph"] == 1 && l.calls["launch"] > 1 {
					t.Errorf("%s: levels that run ahead ask %v, of bytes %v", method, l.calls, l.bytes)
				}
				continue
			}
			// Up: the arguments of the pass, and which hidden states it leaves to the next: f̂
			// and, if several positions were true, the last of them. Down: ids and
			// log-probabilities of a bucket of rows.
			left := 1
			if first[i] {
				left = 2
			}
			if most := 8 * width * bucketOf(wide[i]); l.calls["synchronize"] != 1 || l.calls["dtoh"] != 1 || l.bytes["dtoh"] > most ||
				l.calls["htod"] > 1+left || l.bytes["htod"] > 32<<10 || l.calls["dtod"] != 0 {
				t.Errorf("%s: a level of %d rows asks %v, of bytes %v, which may be %d down", method, wide[i], l.calls, l.bytes, most)
			}
			if l.calls["graph"] == 1 && l.calls["launch"] > left {
				t.Errorf("%s: a level that is replayed asks %v", method, l.calls)
			}
		}
		if strings.HasPrefix(method, "beam") && (most > 2 || ahead == 0) {
			t.Errorf("%s: a draft waits %d times, and %d levels have run ahead", method, most, ahead)
		}
		if 2*replayed < len(levels) {
			t.Errorf("%s: %d of %d levels are replayed", method, replayed, len(levels))
		}
		replayed = 0
		for _, r := range rounds {
			replayed += r.calls["graph"]
			// A commit moves keys and values, and leaves the hidden states of the path to the
			// head.
			if r.calls["synchronize"] != 1 || r.calls["dtoh"] != 1 || r.bytes["dtoh"] > 8*16 || r.calls["htod"] > 4 || r.bytes["htod"] > 32<<10 {
				t.Errorf("%s: a verification asks %v, of bytes %v", method, r.calls, r.bytes)
			}
		}
		if 2*replayed < len(rounds) {
			t.Errorf("%s: %d of %d verifications are replayed", method, replayed, len(rounds))
		}
		t.Logf("%s: levels %v …, verifications %v …", method, levels[0], rounds[0])
	}
}

// bucketOf returns the number of rows that are read for n.
func bucketOf(n int) int {
	for _, b := range []int{1, 8, 16} {
		if n <= b {
			return b
		}
	}
	return 32
}

// TestMemoryOfACUDADeviceIsPlanned loads a model whose keys and values do not fit.
func TestMemoryOfACUDADeviceIsPlanned(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	args := []string{"generate", "--model", dir, "--prompt", "x", "--max-tokens", "2", "--device", "cuda:0"}
	if got, want := talftest.OK(t, "", append(args, "--kv-positions", "1000")...), talftest.OK(t, "", append(args, "--kv-positions", "0")...); got != want {
		t.Errorf("%q with memory set aside, %q without", got, want)
	}
	talftest.Run(t, "", append(args, "--kv-positions", "100000000")...).Refuses(t, 1, "does not fit", "of keys and values as F32 of 100000000 positions", "are free; ")

	// Labelling has logits of all rows of a pass at one time.
	t.Setenv("TALF_FAKE_MEMORY", "200000000")
	label := []string{"preprocess", "--model", dir, "--data", fewTexts(t), "--out", filepath.Join(t.TempDir(), "set"), "--device", "cuda:0", "--tokens", "256"}
	talftest.Run(t, "", append(label, "--rows", "65536")...).Refuses(t, 1, "does not fit", "of 256 positions", "what would: ", "passes of ")
}
