package score

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"talf/internal/limits"
)

func TestInputsAreReadWithTheirPlaces(t *testing.T) {
	got, err := Read("f", strings.NewReader("{\"ids\":[1,2]}\n\n  \n{\"ids\":[3],\"tree\":{\"parents\":[-1,0],\"tokens\":[4,5]}}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Input{
		{IDs: []int32{1, 2}, Place: "f, line 1"},
		{IDs: []int32{3}, Tree: &Tree{Parents: []int{-1, 0}, Tokens: []int32{4, 5}}, Place: "f, line 4"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if none, err := Read("f", strings.NewReader("\n\n")); err != nil || none != nil {
		t.Errorf("blank lines: %v, %v", none, err)
	}
}

func TestBadLinesAreNamed(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"not JSON":           {"{\"ids\":[1]}\nhello\n", "f, line 2: "},
		"an unknown field":   {`{"idz":[1]}`, `f, line 1: field "idz": there is no such field`},
		"a field of ours":    {`{"ids":[1],"Place":"x"}`, `f, line 1: field "Place": there is no such field`},
		"other case":         {`{"IDS":[2],"ids":[1]}`, `f, line 1: field "IDS": there is no such field`},
		"a key twice":        {`{"ids":[1],"ids":[2]}`, `f, line 1: field "ids": it occurs twice`},
		"no ids":             {"\n" + `{"ids":[]}`, "f, line 2: ids is empty"},
		"parent after child": {`{"ids":[1],"tree":{"parents":[0],"tokens":[1]}}`, "f, line 1: tree.parents[0]"},
		"text after it":      {`{"ids":[1]} and more`, "f, line 1: text after the JSON value"},
		"two on a line":      {`{"ids":[1]}{"ids":[2]}`, "f, line 1: text after the JSON value"},
		"a fraction":         {`{"ids":[1.5]}`, `f, line 1: field "ids": a number 1.5, want a whole number`},
	} {
		if _, err := Read("f", strings.NewReader(c.in)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	broken := errors.New("broken")
	if _, err := Read("f", iotest.ErrReader(broken)); !errors.Is(err, broken) || err.Error() != "f: broken" {
		t.Errorf("a reader that fails: %v", err)
	}
}

func TestLongLinesAreRefused(t *testing.T) {
	in := "{\"ids\":[1]}\n\n" + strings.Repeat(" ", limits.LineBytes+1)
	_, err := Read("f", strings.NewReader(in))
	if !errors.Is(err, limits.ErrTooLarge) || !strings.HasPrefix(err.Error(), "f, line 3: a line of more than ") {
		t.Errorf("%v, want the line and ErrTooLarge", err)
	}
}
