package command

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
	"talf/internal/golden"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// scorePass is how many tokens score runs in one pass.
const scorePass = 256

func floats(t *testing.T, s *safetensors.Set, name string) []float32 {
	t.Helper()
	x, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func openTensors(t *testing.T, path string) *safetensors.Set {
	t.Helper()
	s, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// score writes what transformers computes: the fixtures' observed float32 error is below 2e-5,
// deliberate mistakes change logits by more than 1e-2.
func TestScoreAgreesWithTransformers(t *testing.T) {
	dir := golden.File(t, "hf/llama-gqa")
	want := openTensors(t, filepath.Join(dir, "golden.safetensors"))
	ints := func(name string) []int32 {
		x, err := want.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := x.Int32s()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	ids := ints("input_ids")
	lines := []any{map[string]any{"ids": ids}}
	for _, at := range []int{10, 30} {
		// The fixture's root is node 0; here it is the last id, parent −1.
		tokens, parents := ints(fmt.Sprintf("tree%d_tokens", at)), ints(fmt.Sprintf("tree%d_parents", at))
		rest := make([]int, len(tokens)-1)
		for i, p := range parents[1:] {
			rest[i] = int(p) - 1
		}
		lines = append(lines, map[string]any{
			"ids":  append(ids[:at:at], tokens[0]),
			"tree": map[string]any{"parents": rest, "tokens": tokens[1:]},
		})
	}
	var in strings.Builder
	for _, l := range lines {
		b, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(b, '\n'))
	}
	out := filepath.Join(t.TempDir(), "scores.safetensors")
	talftest.OK(t, in.String(), "score", "--model", dir, "--out", out)
	got := openTensors(t, out)
	const tolerance = 2e-4
	compare := func(name string, got, want []float32) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %d values, want %d", name, len(got), len(want))
		}
		worst := 0.0
		for i := range got {
			worst = max(worst, math.Abs(float64(got[i])-float64(want[i])))
		}
		if !(worst <= tolerance) {
			t.Errorf("%s: differs by %g, want at most %g", name, worst, tolerance)
		}
	}
	compare("logits", floats(t, got, "0.logits"), floats(t, want, "logits"))
	compare("hidden", floats(t, got, "0.hidden"), floats(t, want, "hidden"))
	for i, at := range []int{10, 30} {
		w := floats(t, want, fmt.Sprintf("tree%d_logits", at))
		x, _ := got.Tensor(fmt.Sprintf("%d.tree_logits", i+1))
		vocab := x.Shape[1]
		compare(x.Name, floats(t, got, x.Name), w[vocab:])
		root := floats(t, got, fmt.Sprintf("%d.logits", i+1))
		compare("root of "+x.Name, root[len(root)-vocab:], w[:vocab])
	}
}

// Neither chunks nor a tree that fills a pass change a bit.
func TestScoreOfLongInputDoesNotDependOnChunks(t *testing.T) {
	c := modeltest.Default()
	c.MaxPos = 2048
	dir := modeltest.Random(t, c, 1)
	ids := make([]int, 2*scorePass+3)
	for i := range ids {
		ids[i] = (i*31 + 7) % c.Vocab
	}
	parents, tokens := make([]int, 1023), make([]int, 1023)
	for i := range parents {
		parents[i], tokens[i] = i/3-1, i%c.Vocab
	}
	tree := map[string]any{"parents": parents, "tokens": tokens}
	var in strings.Builder
	for _, l := range []map[string]any{
		{"ids": ids},
		{"ids": ids, "tree": tree},
		{"ids": append(ids[:len(ids):len(ids)], tokens[0], tokens[1]), "tree": nil},
	} {
		b, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(b, '\n'))
	}
	out := filepath.Join(t.TempDir(), "scores.safetensors")
	talftest.OK(t, in.String(), "score", "--model", dir, "--out", out)
	got := openTensors(t, out)
	plain, withTree, longer := floats(t, got, "0.logits"), floats(t, got, "1.logits"), floats(t, got, "2.logits")
	for i := range plain {
		if math.Float32bits(plain[i]) != math.Float32bits(withTree[i]) || math.Float32bits(plain[i]) != math.Float32bits(longer[i]) {
			t.Fatalf("logit %d of token %d depends on what follows: %v, %v, %v", i%c.Vocab, i/c.Vocab, plain[i], withTree[i], longer[i])
		}
	}
	nodes := floats(t, got, "1.tree_logits")
	for i := range c.Vocab { // node 0 hangs below the last id
		if math.Float32bits(nodes[i]) != math.Float32bits(longer[len(ids)*c.Vocab+i]) {
			t.Fatalf("tree node 0, logit %d: %v, plain run %v", i, nodes[i], longer[len(ids)*c.Vocab+i])
		}
	}
}

func TestScoreRefusesBadInput(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 1)
	out := filepath.Join(t.TempDir(), "scores.safetensors")
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"not JSON":            {"{\"ids\":[1]}\nhello\n", []string{"line 2"}},
		"unknown field":       {`{"idz":[1]}`, []string{"line 1", "idz"}},
		"no ids":              {`{"ids":[]}`, []string{"line 1", "ids"}},
		"token too large":     {"\n" + `{"ids":[1,97]}`, []string{"line 2", "97", "vocabulary"}},
		"negative token":      {`{"ids":[-1]}`, []string{"-1", "vocabulary"}},
		"parent after child":  {`{"ids":[1],"tree":{"parents":[0],"tokens":[1]}}`, []string{"tree.parents[0]"}},
		"text after it":       {`{"ids":[1]} and more`, []string{"line 1", "text after"}},
		"two on a line":       {`{"ids":[1]}{"ids":[2]}`, []string{"line 1", "text after"}},
		"a fraction":          {"\n" + `{"ids":[1.5]}`, []string{"line 2", `field "ids": a number 1.5, want a whole number`}},
		"ids as text":         {`{"ids":"1"}`, []string{`field "ids": a text, want a list`}},
		"a list":              {`[1,2]`, []string{"line 1: a list, want an object"}},
		"lengths differ":      {`{"ids":[1],"tree":{"parents":[-1],"tokens":[1,2]}}`, []string{"1 parents and 2 tokens"}},
		"more than positions": {`{"ids":[` + strings.Repeat("1,", 512) + `1]}`, []string{"513", "512"}},
	} {
		t.Run(name, func(t *testing.T) {
			talftest.Run(t, c.in, "score", "--model", dir, "--out", out).Refuses(t, ExitFailure, c.want...)
		})
	}
	talftest.Run(t, `{"ids":[1]}`, "score", "--model", dir, "--out", dir).Refuses(t, ExitFailure, dir, "is a directory")
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), "*")); len(left) != 0 {
		t.Errorf("files were left behind: %v", left)
	}
}
