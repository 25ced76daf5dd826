// Command mklarge writes what the measurements need to a folder: the target gsm10m, the small
// language model that drafts for it, and prompts. It needs nothing but the repository.
//
//	go run ./internal/demo/mklarge DIR
//
// DIR gets gsm10m and gsm10m-lm, two Hugging Face model directories, and prompts: a file for each
// set to measure on, and training.jsonl to train draft models on.
//
//	go run ./internal/demo/mklarge -pack MODEL internal/demo/gsm10m/lm
//
// packs the weights of a model that was trained again.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"talf/internal/demo"
	"talf/internal/demo/gsm10m"
)

func main() {
	model := flag.String("pack", "", "pack the weights of this model directory into DIR instead")
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: mklarge [-pack MODEL] DIR") }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	do := write
	if *model != "" {
		do = func(dir string) error { return gsm10m.Pack(*model, dir) }
	}
	if err := do(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "mklarge:", err)
		os.Exit(1)
	}
}

// write writes models and prompts.
func write(dir string) error {
	if err := gsm10m.Unpack(filepath.Join(dir, "gsm10m")); err != nil {
		return err
	}
	if err := gsm10m.UnpackDraft(filepath.Join(dir, "gsm10m-lm")); err != nil {
		return err
	}
	return demo.WriteSets(filepath.Join(dir, "prompts"))
}
