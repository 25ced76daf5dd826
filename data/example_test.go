package data_test

import (
	"fmt"
	"io"
	"log"
	"os"

	"talf/data"
	"talf/model/identity"
)

func Example() {
	dir, err := os.MkdirTemp("", "talf")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	w, err := data.Create(dir, data.Meta{
		Schema: data.SchemaVersion, Function: &identity.Function{}, Hidden: 2, Vocab: 10, Branch: 1, Depth: 1, Labels: data.TopK, K: 2, Features: data.BF16,
	}, data.Whole(), data.DefaultWriter())
	if err != nil {
		log.Fatal(err)
	}
	for i := range int32(3) {
		if err := w.Append(&data.Record{
			Tokens: []int32{i}, LossMask: []bool{true}, TreeTokens: []int32{i}, TreeParents: []int32{-1},
			LabelIDs: []int32{4, 5}, LabelProbs: []float32{0.5, 0.25}, Tail: []float32{0.25},
			Features: data.AppendBF16(nil, []float32{1, -2}),
		}); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	set, err := data.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer set.Close()
	r, err := set.Shuffled(7, data.Split{Part: data.Train, Fraction: 0.3})
	if err != nil {
		log.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err == io.EOF { // the next call would begin the next epoch
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(rec.Tokens, rec.LabelProbs)
	}
	// Output:
	// [1] [0.5 0.25]
	// [0] [0.5 0.25]
}
