// Command mktarget writes the input for training the embedded target model: its configuration
// and vocabulary, and the texts.
package main

import (
	"flag"
	"fmt"
	"os"

	"talf/internal/demo"
)

func main() {
	target := flag.String("target", "internal/demo/target", "folder for the model's configuration and tokenizer")
	texts := flag.String("texts", "", "folder for train.jsonl and validation.jsonl; none are written without it")
	flag.Parse()
	err := demo.WriteTarget(*target)
	if err == nil && *texts != "" {
		err = demo.WriteTexts(*texts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
