package draft_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/tree"
)

func TestSequoiaConforms(t *testing.T) {
	conform(t, "sequoia:N=7,accept=0.5/0.3,depth=3", "sequoia:N=1")
}

// The shape is the dynamic program's: the best four of 1, 0.6, 0.36, 0.3, 0.216 and 0.18. The
// probabilities come from a parameter, a list or bench's counts.
func TestSequoiaDraftsTheBestShape(t *testing.T) {
	dir := t.TempDir()
	list, counts := filepath.Join(dir, "list.json"), filepath.Join(dir, "counts.json")
	for path, text := range map[string]string{list: "[0.6, 0.3]", counts: `[{"Tried":0,"Kept":0},{"Tried":10,"Kept":6},{"Tried":10,"Kept":3}]`} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, spec := range []string{"sequoia:N=4,accept=0.6/0.3", "sequoia:N=4,file=" + list, "sequoia:N=4,file=" + counts} {
		d, _, err := draft.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		p := infer.Proposal{Tree: tree.New(0, 64), MaxNodes: 64, MaxDepth: 50}
		var rows []infer.Row
		for ask, err := d.Grow(&p, nil, nil); len(ask) > 0; ask, err = d.Grow(&p, rows, nil) {
			if err != nil {
				t.Fatal(err)
			}
			rows = slices.Repeat([]infer.Row{{Tokens: []int32{7, 8}, LogProb: []float32{-1, -2}}}, len(ask))
		}
		var parents []int
		for n := range p.Tree.Len() {
			parents = append(parents, p.Tree.Parent(n))
		}
		if !slices.Equal(p.Tree.Tokens(), []int32{0, 7, 8, 7}) || !slices.Equal(parents, []int{-1, 0, 0, 1}) {
			t.Errorf("%s: tokens %v below %v", spec, p.Tree.Tokens(), parents)
		}
	}
}

func TestBadChancesAreRefused(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`[{"Tried":1,"Kept":2},{"Tried":1,"Kept":2}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]string{
		"sequoia:accept=0.9/0.3":            "at most 1 for all ranks together",
		"sequoia:accept=much":               "numbers such as 0.5/0.2",
		"sequoia:N=0":                       "N is 0, want 1..1024",
		"sequoia:accept=0.5,file=" + bad:    "exclude each other",
		"sequoia:file=" + bad:               "kept 2 of 1 times",
		"sequoia:file=" + bad + ".gone":     "no such file",
		"sequoia:file=" + filepath.Dir(bad): "read ",
		"sequoia:draw=often":                "draw is \"often\"",
	} {
		_, _, err := draft.New(spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", spec, err, want)
		}
		if isFile := errors.As(err, new(draft.FileError)); isFile != (strings.Contains(spec, "file=") && !strings.Contains(spec, "accept=")) {
			t.Errorf("%q: a file's error: %v", spec, isFile)
		}
	}
}

// An error in a file's probabilities names the file.
func TestChancesOfAFileAreRefusedWithItsName(t *testing.T) {
	for _, text := range []string{"[0.8, 0.5]", "[-1]", "[]"} {
		path := filepath.Join(t.TempDir(), "chances.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, _, err := draft.New("sequoia:file=" + path)
		var file draft.FileError
		if !errors.As(err, &file) || strings.Count(err.Error(), path) != 2 { // in the specification too
			t.Errorf("%s: error %v, want one of the file", text, err)
		}
	}
}
