package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"talf/compute/cpu/kern"
	"talf/infer/decode"
	"talf/internal/e2e/talftest"
	"talf/model"
	"talf/model/gguf/gguftest"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// The README's promise, through the command line: whatever the method, the text is the same,
// greedy and sampled, and in a type of weights with products of its own.
func TestMethodsGiveTheSameText(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	for _, sampling := range [][]string{
		{},
		{"--dtype", "bf16dp"},
		{"--temperature", "0.9", "--seed", "5", "--top-k", "50", "--top-p", "0.95"},
		{"--temperature", "1.2", "--min-p", "0.02", "--repetition-penalty", "1.3", "--seed", "0"},
	} {
		args := append([]string{"generate", "--model", dir, "--prompt", "Once upon a time", "--max-tokens", "40", "--ignore-eos"}, sampling...)
		want := talftest.OK(t, "", append(args, "--method", "ar")...)
		if len(want) < 20 {
			t.Fatalf("plain decoding wrote %q", want)
		}
		for _, drafts := range [][]string{
			{},
			{"--head", ckpt},
			{"--draft", dir}, // whatever the clock makes of the default
			{"--head", ckpt, "--method", "ar"},
			{"--head", ckpt, "--method", "beam"},
			{"--head", ckpt, "--method", "optimal:N=20,B=4"},
			{"--head", ckpt, "--method", "salf"},
			{"--head", ckpt, "--method", "salf:paper,th=0.1,finish=fill"},
		} {
			got := talftest.OK(t, "", append(append(args, "--threads", "1"), drafts...)...)
			if got != want {
				t.Errorf("%v, %v:\n%q, want\n%q", sampling, drafts, got, want)
			}
		}
	}
}

// Products of bf16dp have the same bits whatever computes them: here, everything else than what this
// machine would choose.
func TestEveryClassWritesTheSameTextWithPairs(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	args := []string{"generate", "--model", dir, "--prompt", "Once upon a time", "--max-tokens", "40", "--ignore-eos", "--dtype", "bf16dp"}
	want := talftest.OK(t, "", args...)
	for _, class := range kern.Available() {
		t.Setenv(kern.EnvClass, class.String())
		r := talftest.Run(t, "", args...)
		if r.Code != ExitOK || r.Out != want {
			t.Errorf("%v: exit %d, %q, want %q", class, r.Code, r.Out, want)
		}
		if slow := strings.Contains(r.Err, "plain Go"); slow != (class == kern.Portable || class >= kern.NEON) {
			t.Errorf("%v: a warning that products are slow: %v\n%s", class, slow, r.Err)
		}
	}
}

func TestNoCommandRunsWithoutItsClass(t *testing.T) {
	t.Setenv(kern.EnvClass, "sse9")
	for _, args := range [][]string{{"doctor"}, {"generate", "--model", "none"}, {"version"}} {
		talftest.Run(t, "", args...).Refuses(t, ExitUsage, `TALF_CLASS=sse9: kern: no class "sse9": want portable, `)
	}
}

func TestGenerateReadsStandardInputAndPrintsStats(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	r := talftest.Run(t, "Tom had 3 apples\n", "generate", "--model", dir, "--head", ckpt, "--method", "salf:paper", "--max-tokens", "12", "--ignore-eos", "--stats")
	if r.Code != ExitOK || !strings.Contains(r.Err, "τ ") || !strings.Contains(r.Err, "draft") {
		t.Errorf("exit %d, stderr:\n%s", r.Code, r.Err)
	}
	var a decode.Answer
	out := talftest.OK(t, "", "generate", "--model", dir, "--prompt", "Tom had 3 apples", "--method", "ar", "--max-tokens", "12", "--ignore-eos", "--json")
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatal(err)
	}
	if a.Text+"\n" != r.Out || a.Tokens != 12 || a.Stop != "length" || a.Stats.Tau != 1 {
		t.Errorf("got %+v, want the text %q of 12 tokens", a, r.Out)
	}
}

// What weights, keys and values take, and what is rounded, is said in words and as numbers.
func TestGenerateSaysWhatMemoryItTakes(t *testing.T) {
	path := gguftest.Tiny(3).Write(t, "tiny.gguf")
	for dtype, want := range map[string]struct {
		name  string
		exact bool
	}{"auto": {"auto (stored types)", true}, "q8": {"q8", false}, "f32": {"f32", true}} {
		args := []string{"generate", path, "Once", "--max-tokens", "2", "--dtype", dtype}
		said := talftest.Finish(t, talftest.Command(t, append(args, "--stats")...)).Err
		for _, part := range []string{"memory: weights ", " in the file) as " + want.name + "; keys and values "} {
			if !strings.Contains(said, part) {
				t.Errorf("--dtype %s: stderr lacks %q: %s", dtype, part, said)
			}
		}
		if got := strings.Contains(said, "no weight is rounded"); got != want.exact {
			t.Errorf("--dtype %s: %s", dtype, said)
		}
		var r struct {
			Text   string
			Memory model.Memory
		}
		if err := json.Unmarshal([]byte(talftest.OK(t, "", append(args, "--json")...)), &r); err != nil {
			t.Fatal(err)
		}
		if m := r.Memory; r.Text == "" || m.DType != want.name || m.Weights == 0 || m.File == 0 || m.KV == 0 || m.Exact != want.exact {
			t.Errorf("--dtype %s: %+v", dtype, r)
		}
	}
}

func TestGenerateStopsBeforeAStopText(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	args := []string{"generate", "--model", dir, "--prompt", "Once", "--max-tokens", "30", "--ignore-eos"}
	whole := strings.TrimSuffix(talftest.OK(t, "", args...), "\n")
	stop := whole[len(whole)/2 : len(whole)/2+3]
	want, _, _ := strings.Cut(whole, stop)
	if got := strings.TrimSuffix(talftest.OK(t, "", append(args, "--stop", stop)...), "\n"); got != want {
		t.Errorf("stopping at %q gives %q, want %q", stop, got, want)
	}
}

// Without --seed, two runs differ, and each names the seed that repeats it.
func TestADrawnSeedIsNamed(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	args := []string{"generate", "--model", dir, "--max-tokens", "12", "--ignore-eos", "--temperature", "1"}
	seed := func(r talftest.Result) string {
		t.Helper()
		m := regexp.MustCompile(`msg=sampling seed=(\d+)`).FindStringSubmatch(r.Err)
		if r.Code != ExitOK || m == nil {
			t.Fatalf("exit %d, and no seed is named:\n%s", r.Code, r.Err)
		}
		return m[1]
	}
	one := append(args, "--prompt", "Once")
	a, b := talftest.Run(t, "", one...), talftest.Run(t, "", one...)
	if seed(a) == seed(b) || a.Out == b.Out {
		t.Errorf("two runs drew the seeds %s and %s, and wrote %q and %q", seed(a), seed(b), a.Out, b.Out)
	}
	if got := talftest.OK(t, "", append(one, "--seed", seed(a))...); got != a.Out {
		t.Errorf("with its seed the answer is %q, was %q", got, a.Out)
	}
	if r := talftest.Run(t, "", "generate", "--model", dir, "--max-tokens", "4", "--prompt", "Once"); strings.Contains(r.Err, "seed") {
		t.Errorf("greedy decoding drew a seed:\n%s", r.Err)
	}

	// A file is continued with the seed that it was begun with.
	in, out := talftest.PromptFile(t, 3), filepath.Join(t.TempDir(), "out.jsonl")
	file := append(args, "--prompts", in, "--out", out)
	first := seed(talftest.Run(t, "", file...))
	whole, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, out, string(whole[:bytes.IndexByte(whole, '\n')+1]))
	if again := seed(talftest.Run(t, "", file...)); again != first {
		t.Errorf("continued with seed %s, begun with %s", again, first)
	}
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("continued: %v\n%s\nwant\n%s", err, got, whole)
	}
}

// If the command is killed at any point, the same command completes the file of answers, which
// then equals that of an uninterrupted run.
func TestPromptFilesAreResumable(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	in := talftest.PromptFile(t, 6)
	tmp := t.TempDir()
	args := func(out string) []string {
		return []string{"generate", "--model", dir, "--head", ckpt, "--prompts", in, "--out", out, "--max-tokens", "10"}
	}
	whole := filepath.Join(tmp, "whole.jsonl")
	talftest.OK(t, "", args(whole)...)
	want, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(talftest.ReadAnswers(t, whole)); n != 6 {
		t.Fatalf("%d answers, want 6", n)
	}
	torn := filepath.Join(tmp, "torn.jsonl")
	for _, cut := range []int{0, 1, len(want) / 3, len(want) / 2, len(want) - 1, len(want)} {
		talftest.Write(t, torn, string(want[:cut]))
		talftest.OK(t, "", args(torn)...)
		got, err := os.ReadFile(torn)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("cut at %d: the completed file differs:\n%s\nwant\n%s", cut, got, want)
		}
	}
	talftest.Run(t, "", append(args(torn), "--temperature", "1")...).Refuses(t, ExitFailure, "torn.jsonl", "choose another --out")
}

func TestPromptFilesOfEveryKind(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	tmp := t.TempDir()
	for name, c := range map[string]struct {
		file, text string
		args       []string
		prompts    []string
	}{
		"prompt":   {"a.jsonl", `{"prompt":"One"}`, nil, []string{"One"}},
		"text":     {"b.jsonl", `{"text":"Two"}` + "\n" + `{"text":"Three"}`, nil, []string{"Two", "Three"}},
		"turns":    {"c.jsonl", `{"turns":["Four","Five"]}`, nil, []string{"Four\nFive"}},
		"template": {"d.jsonl", `{"question":"Six"}`, []string{"--template", `Q: {question}\nA:`}, []string{"Q: Six\nA:"}},
		"plain":    {"e.txt", "Seven\n\nEight\n", nil, []string{"Seven", "Eight"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(tmp, name+".out.jsonl")
			talftest.OK(t, "", append([]string{
				"generate", "--model", dir, "--max-tokens", "4",
				"--prompts", talftest.Write(t, filepath.Join(tmp, c.file), c.text), "--out", out,
			}, c.args...)...)
			var got []string
			for _, a := range talftest.ReadAnswers(t, out) {
				got = append(got, a.Prompt)
				if name == "turns" && len(a.Turns) != 2 {
					t.Errorf("%d answers to 2 turns", len(a.Turns))
				}
			}
			if strings.Join(got, "|") != strings.Join(c.prompts, "|") {
				t.Errorf("prompts %q, want %q", got, c.prompts)
			}
		})
	}
}

func TestAnInterruptedFileOfPromptsSaysHowToGoOn(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes for some seconds")
	}
	talftest.Interrupts(t)
	c := talftest.TinyConfig()
	c.Layers, c.Hidden, c.FFN, c.Heads, c.KVHeads, c.HeadDim = 8, 256, 688, 8, 4, 32
	dir := talftest.TinyModel(t, c, 1)
	out := filepath.Join(t.TempDir(), "out.jsonl")
	cmd := talftest.Command(t, "generate", "--model", dir, "--prompts", talftest.PromptFile(t, 400), "--out", out, "--max-tokens", "100", "--ignore-eos")
	r := talftest.Interrupt(t, cmd, func() bool {
		info, err := os.Stat(out)
		return err == nil && info.Size() > 0
	})
	if r.Code != ExitInterrupted || !strings.Contains(r.Err, "run the same command again") {
		t.Fatalf("exit %d, stderr:\n%s", r.Code, r.Err)
	}
	if n := len(talftest.ReadAnswers(t, out)); n < 1 || n >= 400 {
		t.Errorf("%d answers are in the file", n)
	}
}

func TestChatKeepsTheDialogue(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	args := []string{"chat", "--model", dir, "--head", ckpt, "--max-tokens", "8", "--ignore-eos", "--stats"}
	r := talftest.Run(t, "Hello\nHow are you?\n/reset\nHello\n/quit\nnever read\n", args...)
	if r.Code != ExitOK {
		t.Fatalf("exit %d\n%s", r.Code, r.Err)
	}
	answers := strings.Split(strings.TrimSuffix(r.Out, "\n"), "\n")
	if strings.Count(r.Err, "τ ") != 3 {
		t.Errorf("want three answers; stderr:\n%s\nstdout:\n%s", r.Err, r.Out)
	}
	if first := answers[0]; !strings.HasSuffix(r.Out, first+"\n") {
		t.Errorf("after /reset the same question has another answer: %q", r.Out)
	}
	// The second turn's prompt begins with the first turn, whose keys are kept.
	if !strings.Contains(r.Err, "prompt tokens") || strings.Count(r.Err, ", 0 of them cached") == 3 {
		t.Errorf("nothing of the dialogue was re-used:\n%s", r.Err)
	}
}

// One prompt that does not fit does not cost the others their answers, and is tried again by the
// next run.
func TestAPromptThatIsTooLongIsNamed(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	tmp := t.TempDir()
	long := strings.Repeat("never ending ", 2000)
	in := talftest.Write(t, filepath.Join(tmp, "in.jsonl"), `{"prompt":"a"}`+"\n"+`{"prompt":"`+long+`"}`+"\n"+`{"prompt":"b"}`+"\n")
	out := filepath.Join(tmp, "out.jsonl")
	for range 2 {
		talftest.Run(t, "", "generate", "--model", dir, "--max-tokens", "4", "--prompts", in, "--out", out).
			Refuses(t, ExitFailure, in+":2 was not answered", "too long", "want fewer than")
		if a := talftest.ReadAnswers(t, out); len(a) != 2 || a[0].Index != 0 || a[1].Index != 2 {
			t.Errorf("answers %+v, want those of prompts 0 and 2", a)
		}
	}
}

// A turn for which the model has no room costs the turn, not the dialogue.
func TestChatGoesOnAfterATurnThatIsTooLong(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	args := []string{"chat", "--model", dir, "--max-tokens", "8", "--ignore-eos"}
	want := talftest.OK(t, "Hello\n", args...)
	r := talftest.Run(t, strings.Repeat("never ending ", 2000)+"\nHello\n", args...)
	if r.Out != want {
		t.Errorf("answers %q, want %q", r.Out, want)
	}
	if !strings.Contains(r.Err, "/reset") {
		t.Errorf("nothing says what to do:\n%s", r.Err)
	}
	r.Refuses(t, ExitFailure, "turns that were not answered: 1")
}

// Whoever waits at a terminal can leave.
func TestAnInterruptEndsReadingStandardInput(t *testing.T) {
	talftest.Interrupts(t)
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	for name, args := range map[string][]string{
		"generate": {"generate", "--model", dir},
		"score":    {"score", "--model", dir, "--out", filepath.Join(t.TempDir(), "scores")},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := talftest.Command(t, args...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			r := talftest.Interrupt(t, cmd, func() bool {
				// More than a pipe holds: the command reads.
				_, err := in.Write(bytes.Repeat([]byte("{\"ids\":[1]}\n"), 100_000))
				return err == nil
			})
			if r.Code != ExitInterrupted {
				t.Errorf("exit %d, stderr:\n%s", r.Code, r.Err)
			}
		})
	}
}

// An answer without text is no success that says nothing.
func TestAnEmptyAnswerIsExplained(t *testing.T) {
	dir := talftest.ChatModel(t)
	first := func(args ...string) int {
		t.Helper()
		text := strings.TrimSuffix(talftest.OK(t, "", append([]string{"generate", dir, "Hello", "--max-tokens", "1", "--ignore-eos"}, args...)...), "\n")
		tok, err := tokenizer.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := tok.Encode(text, false)
		if err != nil || len(ids) != 1 {
			t.Fatalf("%q is %v: %v", text, ids, err)
		}
		return int(ids[0])
	}
	asked, raw := first(), first("--raw")
	for _, c := range []struct {
		eos        int
		args, want []string
	}{
		{asked, nil, []string{"ends the text", "--temperature 0.7", "--raw"}},
		{raw, []string{"--raw"}, []string{"ends the text", "--ignore-eos", "no --raw"}},
	} {
		talftest.EditJSON(t, filepath.Join(dir, "config.json"), "eos_token_id", c.eos)
		for _, command := range []string{"generate", "chat"} {
			args := append([]string{command, dir}, c.args...)
			r := talftest.Run(t, "Hello\n", args...)
			if r.Code != ExitOK || r.Out != "\n" {
				t.Errorf("%v: exit %d, %q", args, r.Code, r.Out)
			}
			for _, w := range c.want {
				if !strings.Contains(r.Err, w) {
					t.Errorf("%v: %q is not in\n%s", args, w, r.Err)
				}
			}
		}
	}
	if r := talftest.Run(t, "", "generate", dir, "Hello", "--max-tokens", "1", "--ignore-eos"); strings.Contains(r.Err, "empty") {
		t.Errorf("an answer is called empty:\n%s", r.Err)
	}
}

// Templates write the day that it is, but for what a later run continues.
func TestTheDateOfTemplates(t *testing.T) {
	dir := talftest.ChatModel(t)
	talftest.Write(t, filepath.Join(dir, "chat_template.jinja"), "{{ strftime_now('%Y-%m-%d') }}")
	tree := newRoot(quietApp(t))
	for _, name := range []string{"generate", "chat", "serve", "preprocess", "bench", "train"} {
		c, _, err := tree.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		want := chat.FixedDate
		if name == "generate" || name == "chat" || name == "serve" {
			want = ""
		}
		if got := c.Flag("date").DefValue; got != want {
			t.Errorf("%s: --date is %q by default, want %q", name, got, want)
		}
	}
	var f pflag.FlagSet
	var o chatOptions
	o.flags(&f)
	date := func() string {
		t.Helper()
		template, _, err := o.load(dir)
		if err != nil {
			t.Fatal(err)
		}
		d := chat.Begin(template, "")
		d.Say("x")
		d.Ask()
		p, err := d.Prompt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p.Text
	}
	if got := date(); got != chat.FixedDate {
		t.Errorf("the date is %s, want %s", got, chat.FixedDate)
	}
	o.today(&f, "")
	if before, got, after := time.Now().Format(time.DateOnly), date(), time.Now().Format(time.DateOnly); got != before && got != after {
		t.Errorf("the date is %s, want %s", got, after)
	}
	o.date = "2020-02-02"
	if got := date(); got != o.date {
		t.Errorf("the date is %s, want %s", got, o.date)
	}
}
