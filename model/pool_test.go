package model_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/modeltest"
	"talf/tree"
)

// A pass that finds the pool full says what it needs, changes nothing, and runs once another
// sequence has given its blocks back, with the bits that it has in a pool without a bound.
func TestAFullPoolRefusesAPassBeforeItBegins(t *testing.T) {
	ctx := context.Background()
	dir := modeltest.Random(t, modeltest.Default(), 5)
	opt := model.Default()
	opt.KVBlocks = 4
	m := load(t, dir, device(t, kern.Best(), 1), opt)
	text := make([]int32, 3*compute.BlockLen)
	for i := range text {
		text[i] = int32(i % 90)
	}
	first, second := m.NewSeq(), m.NewSeq()
	must[*model.Output](t)(first.Append(ctx, text[:50], nil, model.WantNone))  // 2 blocks
	must[*model.Output](t)(second.Append(ctx, text[:31], nil, model.WantNone)) // 1 block
	before := m.KV()
	if want := (model.KVStats{BlockTokens: compute.BlockLen, Total: 4, Used: 3, Free: 1, Held: before.Held, Layout: before.Layout}); before != want {
		t.Fatalf("pool %+v, want %+v", before, want)
	}
	if n := second.BlocksFor(1); n != 0 {
		t.Errorf("one more position takes %d blocks, want 0", n)
	}
	if n := second.BlocksFor(50); n != 2 {
		t.Errorf("50 more positions take %d blocks, want 2", n)
	}

	// Two segments that would fit alone, but not together.
	trees := []*tree.Tree{chainOf(text[:20]), chainOf(text[:10])}
	batch := []model.Segment{
		{Rows: first.Branch(50), Tree: trees[0], Want: model.WantLast},
		{Rows: second.Branch(31), Tree: trees[1], Want: model.WantLast},
	}
	_, err := m.Forward(ctx, batch)
	var full *model.KVFullError
	if !errors.Is(err, model.ErrKVFull) || !errors.As(err, &full) || full.Need != 2 || full.Free != 1 || full.Total != 4 {
		t.Fatalf("error %v, want one that needs 2 blocks of 1", err)
	}
	if s := err.Error(); !strings.Contains(s, "needs 2 more blocks") || !strings.Contains(s, "1 of 4 are free") {
		t.Errorf("the error %q lacks its figures", s)
	}
	if got := m.KV(); got != before {
		t.Errorf("pool %+v after the refusal, want %+v", got, before)
	}
	batch[0].Rows.Drop()
	first.Close()
	out := must[*model.Output](t)(m.Forward(ctx, batch[1:]))
	got := make([]float32, m.Spec().Vocab)
	out.ReadLogits(got, 0)

	free := load(t, dir, device(t, kern.Best(), 1), model.Default())
	want, _ := run(t, free, append(append([]int32{}, text[:31]...), text[:10]...), 64)
	if err := sameBits(got, want[len(want)-len(got):]); err != nil {
		t.Errorf("after the refusal: %v", err)
	}
}

func chainOf(tokens []int32) *tree.Tree {
	t := tree.New(tokens[0], len(tokens))
	for i, id := range tokens[1:] {
		t.Add(i, id)
	}
	return t
}

// Forks share blocks, branches take scratch slots and sequences copy tails that they share:
// whatever happens, a pass takes as many blocks as it was said to need, not one less would do,
// and no block is lost.
func TestAPassTakesTheBlocksThatItNeeds(t *testing.T) {
	ctx := context.Background()
	m := small(t)
	rapid.Check(t, func(t *rapid.T) {
		m.Bound(1 << 20)
		var seqs []*model.Seq
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			pick := func() *model.Seq { return seqs[rapid.IntRange(0, len(seqs)-1).Draw(t, "sequence")] }
			op := rapid.IntRange(0, 5).Draw(t, "operation")
			switch {
			case len(seqs) == 0 || op == 0:
				seqs = append(seqs, m.NewSeq())
			case op == 1:
				seqs = append(seqs, pick().Fork())
			case op == 2:
				s := pick()
				s.Truncate(rapid.IntRange(0, s.Len()).Draw(t, "length"))
			case op == 3:
				i := rapid.IntRange(0, len(seqs)-1).Draw(t, "closed")
				seqs[i].Close()
				seqs = append(seqs[:i], seqs[i+1:]...)
			default:
				var batch []model.Segment
				alone := 0
				for i, s := range seqs {
					if !rapid.Bool().Draw(t, fmt.Sprint("run ", i)) {
						continue
					}
					n := rapid.IntRange(1, 40).Draw(t, "nodes")
					if s.Len()+n > 200 {
						continue
					}
					at := s.Len()
					if rapid.Bool().Draw(t, "label") {
						at = rapid.IntRange(0, at).Draw(t, "prefix")
					}
					if at == s.Len() {
						alone = s.BlocksFor(n)
					}
					batch = append(batch, model.Segment{Rows: s.Branch(at), Tree: chainOf(make([]int32, n)), Want: model.WantNone})
				}
				if len(batch) == 0 {
					continue
				}
				need, used := m.Needs(batch), m.KV().Used
				if need > 0 {
					m.Bound(used + need - 1)
					if _, err := m.Forward(ctx, batch); !errors.Is(err, model.ErrKVFull) || m.KV().Used != used {
						t.Fatalf("with one block less than %d: error %v, %d blocks in use, want %d", need, err, m.KV().Used, used)
					}
				}
				m.Bound(used + need)
				if _, err := m.Forward(ctx, batch); err != nil {
					t.Fatalf("with %d blocks: %v", need, err)
				}
				// A sequence that copies its tail may be the last one that held it elsewhere.
				if got := m.KV().Used; got != used+need {
					t.Fatalf("%d blocks in use, want %d and %d", got, used, need)
				}
				m.Bound(1 << 20)
				if len(batch) == 1 && alone > 0 && alone != need {
					t.Fatalf("BlocksFor says %d, the pass took %d", alone, need)
				}
				for _, g := range batch {
					path := make([]int, rapid.IntRange(0, g.Tree.Len()).Draw(t, "path"))
					for i := range path {
						path[i] = i
					}
					if len(path) == 0 || g.Rows.Commit(path) != nil {
						g.Rows.Drop()
					}
				}
			}
		}
		for _, s := range seqs {
			s.Close()
		}
		if used := m.KV().Used; used != 0 {
			t.Fatalf("%d blocks are in use at the end", used)
		}
	})
}

// What a burst of sequences took goes back to the system while ordinary requests go on, and a
// sequence that comes again and again finds its memory as it left it.
func TestABurstGivesItsMemoryBack(t *testing.T) {
	ctx := context.Background()
	c := modeltest.Default()
	c.Layers, c.KVHeads, c.Heads, c.HeadDim = 4, 4, 4, 64 // 256 KiB a block
	m := load(t, modeltest.Random(t, c, 5), device(t, kern.Best(), 1), model.Default())
	text := make([]int32, 160)
	var burst []*model.Seq
	for range 60 {
		s := m.NewSeq()
		must[*model.Output](t)(s.Append(ctx, text, nil, model.WantNone))
		burst = append(burst, s)
	}
	peak := m.KV()
	if peak.Used != 60*5 || peak.Held < peak.Used {
		t.Fatalf("pool %+v, want 300 blocks in use", peak)
	}
	before := residentKiB(t)
	for _, s := range burst {
		s.Close()
	}
	one := func() {
		s := m.NewSeq()
		must[*model.Output](t)(s.Append(ctx, text, nil, model.WantNone))
		s.Close()
	}
	for range 70 {
		one()
	}
	after := m.KV()
	blockKiB := int(m.PositionBytes()) * compute.BlockLen >> 10
	if after.Held > 20 {
		t.Errorf("%d blocks hold memory after 70 requests of 5 blocks, want at most 20", after.Held)
	}
	if before > 0 { // 0: not known on this system
		given, want := before-residentKiB(t), (peak.Held-after.Held)*blockKiB
		t.Logf("burst: %d blocks held; afterwards %d; %d KiB went back to the system, of %d", peak.Held, after.Held, given, want)
		if given < want*9/10 {
			t.Errorf("%d KiB went back to the system, want %d", given, want)
		}
	}
	m.ReleaseKV()
	if s := m.KV(); s.Used != 0 || s.Held != 0 {
		t.Errorf("pool %+v after ReleaseKV, want nothing", s)
	}
	// The blocks that were given back hold what is written to them.
	want := greedy(t, load(t, modeltest.Random(t, c, 5), device(t, kern.Best(), 1), model.Default()), text[:40], 8)
	if got := greedy(t, m, text[:40], 8); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after ReleaseKV: %v, want %v", got, want)
	}
}

// residentKiB returns the memory that this process has, or 0 where the system does not say.
func residentKiB(t *testing.T) (kib int) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, ok := strings.Cut(string(b), "VmRSS:")
	if _, err := fmt.Sscan(rest, &kib); !ok || err != nil {
		t.Fatalf("no VmRSS in the process's status: %v", err)
	}
	return kib
}
