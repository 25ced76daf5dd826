package model_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"talf/compute/cpu"
	"talf/model"
	"talf/model/modeltest"
	"talf/model/sample"
	"talf/tree"
)

// A prompt is run, then a tree with two guesses for the next token. The guess that the
// model agrees with is committed.
func Example() {
	dir, err := os.MkdirTemp("", "model")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := modeltest.Write(dir, modeltest.Default(), 1); err != nil {
		log.Fatal(err)
	}
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Load(dir, dev, model.Default())
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	ctx := context.Background()
	s := m.NewSeq()
	defer s.Close()
	if _, err := s.Append(ctx, []int32{1, 17, 42}, nil, model.WantNone); err != nil {
		log.Fatal(err)
	}
	t := tree.New(8, 3) // the root: the next token to run
	t.Add(0, 1)
	t.Add(0, 58)
	b := s.Branch(s.Len())
	out, err := m.Forward(ctx, []model.Segment{{Rows: b, Tree: t, Want: model.WantAll}})
	if err != nil {
		log.Fatal(err)
	}
	logits := make([]float32, m.Spec().Vocab)
	path, n := []int{0}, 0
	for n >= 0 {
		out.ReadLogits(logits, out.LogitsRow(0, n))
		next := sample.Argmax(logits)
		fmt.Printf("after %d comes %d\n", t.Token(n), next)
		if n = t.Child(n, next); n > 0 {
			path = append(path, n)
		}
	}
	if err := b.Commit(path); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Len(), "positions")
	// Output:
	// after 8 comes 1
	// after 1 comes 1
	// 5 positions
}
