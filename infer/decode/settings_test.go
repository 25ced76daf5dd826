package decode_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/decode"
	"talf/model/identity"
	"talf/text/chat"
)

// settings returns settings that differ by name.
func settings(name string) *decode.Settings {
	return &decode.Settings{Function: &identity.Function{Arithmetic: name}}
}

// A source that says what it is, for the settings.
type source struct {
	infer.Source
	tensors, tokenizer string
}

func (s source) Identity() (*identity.Function, string, error) {
	return &identity.Function{Model: identity.Model{Tensors: s.tensors}}, s.tokenizer, nil
}

// Answers of two kinds never share a file: whatever can change an answer changes the
// settings, and what cannot does not.
func TestSettingsTellKindsOfAnswersApart(t *testing.T) {
	settings := func(option func(*decode.Options), fact func(*decode.Facts), draft source) *decode.Settings {
		o := sampled()
		option(&o)
		f := decode.Facts{Seed: 1}
		fact(&f)
		s, err := tinyWith(t, o, draft).Settings(f) // nothing is decoded
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	same, plain := func(*decode.Facts) {}, func(*decode.Options) {}
	drawn := func(o *decode.Options) { o.Verify, o.Method = "rrsw", "linear:draw=distinct" } // whose answers depend on the draft
	file := filepath.Join(t.TempDir(), "shapes.json")
	shaped := func(paths string) func(*decode.Options) {
		return func(o *decode.Options) {
			write(t, file, `{"s":`+paths+`}`)
			o.Verify, o.Method = "traversal", "static:draw=distinct,shape=s,file="+file
		}
	}
	near := source{tensors: "x", tokenizer: "y"}
	base := settings(plain, same, near)
	for what, got := range map[string]*decode.Settings{
		"method": settings(func(o *decode.Options) { o.Method = "salf" }, same, near),
		"head":   settings(plain, same, source{tensors: "z"}),
		"draft":  settings(plain, same, source{tensors: "z"}),
	} {
		if got.Hash() != base.Hash() || got.Against(base) != nil {
			t.Errorf("another %s changes the settings, but not the answers", what)
		}
	}
	all := map[string]*decode.Settings{
		"nothing":                      base,
		"temperature":                  settings(func(o *decode.Options) { o.Sample.Temperature = 0.5 }, same, near),
		"max-tokens":                   settings(func(o *decode.Options) { o.MaxTokens++ }, same, near),
		"stop":                         settings(func(o *decode.Options) { o.Stop = []string{"."} }, same, near),
		"ignore-eos":                   settings(func(o *decode.Options) { o.IgnoreEOS = false }, same, near),
		"seed":                         settings(plain, func(f *decode.Facts) { f.Seed = 2 }, near),
		"template":                     settings(plain, func(f *decode.Facts) { f.Template = "x" }, near),
		"verifier":                     settings(drawn, same, near),
		"its method":                   settings(func(o *decode.Options) { drawn(o); o.Method = "linear:draw=distinct,K=2" }, same, near),
		"its draft model":              settings(drawn, same, source{tensors: "z", tokenizer: "y"}),
		"its draft model's tokenizer":  settings(drawn, same, source{tensors: "x", tokenizer: "z"}),
		"its method's files":           settings(shaped("[[0],[1]]"), same, near),
		"its method's files' contents": settings(shaped("[[0],[0,0]]"), same, near),
	}
	for a, x := range all {
		for b, y := range all {
			switch d := x.Against(y); {
			case a != b && (x.Hash() == y.Hash() || d == nil):
				t.Errorf("%s and %s have the same settings", a, b)
			case a == b && d != nil:
				t.Errorf("%s differs from itself: %v", a, d)
			}
		}
	}
	if d := all["seed"].Against(base); d.Since("the answers were made") != "seed is 2, the answers were made with 1" {
		t.Errorf("another seed: %v", d)
	}
}

// An index that no prompt has is refused, not looked up.
func TestAnswersToNoPromptAreRefused(t *testing.T) {
	for _, i := range []int{-1, 1} {
		path := filepath.Join(t.TempDir(), "out.jsonl")
		write(t, path, fmt.Sprintf(`{"index":%d,"prompt":"a","text":"x","settings":%q}`+"\n", i, settings("s").Hash()))
		if _, err := decode.OpenAnswers(path, []decode.Task{{Key: "a"}}, settings("s")); err == nil || !strings.Contains(err.Error(), "line 1: answers a prompt that is not number") {
			t.Errorf("index %d: error %v", i, err)
		}
	}
}

// The longest prompt leaves room for one token of an answer.
func TestTheLongestPromptLeavesRoom(t *testing.T) {
	d := tiny(t, sampled())
	most := d.Engine().Target.Shape().MaxLen
	text := strings.Repeat("xy zq ", most)
	for n := range text {
		p := chat.Prompt{Text: text[:n+1]}
		switch len(tokens(t, d, p)) {
		case most - 1:
			if ids, err := d.Encode(t.Context(), p); err != nil || len(ids) != most-1 {
				t.Fatalf("%d tokens, %v", len(ids), err)
			}
		case most:
			if _, err := d.Encode(t.Context(), p); !errors.Is(err, decode.ErrLongPrompt) {
				t.Fatalf("a prompt of all %d positions: error %v", most, err)
			}
			return
		}
	}
	t.Fatalf("no text has %d tokens", most)
}

func tokens(t *testing.T, d *decode.Decoder, p chat.Prompt) []int32 {
	t.Helper()
	ids, err := d.Tokens(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// One request that fails is the error of all, with the number of its prompt.
func TestSideBySideReportsWhichRequestFailed(t *testing.T) {
	o := sampled()
	d := tiny(t, o)
	var reqs []infer.Request
	for i := range 3 {
		r, err := o.Request(nil, nil, []int32{1, 2, int32(i)}, 1)
		if err != nil {
			t.Fatal(err)
		}
		reqs = append(reqs, r)
	}
	bad := slices.Clone(reqs)
	bad[1].Trace = func(infer.Round) error { return fmt.Errorf("planted") }
	if _, err := all(t, d, bad); err == nil || err.Error() != "prompt 1: trace: planted" {
		t.Errorf("error %v", err)
	}
	bad = slices.Clone(reqs)
	bad[2].Prompt = nil
	if _, err := all(t, d, bad); err == nil || !strings.HasPrefix(err.Error(), "prompt 2: ") {
		t.Errorf("error %v", err)
	}
	if _, err := all(t, d, reqs); err != nil {
		t.Error(err)
	}
}
