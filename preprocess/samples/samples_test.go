package samples

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"talf/data/corpus"
	"talf/internal/demo"
	"talf/preprocess"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// texts writes lines to a file and returns the configuration and the Reader to read it.
func texts(t *testing.T, lines ...string) (preprocess.Config, preprocess.Reader) {
	t.Helper()
	dir := t.TempDir()
	if err := demo.UnpackTokenizer(dir); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	jinja := filepath.Join(dir, "chat.jinja")
	if err := os.WriteFile(jinja, []byte("{% for m in messages %}{{ m.content }}{% endfor %}"), 0o644); err != nil {
		t.Fatal(err)
	}
	template, _, err := chat.Open(dir, jinja, time.Time{}, false)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Reader(dir, tok, template)
	if err != nil {
		t.Fatal(err)
	}
	c := preprocess.Default()
	c.Files = []string{filepath.Join(dir, "in.jsonl")}
	if err := os.WriteFile(c.Files[0], []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	return c, r
}

// An index keeps documents. full is its error for one document more than it has room
// for.
type index struct {
	documents [][]int32
	room      int
}

var errFull = errors.New("full")

func (x *index) Add(tokens []int32) error {
	if len(x.documents) == x.room {
		return errFull
	}
	x.documents = append(x.documents, slices.Clone(tokens))
	return nil
}

func TestAnIndexIsFilledWithWhatPreprocessMakes(t *testing.T) {
	c, r := texts(t, `{"text":"Once upon a time"}`, `{"neither":1}`, `{"messages":[{"role":"user","content":"Hi"}]}`, `{"text":"there was a cat."}`)
	bad := 0
	var done []int
	x := &index{room: 2}
	dropped, err := Fill(t.Context(), c, r, x, func(corpus.BadLine) { bad++ }, func(n int) { done = append(done, n) })
	if err != nil {
		t.Fatal(err)
	}
	if len(x.documents) != 2 || !slices.Equal(done, []int{1, 2}) {
		t.Fatalf("%d documents, progress %v", len(x.documents), done)
	}
	for i, want := range []string{"Once upon a time", "there was a cat."} {
		if got := r.Tokenizer.(*tokenizer.Tokenizer).Decode(x.documents[i], true); got != want {
			t.Errorf("document %d is %q, want %q", i, got, want)
		}
	}
	if bad != 1 || len(dropped) != 1 || dropped["no assistant turn"] != 1 {
		t.Errorf("dropped %v and %d bad lines, want the question without an answer, and one", dropped, bad)
	}
	if _, err := Fill(t.Context(), c, r, &index{room: 1}, func(corpus.BadLine) {}, func(int) {}); !errors.Is(err, errFull) || !strings.Contains(err.Error(), "in.jsonl:4: ") {
		t.Errorf("a full index: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	x = &index{room: 2}
	if _, err := Fill(ctx, c, r, x, func(corpus.BadLine) {}, func(int) { cancel() }); !errors.Is(err, context.Canceled) || len(x.documents) != 1 {
		t.Errorf("cancelled after a document: %d documents, %v", len(x.documents), err)
	}
}
