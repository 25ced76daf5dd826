// Command mklarge writes what the measurements need to a folder: the target gsm10m, the small
// language model that drafts for it, and prompts. It needs nothing but the repository.
//
//	go run ./internal/demo/mklarge DIR
//
// DIR gets gsm10m and gsm10m-lm, two Hugging Face model directories, and prompts: a file for each
// set to measure on, and training.jsonl to train draft models on.
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
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: mklarge DIR") }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	dir := flag.Arg(0)
	err := gsm10m.Unpack(filepath.Join(dir, "gsm10m"))
	if err == nil {
		err = gsm10m.UnpackDraft(filepath.Join(dir, "gsm10m-lm"))
	}
	if err == nil {
		err = demo.WriteSets(filepath.Join(dir, "prompts"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mklarge:", err)
		os.Exit(1)
	}
}
