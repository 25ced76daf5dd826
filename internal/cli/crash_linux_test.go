package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

func init() {
	crashes["fault in a mapped file"] = crash{fault, "SIGBUS", "cli.fault"}
}

// fault reads a page of a mapped file that is cut short.
func fault() {
	f, err := os.CreateTemp("", "")
	if err != nil {
		panic(err)
	}
	_ = os.Remove(f.Name())
	if err := f.Truncate(1 << 16); err != nil {
		panic(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 1<<16, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	if err := f.Truncate(0); err != nil {
		panic(err)
	}
	go func() { println(b[1<<15]) }()
	select {}
}
