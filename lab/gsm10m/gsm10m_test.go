package gsm10m

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/text/tokenizer"
)

// The files are to the byte those that were trained, as SHA256SUMS has them.
func TestUnpackedFilesAreThoseThatWereTrained(t *testing.T) {
	dir := t.TempDir()
	for name, unpack := range map[string]func(string) error{"model": Unpack, "lm": UnpackDraft} {
		if err := unpack(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	sums, err := os.ReadFile("SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(sums)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			t.Error(err)
			continue
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: SHA-256 %x, want %s", name, sum, want)
		}
		n++
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 || len(found) != n {
		t.Errorf("%d files are written, SHA256SUMS has %d", len(found), n)
	}
	if _, err := tokenizer.Load(filepath.Join(dir, "model")); err != nil {
		t.Error(err)
	}
}

func TestPackedWeightsAreRestored(t *testing.T) {
	header := []byte(`{"x":{"dtype":"BF16","shape":[3,86],"data_offsets":[0,516]}}`)
	file := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header...)
	for i := range 258 { // every byte in both places
		file = append(file, byte(i), byte(255-i))
	}
	packed, err := pack(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := unpack(packed)
	if err != nil || !bytes.Equal(got, file) {
		t.Fatalf("unpacked to %d bytes of %d that differ (%v)", len(got), len(file), err)
	}
	for name, b := range map[string][]byte{
		"cut short": packed[:len(packed)-9], "altered": append(append([]byte{}, packed[:len(packed)-5]...), packed[len(packed)-5]^1, 0, 0, 0, 0),
		"not packed": file, "empty": nil,
	} {
		if _, err := unpack(b); err == nil || !strings.Contains(err.Error(), "packed weights") {
			t.Errorf("%s: %v, want an error of packed weights", name, err)
		}
	}
	for name, b := range map[string][]byte{"short": file[:7], "header beyond the end": append([]byte{255, 255, 255}, make([]byte, 9)...), "odd": file[:len(file)-1]} {
		if _, err := pack(b); err == nil {
			t.Errorf("%s: packed", name)
		}
	}
}

func TestPackStoresAModelsWeights(t *testing.T) {
	dir, into := filepath.Join(t.TempDir(), "lm"), t.TempDir()
	if err := UnpackDraft(dir); err != nil {
		t.Fatal(err)
	}
	if err := Pack(dir, into); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(into, weights+planes))
	if err != nil {
		t.Fatal(err)
	}
	trained, err := os.ReadFile(filepath.Join(dir, weights))
	if err != nil {
		t.Fatal(err)
	}
	if restored, err := unpack(got); err != nil || !bytes.Equal(restored, trained) {
		t.Errorf("what Pack stored is unpacked to other weights (%v)", err)
	}
	if err := Pack(into, into); err == nil || !strings.Contains(err.Error(), filepath.Join(into, weights)) {
		t.Errorf("a folder without weights: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, weights), trained[:len(trained)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Pack(dir, into); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, weights)) {
		t.Errorf("weights cut short: %v", err)
	}
}
