// Command mklarge writes what the measurements need to a folder: the target gsm10m, the small
// language model that drafts for it, and prompts; the target of quickstart, with its text and
// prompts. It needs nothing but the repository.
//
//	go run ./internal/demo/mklarge DIR
//
// DIR gets gsm10m, gsm10m-lm and quickstart-target, three Hugging Face model directories, and
// prompts: a file for each set to measure on, and training.jsonl to train draft models on. For the
// target of quickstart there are quickstart.jsonl, prompts, and quickstart-text.jsonl, the text
// that talf quickstart trains heads on. orders has a training text for a model
// that answers in JSON, prompts to measure it on, and the schema of its answers.
//
//	go run ./internal/demo/mklarge -pack MODEL internal/demo/gsm10m/lm
//
// packs the weights of a model that was trained again.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"talf/internal/demo"
	"talf/internal/demo/gsm10m"
	"talf/internal/quickstart"
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
	if err := demo.Unpack(filepath.Join(dir, "quickstart-target")); err != nil {
		return err
	}
	if err := demo.WriteOrders(filepath.Join(dir, "orders")); err != nil {
		return err
	}
	prompts := filepath.Join(dir, "prompts")
	if err := demo.WriteSets(prompts); err != nil {
		return err
	}
	plan := quickstart.Default()
	return errors.Join(
		demo.WriteJSONL(filepath.Join(prompts, "quickstart-text.jsonl"), demo.Corpus(plan.Seed, plan.Documents)),
		demo.WriteJSONL(filepath.Join(prompts, "quickstart.jsonl"), demo.Continued(demo.Prompts(plan.Seed, demo.SetPrompts))),
	)
}
