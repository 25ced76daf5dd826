package train_test

import (
	"context"
	"fmt"
	"os"

	"talf/compute/cpu"
	"talf/model/arch"
	"talf/train"
)

// A language model learns to count: after every token comes the next larger one.
func ExampleLM() {
	dir, err := os.MkdirTemp("", "count")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()

	spec := arch.Llama()
	spec.Vocab, spec.Hidden, spec.Layers, spec.Heads, spec.KVHeads, spec.HeadDim = 16, 16, 1, 2, 2, 8
	spec.FFN, spec.MaxPos, spec.Tied = 32, 16, true
	var docs [][]int32
	for start := range int32(64) {
		var doc []int32
		for i := range int32(12) {
			doc = append(doc, (start+i)%16)
		}
		docs = append(docs, doc)
	}

	cfg := train.Default()
	cfg.Steps, cfg.Rows, cfg.LR, cfg.Warmup, cfg.Held = 200, 64, 1e-2, 10, 0.1
	res, err := train.LM(context.Background(), cfg, train.LMJob{Device: dev, Spec: spec, Docs: docs, Window: 11, Out: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("step %d: %.0f%% of the held-out tokens are predicted\n", res.Step, 100*res.Eval.Levels[0].Top1)
	// Output: step 200: 100% of the held-out tokens are predicted
}
