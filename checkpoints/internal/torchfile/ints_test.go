package torchfile

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"talf/model/safetensors"
)

func TestIntegersRoundTrip(t *testing.T) {
	for _, ids := range [][]int32{{0, 7, 128255, 3}, {}, {2147483647}} {
		var b bytes.Buffer
		if err := WriteInts(&b, ids); err != nil {
			t.Fatal(err)
		}
		got, err := parseInts(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil || !slices.EqualFunc(got, ids, func(a int64, b int32) bool { return a == int64(b) }) {
			t.Errorf("%v was read as %v, %v", ids, got, err)
		}
	}
}

func TestFilesOtherThanListsOfIntegersAreRefused(t *testing.T) {
	for pickle, want := range map[string]string{
		"\x80\x02]X\x01\x00\x00\x00aa.":        "not an integer",
		"\x80\x02}.":                           "want a list",
		"cos\nsystem\n(X\x02\x00\x00\x00lstR.": `"system" of module "os"`,
		strings.Replace(tensorOf(0, "K\x04K\x04\x86", "K\x04K\x01\x86"), "}X\x01\x00\x00\x00w", "", 1): "",
	} {
		b := file(t, pickle)
		if _, err := parseInts(bytes.NewReader(b), int64(len(b))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", pickle, err, want)
		}
	}
	// A dictionary of tensors is not a list of integers.
	var b bytes.Buffer
	if err := Write(&b, safetensors.Tensor{Name: "x", DType: "I32", Shape: []int{1}, Data: make([]byte, 4)}); err != nil {
		t.Fatal(err)
	}
	if _, err := parseInts(bytes.NewReader(b.Bytes()), int64(b.Len())); err == nil {
		t.Error("a dictionary was accepted as a list")
	}
}

func FuzzParseInts(f *testing.F) {
	var b bytes.Buffer
	if err := WriteInts(&b, []int32{5, 6, 70000}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		ids, err := parseInts(bytes.NewReader(b), int64(len(b)))
		if err == nil && len(ids) > len(b) {
			t.Errorf("%d numbers from %d bytes", len(ids), len(b))
		}
	})
}
