package replay_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"talf/internal/limits"
	"talf/internal/limits/costtest"
	"talf/lab/replay"
)

const begin = "talf recording 1\n"

// unpackedRecording returns what a small recording has between its first line and compression.
func unpackedRecording(tb testing.TB) []byte {
	tb.Helper()
	r := &replay.Recording{
		Vocab: 9, MaxLen: 9, MaxTokens: 2,
		Texts: []replay.Text{{Set: "a", Prompt: "0", Start: 1, Tokens: []int32{1, 2}}},
		Channels: []replay.Channel{{Name: "target", Costs: []replay.Cost{{Rows: 1, Seconds: 1}}, Rows: []replay.Nodes{{
			Parent: []int32{-1}, Token: []int32{0}, Next: []replay.Candidates{{Token: []int32{2}, LogProb: []float32{-1}}},
		}}}},
	}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		tb.Fatal(err)
	}
	z, err := gzip.NewReader(strings.NewReader(strings.TrimPrefix(b.String(), begin)))
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func pack(tb testing.TB, raw []byte) []byte {
	tb.Helper()
	b := bytes.NewBufferString(begin)
	z := gzip.NewWriter(b)
	if _, err := z.Write(raw); err != nil {
		tb.Fatal(err)
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func TestMutatedRecordingsAreCheap(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 200
	}
	i := 0
	for raw := range costtest.Mutations(1, [][]byte{unpackedRecording(t)}, n) {
		i++
		b := pack(t, raw)
		costtest.Check(t, "recording "+strconv.Itoa(i), costtest.Default, func(context.Context) { _, _ = replay.Read(bytes.NewReader(b)) })
	}
}

func TestARecordingThatUnpacksOutOfProportionIsRefused(t *testing.T) {
	raw := append(unpackedRecording(t), make([]byte, 2*limits.UnpackFloor)...)
	if _, err := replay.Read(bytes.NewReader(pack(t, raw))); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("%v, want it beyond the limit", err)
	}
}

// An empty list of candidates takes a byte in the file before compression and fifty in memory.
func TestARecordingOfManyEmptyListsIsRefused(t *testing.T) {
	r := &replay.Recording{Channels: []replay.Channel{{Rows: []replay.Nodes{{Next: make([]replay.Candidates, 3_000_000)}}}}}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	costtest.Check(t, "many empty lists", costtest.Default, func(context.Context) {
		if _, err := replay.Read(bytes.NewReader(b.Bytes())); !errors.Is(err, limits.ErrTooLarge) {
			t.Errorf("%v, want it beyond the limit", err)
		}
	})
}

func FuzzCost(f *testing.F) {
	f.Add(unpackedRecording(f))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b := pack(t, raw)
		costtest.Check(t, "recording", costtest.Default, func(context.Context) { _, _ = replay.Read(bytes.NewReader(b)) })
	})
}
