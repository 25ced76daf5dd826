// Command release builds the files of a release of talf from the commit that is checked out: an
// archive for every platform with the program, its licences, shell completions and manual pages;
// a list of components (CycloneDX) for each; a container image; and SHA256SUMS of them all.
//
// Equal commits give equal bytes with the same Go release, wherever and whenever
// they are built. -verify shows that: it builds twice, the second time in another
// directory and with an empty build cache, compares every file, and runs the
// program inside the unpacked image.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	root := flag.String("root", "..", "the repository's root")
	out := flag.String("out", "../dist", "where to write; an earlier release there is removed, anything else is refused")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/arm64,windows/amd64", "comma-separated GOOS/GOARCH")
	verify := flag.Bool("verify", false, "build twice, compare, and run the image")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *root, *out, strings.Split(*platforms, ","), *verify)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, out string, names []string, verify bool) error {
	var platforms []platform
	for _, name := range names {
		goos, arch, ok := strings.Cut(name, "/")
		if !ok {
			return fmt.Errorf("-platforms: %q, want GOOS/GOARCH", name)
		}
		platforms = append(platforms, platform{goos, arch})
	}
	tmp, err := os.MkdirTemp("", "talf-release-")
	if err != nil {
		return err
	}
	defer removeAll(tmp)
	// Both builds are of this commit, even if another is checked out meanwhile.
	head, err := output(ctx, root, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	commit := strings.TrimSpace(head)
	if err := build(ctx, root, commit, filepath.Join(tmp, "first"), out, "", platforms); err != nil {
		return err
	}
	if !verify {
		return list(out)
	}
	again := filepath.Join(tmp, "again")
	if err := build(ctx, root, commit, filepath.Join(tmp, "another", "directory"), again, filepath.Join(tmp, "cache"), platforms); err != nil {
		return fmt.Errorf("second build: %w", err)
	}
	n, err := same(out, again)
	if err != nil {
		return err
	}
	fmt.Printf("%d files are equal in both builds\n", n)
	return smoke(ctx, out, filepath.Join(tmp, "rootfs"))
}

// removeAll removes a directory that may contain a Go build cache.
func removeAll(dir string) { _ = os.RemoveAll(dir) }

// list prints the files of a release and their sizes.
func list(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Printf("%10d  %s\n", info.Size(), e.Name())
	}
	return nil
}
