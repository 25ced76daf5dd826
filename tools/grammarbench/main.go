// Command grammarbench measures grammars of JSON Schemas:
//
//	grammarbench conform [flags] DIRECTORY…
//
// compares them with the tests of JSON-Schema-Test-Suite or of JSONSchemaBench's maskbench, and with
// a validator, santhosh-tekuri/jsonschema.
//
//	grammarbench answers [flags] MODEL DIRECTORY…
//
// has a model write values of such schemas at temperature 1, with drafts, for the validator.
//
//	grammarbench masks TOKENIZER
//
// times compiling and masks for lab/experiments/grammars.py: jobs and times are JSON, one a line.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("grammarbench: ")
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) > 0 && args[0] == "conform" {
		return conform(args[1:], stdout)
	}
	if len(args) > 0 && args[0] == "masks" {
		return masks(args[1:], stdin, stdout)
	}
	if len(args) > 0 && args[0] == "answers" {
		return answers(args[1:], stdout)
	}
	return fmt.Errorf("want conform, answers or masks, got %q", args)
}
