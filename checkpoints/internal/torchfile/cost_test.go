package torchfile

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"talf/internal/limits/costtest"
)

func TestMutatedFilesAreCheap(t *testing.T) {
	var files [][]byte
	for _, name := range []string{"state.bin", "hostile.bin", "nested.bin", "protocol4.bin"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b)
	}
	p, err := pickled(sample())
	if err != nil {
		t.Fatal(err)
	}
	pickles := [][]byte{p, []byte(tensorOf(0, "K\x04K\x04\x86", "K\x04K\x01\x86"))}
	n := 2000
	if testing.Short() {
		n = 200
	}
	i := 0
	check := func(b []byte) {
		i++
		costtest.Check(t, "file "+strconv.Itoa(i), costtest.Default, func(context.Context) { _, _ = parse("x", bytes.NewReader(b), int64(len(b))) })
	}
	for b := range costtest.Mutations(1, files, n) {
		check(b)
	}
	for b := range costtest.Mutations(2, pickles, n) { // in a sound archive
		check(file(t, string(b)))
	}
}

// A pickle is a program whose values may share parts: what it makes must not be as large as if
// they did not.
func TestPicklesThatRepeatThemselvesAreCheap(t *testing.T) {
	double := "\x80\x02)" + strings.Repeat("q\x00h\x00\x86", 10_000)
	for name, p := range map[string]string{
		"pairs of pairs":                   double + ".",
		"pairs of pairs, called":           double + ")R.",
		"pairs of pairs as a storage":      double + "Q.",
		"a list that holds itself":         "\x80\x02]q\x00" + strings.Repeat("h\x00a", 100_000) + ".",
		"a hundred thousand marks":         strings.Repeat("(", 100_000) + ".",
		"a hundred thousand places":        "N" + strings.Repeat("\x94", 100_000) + ".",
		"a key that is a tower of pairs":   "}" + double[2:] + "Ns.",
		"a hundred thousand dictionaries":  strings.Repeat("}", 100_000) + "N.",
		"a hundred thousand ordered dicts": strings.Repeat("ccollections\nOrderedDict\n)R", 30_000) + "N.",
	} {
		b := file(t, p)
		costtest.Check(t, name, costtest.Default, func(context.Context) {
			if _, err := parse("x", bytes.NewReader(b), int64(len(b))); err == nil || len(err.Error()) > 400 {
				t.Errorf("%s: %v, want a short refusal", name, err)
			}
		})
	}
}

func FuzzCost(f *testing.F) {
	f.Add([]byte(tensorOf(0, "K\x04K\x04\x86", "K\x04K\x01\x86")))
	f.Fuzz(func(t *testing.T, pickle []byte) {
		b := file(t, string(pickle))
		costtest.Check(t, "file", costtest.Default, func(context.Context) { _, _ = parse("x", bytes.NewReader(b), int64(len(b))) })
	})
}
