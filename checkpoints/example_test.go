package checkpoints_test

import (
	"fmt"
	"os"
	"path/filepath"

	"talf/checkpoints"
	"talf/model/safetensors"
)

func ExampleStore() {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := checkpoints.NewStore(dir, 2) // keeps the newest two
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	for step := 100; step <= 300; step += 100 {
		c := &checkpoints.Checkpoint{Config: []byte("{}"), Weights: []safetensors.Tensor{safetensors.F32("w", []float32{1}, 1)}}
		c.Kind, c.Step, c.Hidden, c.Vocab = checkpoints.KindLM, step, 1, 1
		if _, err := store.Save(c); err != nil {
			fmt.Println(err)
			return
		}
	}
	steps, err := store.Steps()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range steps {
		fmt.Println(filepath.Base(s))
	}
	newest, err := checkpoints.Find(dir) // what --head DIR means
	fmt.Println(filepath.Base(newest), err)
	// Output:
	// step-00000200
	// step-00000300
	// step-00000300 <nil>
}
