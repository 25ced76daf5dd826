package main

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/encodings.txt with the encodings of llvm-mc")

var (
	emitted = regexp.MustCompile(`(?m)^\tWORD \$0x([0-9a-f]{8}) // (.*)$`)
	answer  = regexp.MustCompile(`encoding: \[0x(..),0x(..),0x(..),0x(..)\]`)
	number  = regexp.MustCompile(`\b([vqdsxw]?|#0x|#)[0-9a-f]*[0-9][0-9a-f]*\b`)
)

// words returns the encodings of all vector instructions that the generator writes, by their text,
// and their texts in order.
func words(t *testing.T) (map[string]string, []string) {
	t.Helper()
	dir := t.TempDir()
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(dir + "/neon_arm64.s")
	if err != nil {
		t.Fatal(err)
	}
	of, texts := map[string]string{}, []string(nil)
	for _, m := range emitted.FindAllStringSubmatch(string(b), -1) {
		if of[m[2]] == "" {
			texts = append(texts, m[2])
		} else if of[m[2]] != m[1] {
			t.Fatalf("%q is encoded as %s and as %s", m[2], of[m[2]], m[1])
		}
		of[m[2]] = m[1]
	}
	if len(texts) < 100 {
		t.Fatalf("the generator writes %d instructions", len(texts))
	}
	return of, texts
}

// form returns an instruction without its registers and numbers.
func form(text string) string {
	op, rest, _ := strings.Cut(text, " ")
	return op + " " + number.ReplaceAllStringFunc(rest, func(s string) string { return strings.TrimRight(s, "0123456789abcdef") + "_" })
}

// assemble returns llvm-mc's encodings of texts, or nil if it is not here.
func assemble(t *testing.T, texts []string) []string {
	t.Helper()
	path, err := exec.LookPath("llvm-mc")
	if err != nil {
		return nil
	}
	cmd := exec.Command(path, "-triple=aarch64", "-mattr=+dotprod,+i8mm", "-show-encoding")
	cmd.Stdin = strings.NewReader(strings.Join(texts, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("llvm-mc: %v\n%s", err, out)
	}
	var codes []string
	for _, m := range answer.FindAllStringSubmatch(string(out), -1) {
		b, err := hex.DecodeString(m[4] + m[3] + m[2] + m[1])
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, hex.EncodeToString(b))
	}
	if len(codes) != len(texts) {
		t.Fatalf("llvm-mc encodes %d of %d instructions", len(codes), len(texts))
	}
	return codes
}

const pinned = "testdata/encodings.txt"

// Every form of instruction that the generator writes is in the list of what llvm-mc made of two
// of it, and those two are encoded alike.
func TestEncodingsAreThoseThatWerePinned(t *testing.T) {
	of, texts := words(t)
	if *update {
		var few []string
		seen := map[string]int{}
		for _, i := range texts {
			if seen[form(i)]++; seen[form(i)] <= 2 {
				few = append(few, i)
			}
		}
		slices.Sort(few)
		codes := assemble(t, few)
		var b strings.Builder
		for i, c := range codes {
			fmt.Fprintf(&b, "%s %s\n", c, few[i])
		}
		if err := os.WriteFile(pinned, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(pinned)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		code, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if got := of[text]; got != code && got != "" {
			t.Errorf("%q is encoded as %s, want %s", text, got, code)
		} else if got != "" {
			known[form(text)] = true
		}
	}
	for _, i := range texts {
		if !known[form(i)] {
			t.Errorf("%q is of a form that is not in %s: run this test with -update where llvm-mc is", i, pinned)
			known[form(i)] = true
		}
	}
}

// Where llvm-mc is present, it encodes every instruction that the generator writes.
func TestEncodingsAreThoseOfAnotherAssembler(t *testing.T) {
	of, texts := words(t)
	codes := assemble(t, texts)
	if codes == nil {
		t.Skip("llvm-mc is not here")
	}
	for i, c := range codes {
		if of[texts[i]] != c {
			t.Errorf("%q is encoded as %s, llvm-mc has %s", texts[i], of[texts[i]], c)
		}
	}
}

// The page of the products has the table that the generator prints.
func TestCountsAreThoseOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/measurements/products.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := generate("").counts(); !strings.Contains(string(page), want) {
		t.Errorf("docs/measurements/products.md does not have this table, which go run -C tools ./neongen -counts prints:\n%s", want)
	}
}
