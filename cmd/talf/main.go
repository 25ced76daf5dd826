// Command talf trains draft heads for a language model and decodes with them.
//
// The subcommands are stages of one pipeline: preprocess writes labelled token
// trees to Parquet, train turns them into a draft head, generate and chat decode
// with it. quickstart runs all of it on a small model that the binary carries.
//
// The exit code is 0 on success, 1 on failure, 2 after a crash, 64 on wrong usage,
// 130 when interrupted and 141 when nobody reads what is printed.
package main

import (
	"os"

	"talf/cmd/talf/command"
)

func main() { os.Exit(command.Main()) }
