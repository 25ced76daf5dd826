//go:build !linux || !amd64

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "amxemu: needs Linux on amd64")
	os.Exit(exitRefused)
}
