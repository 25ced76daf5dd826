package rig_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/data/corpus"
	"talf/infer"
	"talf/infer/bench"
	"talf/infer/bench/heads"
	"talf/infer/bench/rig"
	"talf/infer/decode"
	"talf/infer/prompts"
	"talf/internal/e2e/talftest"
)

// open returns a rig of a random model, and the model's directory.
func open(t *testing.T) (*rig.Rig, string) {
	t.Helper()
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	m := talftest.OpenModel(t, dir)
	tok, err := decode.LoadTokenizer(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	d, err := decode.New(decode.Config{Target: m, Tokenizer: tok, Options: decode.Default()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	r := rig.New(m, tok, d)
	t.Cleanup(r.Close)
	return r, dir
}

// A prompt that is limited at its beginning keeps its first tokens; one that leaves no room for
// an answer keeps its last ones.
func TestPromptsAreCutAtEitherEnd(t *testing.T) {
	r, _ := open(t)
	file := talftest.Write(t, filepath.Join(t.TempDir(), "in.jsonl"), `{"text":"Once upon a time there was"}`+"\n"+`{"text":"Tom"}`+"\n"+`{"text":"a"}`)
	set, err := prompts.Read(file, corpus.Default(), nil, func(b corpus.BadLine) { t.Error(b) })
	if err != nil {
		t.Fatal(err)
	}
	ids, err := r.Tokenizer.Encode("Once upon a time there was", true)
	if err != nil {
		t.Fatal(err)
	}
	longest := r.Model.Spec().MaxPos
	if len(ids) < 6 {
		t.Fatalf("a text of %d tokens is too short for this test", len(ids))
	}
	for i, c := range []struct {
		limits  rig.Limits
		prompts int
		cut     int
		want    []int32
	}{
		{rig.Limits{Answer: 1}, 3, 0, ids},
		{rig.Limits{Answer: 1, Prompts: 2}, 2, 0, ids},
		{rig.Limits{Answer: 1, Tokens: 4}, 3, 0, ids[:4]},
		{rig.Limits{Answer: longest - 5, Prompts: 1}, 1, 1, ids[len(ids)-5:]},
		{rig.Limits{Answer: longest - 3, Tokens: 4, Prompts: 1}, 1, 1, ids[1:4]},
	} {
		cut, room, err := r.AddSet(t.Context(), fmt.Sprint(i), set, c.limits)
		if err != nil {
			t.Fatal(err)
		}
		got := r.Sets[i]
		if cut != c.cut || got.Cut != c.cut || room != longest-c.limits.Answer || len(got.Prompts) != c.prompts {
			t.Errorf("%+v: %d prompts, %d cut to %d tokens", c.limits, len(got.Prompts), cut, room)
		}
		if d := cmp.Diff(c.want, got.Prompts[0].Tokens); d != "" {
			t.Errorf("%+v: %s", c.limits, d)
		}
	}
	want, err := r.Tokenizer.Encode("Once u", true)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Sets[0].Prompts[0].First(t.Context(), 6); err != nil || !slices.Equal(got, want) {
		t.Errorf("the first six characters are %v, %v, want %v", got, err, want)
	}
	if got, err := r.Sets[0].Prompts[0].First(t.Context(), 600); err != nil || !slices.Equal(got, ids) {
		t.Errorf("the first 600 characters are %v, %v, want all", got, err)
	}
	if r.Chats {
		t.Error("no chat template wrote these")
	}

	// Where texts are read again, only what is recorded ends there.
	r.Engine.Target = switching{r.Engine.Target, 5}
	for once, kept := range map[bool]int{false: len(ids), true: 4} {
		if _, _, err := r.AddSet(t.Context(), "once", set, rig.Limits{Answer: 1, Prompts: 1, Once: once}); err != nil {
			t.Fatal(err)
		}
		if got := r.Sets[len(r.Sets)-1].Prompts[0].Tokens; !slices.Equal(got, ids[len(ids)-kept:]) {
			t.Errorf("recorded %v: a prompt of %v, want the last %d of %v", once, got, kept, ids)
		}
	}
}

// A switching target reads texts of more than at tokens again.
type switching struct {
	infer.Target
	at int
}

func (switching) Abilities() infer.Abilities { return infer.Abilities{} }

func (s switching) Shape() infer.Shape {
	shape := s.Target.Shape()
	shape.Switch = s.at
	return shape
}

// The settings of a log change with what the models compute and everything else that decides
// results.
func TestSettingsNameTheModelsInOrder(t *testing.T) {
	r, dir := open(t)
	rest := func() map[string]any { return map[string]any{"x": 3} }
	bare, err := r.Settings(rest())
	if err != nil || bare.Function.Hash() != r.Model.Function().Hash() || len(bare.Drafts) != 0 || string(bare.Rest["x"]) != "3" || bare.Rest["device"] == nil {
		t.Errorf("%+v, %v", bare, err)
	}
	h := talftest.TinyHead(t, dir, 2)
	if err := r.AddHead(rig.Named{Name: "a", Path: h}, false, nil); err != nil {
		t.Fatal(err)
	}
	with, err := r.Settings(rest())
	if err != nil || len(with.Drafts) != 1 || with.Drafts[0].Name != "a" || with.Drafts[0].Function.Tensors == bare.Function.Tensors {
		t.Errorf("with a head: %+v, %v", with, err)
	}
	var names []string
	c := bench.Default()
	_, err = r.ByRank(t.Context(), rig.OverTexts, &c, 2, func(int) {}, func(head string, _ [][]heads.Item, _ []heads.Text) error {
		names = append(names, head)
		return nil
	})
	if d := cmp.Diff([]string{"a"}, names); d != "" || err != nil {
		t.Errorf("heads by rank: %v: %s", err, d)
	}
}

func TestNamesOfPaths(t *testing.T) {
	got, err := rig.ParseNames("head", "CKPT", []string{"dir/one", "b=dir/one", "c=x=y", "http://[::1]:80/v1"})
	if d := cmp.Diff([]rig.Named{{"one", "dir/one"}, {"b", "dir/one"}, {"c", "x=y"}, {"[::1]:80", "http://[::1]:80/v1"}}, got); d != "" || err != nil {
		t.Errorf("%v: %s", err, d)
	}
	for value, want := range map[string]string{
		"=x":     `head is "=x", want CKPT or NAME=CKPT`,
		"a=":     `head is "a=", want CKPT or NAME=CKPT`,
		"z/one":  `head: two are called "one": say NAME=CKPT`,
		"one=/x": `head: two are called "one": say NAME=CKPT`,
	} {
		if _, err := rig.ParseNames("head", "CKPT", []string{"dir/one", value}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
}

// Heads are conditioned on the target's own answers, none of whose prompt's tokens count, or on
// the texts as they are. Both are of the part of the prompts that was asked for.
func TestTextsOfRanksAreAnswersOrTexts(t *testing.T) {
	r, _ := open(t)
	file := talftest.Write(t, filepath.Join(t.TempDir(), "in.jsonl"), `{"text":"password"}`+"\n"+`{"text":"abc"}`+"\n"+`{"text":"hello"}`)
	set, err := prompts.Read(file, corpus.Default(), nil, func(b corpus.BadLine) { t.Error(b) })
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.AddSet(t.Context(), "a", set, rig.Limits{Answer: 8, Split: prompts.Tune, Prompts: 2}); err != nil || r.Part() != "tune" || len(r.Sets[0].Prompts) != 2 {
		t.Fatalf("the part %q, %v, sets %+v", r.Part(), err, r.Sets)
	}
	if got := r.Sets[0].Prompts[1].Name; got != "2" {
		t.Errorf("the second prompt to tune on is %s, want the third of the file", got)
	}
	c := bench.Default()
	c.MaxTokens, c.NoEOS = 8, true
	texts, what, err := r.RankTexts(t.Context(), rig.OverTexts, &c)
	if err != nil || len(texts) != 2 || texts[0].From != 0 || !strings.Contains(what, "given texts") {
		t.Errorf("texts %+v, %q, %v", texts, what, err)
	}
	answers, what, err := r.RankTexts(t.Context(), rig.OverAnswers, &c)
	if err != nil || len(answers) != 2 || !strings.Contains(what, "own greedy answers to 2 prompts, up to 8 tokens") {
		t.Fatalf("answers %+v, %q, %v", answers, what, err)
	}
	for i, x := range answers {
		p := texts[i].Tokens
		if len(x.Tokens) != len(p)+8 || !slices.Equal(x.Tokens[:len(p)], p) || x.From != len(p)-1 {
			t.Errorf("%+v of the prompt %v", x, p)
		}
	}
	if _, _, err := r.RankTexts(t.Context(), "prompts", &c); err == nil || !strings.Contains(err.Error(), "want answers or texts") {
		t.Errorf("other texts: %v", err)
	}
}
