package preprocess_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute/cpu"
	"talf/data"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// A set that is not stored has the rows and the order of the one that is written, in every epoch,
// wherever reading starts, and whatever is kept and labelled at once.
func TestASetThatIsNotStoredIsTheOneThatIs(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	file := write(t, "in.jsonl", problems(40, 97))
	for name, x := range map[string]struct {
		labels   data.LabelMode
		features data.FeatureMode
		tokens   int
		keep     int64
		group    int
		prompts  bool
	}{
		"labels of a few tokens":         {data.TopK, data.BF16, 2048, 0, 8 << 20, false},
		"all labels, one row at once":    {data.Full, data.None, 1, 40000, 30000, false},
		"states of layers, all kept":     {data.TopK, "taps:0+2+1", 100, 1 << 30, 20000, false},
		"answers that the target writes": {data.TopK, data.BF16, 64, 1 << 30, 9000, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, file)
			c.Labels, c.Features, c.Tokens, c.Writer.RowGroup = x.labels, x.features, x.tokens, x.group
			in := preprocess.Inputs{Target: m, Tokenizer: numbers{1}, TokenizerHash: "numbers"}
			if x.prompts {
				in.Generator, in.Sampling = lastWord{}, "echo"
			}
			st, err := preprocess.Run(t.Context(), c, in)
			if err != nil {
				t.Fatal(err)
			}
			stored, err := data.Open(c.Out)
			if err != nil {
				t.Fatal(err)
			}
			defer stored.Close()
			made, mst, err := preprocess.Online(t.Context(), c, in, x.keep)
			if err != nil {
				t.Fatal(err)
			}
			if mst.Sequences != st.Sequences || mst.LossTokens != st.LossTokens || !cmp.Equal(mst.Dropped, st.Dropped) {
				t.Errorf("%+v, stored %+v", mst, st)
			}
			var metas [2]string // as JSON, which manifests indent
			for i, m := range []data.Meta{stored.Meta(), made.Meta()} {
				raw, err := json.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				metas[i] = string(raw)
			}
			if d := cmp.Diff(metas[0], metas[1]); d != "" || made.Len() != stored.Len() || made.Len() < 20 {
				t.Fatalf("another set: %d rows and %d, %s", made.Len(), stored.Len(), d)
			}
			const seed = 3
			sp := data.Split{Part: data.Train, Fraction: 0.2}
			want, err := stored.Shuffled(seed, sp)
			if err != nil {
				t.Fatal(err)
			}
			got, err := made.Shuffled(seed, sp)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 * made.Len() {
				if i%11 == 10 { // as after a crash
					if got, err = made.Resume(got.State()); err != nil {
						t.Fatal(err)
					}
				}
				w, werr := want.Next()
				g, gerr := got.Next()
				if !errors.Is(gerr, werr) {
					t.Fatalf("row %d: %v, stored %v", i, gerr, werr)
				}
				if werr == nil {
					if !reflect.DeepEqual(w, g) {
						t.Fatalf("row %d is another", i)
					}
				}
			}
			if m.KV().Used != 0 {
				t.Errorf("%d KV blocks are still held", m.KV().Used)
			}
			wc, err := stored.Counts(sp)
			if err != nil {
				t.Fatal(err)
			}
			if gc, err := made.Counts(sp); err != nil || !cmp.Equal(gc, wc) {
				t.Errorf("other counts: %v", err)
			}
		})
	}
}

// lastWord answers a prompt with its last token and the end, as many times as the seed says.
type lastWord struct{}

func (lastWord) Generate(_ context.Context, prompts []preprocess.Prompt) ([][]int32, error) {
	var all [][]int32
	for _, p := range prompts {
		var a []int32
		for range min(p.Max-1, 1+int(p.Seed%7)) {
			a = append(a, p.Tokens[len(p.Tokens)-1])
		}
		all = append(all, append(a, 2))
	}
	return all, nil
}

// Labels are made when they are asked for, at most Tokens of them; what was kept is not made again.
func TestLabelsAreMadeWhenTheyAreRead(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	c := config(t, write(t, "in.jsonl", problems(40, 97)))
	c.Tokens = 60
	labelled := 0
	in := preprocess.Inputs{Target: m, Tokenizer: numbers{1}, Progress: func(p preprocess.Progress) { labelled = p.Sequences }}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	set, _, err := preprocess.Online(ctx, c, in, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if labelled != 0 {
		t.Errorf("%d sequences are labelled before one is read", labelled)
	}
	r, err := set.Sequential(data.Everything())
	if err != nil {
		t.Fatal(err)
	}
	first, err := r.Next()
	if err != nil || labelled == 0 || labelled > 60/len(first.Tokens)+5 {
		t.Errorf("%d sequences are labelled for the first one, %v", labelled, err)
	}
	for range 2*set.Len() + 1 {
		if _, err := r.Next(); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if labelled != set.Len() {
		t.Errorf("%d of %d sequences were labelled in two epochs", labelled, set.Len())
	}
	if set, _, err = preprocess.Online(ctx, c, in, 0); err != nil {
		t.Fatal(err)
	}
	if r, err = set.Sequential(data.Everything()); err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := r.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
	if used := m.KV().Used; used != 0 {
		t.Errorf("%d KV blocks are still held", used)
	}
	if _, err := set.Stats(); err == nil || !strings.Contains(err.Error(), "not stored") {
		t.Errorf("Stats: %v", err)
	}
}

func TestTextThatHasNothingToLearnIsRefused(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	for text, want := range map[string]string{`{"q":"3","a":""}`: "nothing to learn", "": "nothing to learn"} {
		_, _, err := preprocess.Online(t.Context(), config(t, write(t, "in.jsonl", text)), preprocess.Inputs{Target: m, Tokenizer: numbers{1}}, 0)
		if err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
