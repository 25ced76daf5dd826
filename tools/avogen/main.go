// Command avogen writes the assembly of package kern, or of package probs, for one
// CPU class:
//
//	go run ./avogen -class avx2 -dir ../compute/cpu/kern
//	go run ./avogen -package probs -class avx2 -dir ../model/internal/probs
//
// makes avx2_amd64.s and its declarations avx2stub_amd64.go. Their headers carry
// avo's version, the flags and a hash of this program's source, by which a test
// of package kern notices a change that was not generated.
package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"

	"talf/tools/avogen/tile"
)

//go:embed *.go tile/*.go
var source embed.FS

func main() {
	log.SetFlags(0)
	log.SetPrefix("avogen: ")
	pkg := flag.String("package", "kern", "package to write: kern or probs")
	class := flag.String("class", "", "one of "+classNames()+"; of probs avx2 or avx512")
	dir := flag.String("dir", ".", "directory to write to")
	evex := flag.Bool("evex", false, "encode the products of class avxvnni as AVX-512 VNNI does, for tests where that is")
	flag.Parse()
	if err := run(*pkg, *class, *dir, *evex); err != nil {
		log.Fatal(err)
	}
}

func run(pkg, class, dir string, evex bool) error {
	c := classes[class]
	if c == nil {
		return fmt.Errorf("-class %q: want one of %s", class, classNames())
	}
	if evex {
		if class != "avxvnni" {
			return fmt.Errorf("-evex: only class avxvnni has another encoding")
		}
		c = &evexVNNI
	}
	g := &gen{Context: build.NewContext(), class: c, vnni: class == "avx512vnni", dots: class == "avxvnni", evex: evex, bf16: class == "avx512bf16", tiles: class == "amx"}
	flags := "-class " + class
	g.ConstraintExpr("amd64,!purego")
	switch {
	case pkg == "probs" && !g.tiles && !g.vnni && !g.bf16:
		g.probs()
		flags = "-package probs " + flags
	case pkg != "kern":
		return fmt.Errorf("-package %q with -class %q: want kern, or probs with avx2 or avx512", pkg, class)
	case g.tiles:
		g.amx()
	case g.vnni, g.dots:
		g.q8s()
	case g.bf16:
		g.gemmsPairs()
	default:
		g.constants()
		g.gemms()
		g.gemmsPairs()
		g.vectors()
		g.q8s()
	}
	file, err := g.compile()
	if err != nil {
		return err
	}
	sum, err := sourceHash()
	if err != nil {
		return err
	}
	header := fmt.Sprintf("// Generator: %s\n// Flags: %s\n// Source: sha256 %x\n", avoVersion(), flags, sum)
	cfg := printer.Config{Name: "tools/avogen", Pkg: pkg}
	for _, out := range []struct {
		name  string
		build printer.Builder
	}{
		{class + "_amd64.s", printer.NewGoAsm},
		{class + "stub_amd64.go", printer.NewStubs},
	} {
		b, err := out.build(cfg).Print(file)
		if err != nil {
			return fmt.Errorf("%s: %w", out.name, err)
		}
		i := bytes.IndexByte(b, '\n') + 1
		b = append(b[:i:i], append([]byte(header), b[i:]...)...)
		if err := os.WriteFile(filepath.Join(dir, out.name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compile allocates registers, and refuses what the class has not.
func (g *gen) compile() (*ir.File, error) {
	file, err := g.Result()
	if err != nil {
		return nil, err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return nil, err
	}
	switch {
	case g.bf16:
		toDots(file, "VPDPWSSD", tile.DotPairs, strings.NewReplacer("AVX512VNNI", "AVX512BF16"))
	case g.dots && !g.evex:
		sets := strings.NewReplacer("AVX512VNNI", "AVXVNNI", "AVX512VL", "AVX2")
		toDots(file, "VPDPBUSD", tile.DotBytes, sets)
		toDots(file, "VPDPWSSD", tile.DotWords, sets)
	}
	return file, g.check(file)
}

// sourceHash hashes this program's files but its tests in the order of their names, package tile's last.
func sourceHash() ([]byte, error) {
	h := sha256.New()
	files, err := fs.Glob(source, "*.go")
	if err != nil {
		return nil, err
	}
	more, err := fs.Glob(source, "tile/*.go")
	if err != nil {
		return nil, err
	}
	for _, name := range append(files, more...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := source.ReadFile(name)
		if err != nil {
			return nil, err
		}
		h.Write(b)
	}
	return h.Sum(nil), nil
}

func avoVersion() string {
	const path = "github.com/mmcloughlin/avo"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == path {
				return path + " " + d.Version
			}
		}
	}
	return path + " (version unknown)"
}
