//go:build unix

package gguf_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"talf/compute"
	"talf/internal/mapped"
	"talf/model"
	"talf/model/arch"
	"talf/model/gguf/gguftest"
	"talf/model/safetensors"
)

// An embedding that is not the LM head stays in the file, if nothing of it is rounded, and has the rows that packing gives it.
// It is looked at as others are. What reads a file that was cut short meanwhile has an error to recover from.
func TestAnEmbeddingStaysInTheFile(t *testing.T) {
	f := gguftest.Tiny(1)
	tied := f.Write(t, "tied.gguf")
	head := *f.Tensor(embed)
	head.Name = "output.weight"
	f.Tensors = append(f.Tensors, head)
	path := f.Write(t, "x.gguf")
	dev := cpuDevice(t)
	open := func(path string) (*model.Model, error) {
		t.Helper()
		spec, err := arch.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		set, err := safetensors.OpenDir(path)
		if err != nil {
			t.Fatal(err)
		}
		opt := model.Default()
		opt.DType = compute.Stored
		t.Cleanup(func() { set.Close() })
		return model.New(spec, set, dev, opt)
	}
	load := func(path string) *model.Model {
		t.Helper()
		m, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	pass := func(m *model.Model) (logits []float32, err error) {
		defer mapped.Guard(&err)()
		s := m.NewSeq()
		defer s.Close()
		out, err := s.Append(context.Background(), []int32{1, 2, 3}, nil, model.WantLast)
		if err != nil {
			return nil, err
		}
		logits = make([]float32, m.Spec().Vocab)
		out.ReadLogits(logits, 0)
		return logits, nil
	}
	bad := slices.Clone(head.Data)
	binary.LittleEndian.PutUint16(bad[len(bad)/2/34*34:], 0x7c00) // the scale of a block of Q8_0 is infinite
	f.Tensor(embed).Data = bad
	_, err := open(f.Write(t, "bad.gguf"))
	if value := (*safetensors.ValueError)(nil); !errors.As(err, &value) || value.Tensor != "model.embed_tokens.weight" || !slices.Equal(value.Index, []int{144, 0}) || !math.IsInf(math.Abs(value.Value), 1) {
		t.Errorf("%v, want an error that names the element", err)
	}
	m := load(path)
	if held := m.Held(); held.File != held.Memory {
		t.Errorf("%d bytes of %d", held.Memory, held.File)
	}
	got, err := pass(m)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := pass(load(tied)); err != nil || !slices.Equal(got, want) {
		t.Errorf("logits %v (%v), want those of the model that packs its embedding, %v", got[:4], err, want[:4])
	}
	if err := os.Truncate(path, int64(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	_, err = pass(m)
	if fault := (*mapped.FaultError)(nil); !errors.As(err, &fault) || fault.Path != path {
		t.Errorf("%v, want a fault in %s", err, path)
	}
}
