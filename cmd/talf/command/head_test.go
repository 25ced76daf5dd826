package command

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"talf/checkpoints"
	"talf/compute"
	"talf/data"
	"talf/infer/decode"
	"talf/internal/await"
	"talf/internal/e2e/talftest"
	"talf/internal/makehead"
	"talf/internal/vfs/vfstest"
	"talf/model"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
	"talf/text/tokenizer"
	"talf/train"
)

// headPlan makes a head in a few steps.
func headPlan() makehead.Plan {
	p := makehead.Default()
	p.Tokens, p.MaxTokens = 400, 24
	p.K, p.Depth, p.Shard = 2, 2, 16
	p.Stages, p.Rows, p.Warmup, p.Every = []string{"dflash:labels=tail,gamma=0:4", "dspark:2"}, 128, 1, 2
	p.Report, p.Measure = 2, 6
	return p
}

// stoppingHead ends a run after its first stage.
type stoppingHead struct{ *headTools }

func (*stoppingHead) End(time.Duration) error { return errStopped }

// cutHead ends a run in the middle of the stage that begins as number stage of those that show progress.
type cutHead struct {
	*headTools
	at   string
	stop context.CancelFunc
}

func (c *cutHead) Progress(what, unit string) (func(done, total int, note string), func()) {
	return func(done, total int, _ string) {
		if what == c.at && done >= 3 {
			c.stop()
		}
	}, func() {}
}

func headConfig(t *testing.T, model, dir string, data ...string) makehead.Config {
	p := headPlan()
	p.Data = data
	return makehead.Config{Dir: dir, Plan: p, Tools: &headTools{stageTools: stageTools{quietApp(t)}, model: model, machine: defaultMachine()}}
}

// eagleConfig is headConfig of an EAGLE head.
func eagleConfig(t *testing.T, model, dir string) makehead.Config {
	c := headConfig(t, model, dir)
	c.Plan.SetNetwork("eagle")
	c.Plan.Stages = []string{"hass:outside=mask:4", "hass:passes=2,outside=mask:2"}
	return c
}

// briefModel is a model whose answers are short: many of its tokens end them.
func briefModel(t *testing.T) string {
	t.Helper()
	dir := talftest.ChatModel(t)
	var ends []int
	for id := 1; id < 32; id++ {
		ends = append(ends, id)
	}
	talftest.EditJSON(t, filepath.Join(dir, "config.json"), "eos_token_id", ends)
	return dir
}

// openedHead records how the model is opened.
type openedHead struct {
	*headTools
	rough []bool
}

func (o *openedHead) Open(ctx context.Context, rough bool) (*model.Model, *tokenizer.Tokenizer, func(), error) {
	o.rough = append(o.rough, rough)
	return o.headTools.Open(ctx, rough)
}

// Answers to learn from are written and labelled with activations of 8 bits; what the head is said to bring is measured with those of
// a user. Another seed asks other prompts.
func TestHeadWritesRoughly(t *testing.T) {
	path := briefModel(t)
	answers := func(seed uint64) string {
		c := headConfig(t, path, t.TempDir())
		tools := &openedHead{headTools: c.Tools.(*headTools)}
		c.Plan.Seed, c.Tools, tools.machine.DType = seed, tools, checkpoints.DType(compute.Q8)
		if _, err := makehead.Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		labels, err := data.Open(filepath.Join(c.Dir, "labels"))
		if err != nil {
			t.Fatal(err)
		}
		defer labels.Close()
		if got := labels.Meta().Function.Activations; got != "int8" {
			t.Errorf("labelled with activations of %s, want int8", got)
		}
		if want := []bool{false, true, false}; !slices.Equal(tools.rough, want) {
			t.Errorf("opened roughly for costs, answers and measurements: %v, want %v", tools.rough, want)
		}
		text, err := os.ReadFile(filepath.Join(c.Dir, "text.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if answers(1) == answers(2) {
		t.Error("two seeds have the same answers")
	}
	if m := (decode.Machine{Device: "cpu"}); roughly(m).ActBits != 8 {
		t.Error("rough activations have not 8 bits")
	}
}

func weightsIn(t *testing.T, dir string) string {
	t.Helper()
	at, err := checkpoints.Find(filepath.Join(dir, "head", "best"))
	if err != nil {
		t.Fatal(err)
	}
	best, err := os.ReadFile(filepath.Join(at, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return string(best)
}

// A run that is stopped after every stage, and while it writes answers, makes the head of one that is not, from prompts
// and from the model alone, of each network.
func TestHeadGoesOnWhereItStopped(t *testing.T) {
	model := briefModel(t)
	for name, c := range map[string]struct {
		files          []string
		network, shape string
		stages         []string
	}{
		"alone":   {shape: "linear maps of the anchor and the state before it"},
		"prompts": {files: []string{talftest.PromptFile(t, 80)}, shape: "4 rows, which predict 4 tokens, linear maps"},
		"eagle":   {network: "eagle", shape: "57640 in 10 tensors", stages: []string{"hass:outside=mask:4", "eagle:2"}},
		"eagle3":  {network: "eagle3", shape: "own           embedding: no, LM head: yes", stages: []string{"eagle3:steps=1:4", "eagle3:2"}},
		"block":   {network: "block:size=4,shift=on,markov=vanilla,rank=8", shape: "4 rows, which predict 4 tokens, Markov head vanilla of rank 8", stages: []string{"dflash:labels=tail,gamma=0:4", "dspark:2"}},
	} {
		t.Run(name, func(t *testing.T) {
			headConfig := func(t *testing.T, model, dir string, files ...string) makehead.Config {
				h := headConfig(t, model, dir, files...)
				if c.stages != nil {
					h.Plan.SetNetwork(c.network)
					h.Plan.Stages = c.stages
				}
				return h
			}
			files, whole, parts := c.files, t.TempDir(), t.TempDir()
			want, err := makehead.Run(t.Context(), headConfig(t, model, whole, files...))
			if err != nil {
				t.Fatal(err)
			}
			if len(want.Rows) != 4 || want.Tokens < 400 || want.Steps != 6 {
				t.Errorf("%+v", want)
			}
			ctx, stop := context.WithCancel(t.Context())
			cut := headConfig(t, model, parts, files...)
			cut.Tools = &cutHead{cut.Tools.(*headTools), "answer", stop}
			_, err = makehead.Run(ctx, cut)
			stop()
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("stopped while answering: %v", err)
			}
			for i := range 4 {
				c := headConfig(t, model, parts, files...)
				c.Tools = &stoppingHead{c.Tools.(*headTools)}
				if _, err := makehead.Run(t.Context(), c); !errors.Is(err, errStopped) {
					t.Fatalf("stage %d: %v, want the stop", i, err)
				}
			}
			got, err := makehead.Run(t.Context(), headConfig(t, model, parts, files...))
			if err != nil {
				t.Fatal(err)
			}
			if weightsIn(t, whole) != weightsIn(t, parts) {
				t.Error("another head than that of a run that was not stopped")
			}
			if got.TauHat != want.TauHat || got.Best != want.Best || got.Tokens != want.Tokens {
				t.Errorf("%+v, want %+v", got, want)
			}
			for i := range got.Rows {
				if r := &got.Rows[i]; r.Temperature == 0 && r.Equal != r.Outputs || r.Outputs == 0 {
					t.Errorf("%+v", r)
				}
			}
			if at, err := checkpoints.Find(got.Head); err != nil {
				t.Error(err)
			} else if said := talftest.OK(t, "", "inspect", at); !strings.Contains(said, c.shape) {
				t.Errorf("%q is another head:\n%s", c.network, said)
			}
			text := got.Text(model)
			for _, command := range []string{"generate", "export"} {
				line := text[strings.Index(text, "  talf "+command):]
				line, _, _ = strings.Cut(line, "\n")
				talftest.OK(t, "", talftest.Words(line)[1:]...)
			}
			c := headConfig(t, model, parts, files...)
			c.Plan.Tokens++
			if _, err := makehead.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "another --out") {
				t.Errorf("another plan: %v", err)
			}
		})
	}
}

// A run whose process is killed while it writes answers, labels and checkpoints, and begun again each time, makes the
// head of one that is not killed.
func TestHeadOfARunThatIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("makes two heads of the default plan")
	}
	model, dir := briefModel(t), t.TempDir()
	run := func(out string) []string {
		return []string{"head", model, "--tokens", "300", "--out", filepath.Join(dir, out)}
	}
	for _, at := range []string{"answers.jsonl", "labels", "head"} {
		c := talftest.Command(t, run("killed")...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		await.Until(t, at, func() bool {
			_, err := os.Stat(filepath.Join(dir, "killed", at))
			return err == nil
		})
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // it was killed
	}
	text := talftest.OK(t, "", run("killed")...)
	if again := talftest.OK(t, "", run("killed")...); again != text {
		t.Errorf("a run that has ended says %q, then %q", text, again)
	}
	for _, want := range []string{"τ̂", "  talf serve " + model, "talf report"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	talftest.OK(t, "", run("whole")...)
	if weightsIn(t, filepath.Join(dir, "whole")) != weightsIn(t, filepath.Join(dir, "killed")) {
		t.Error("another head than that of a run that was not killed")
	}
	page := filepath.Join(dir, "report.html")
	talftest.OK(t, "", "report", filepath.Join(dir, "whole"), "--out", page)
	if b, err := os.ReadFile(page); err != nil || !strings.Contains(string(b), "auto, head") {
		t.Errorf("no comparison in the page: %v", err)
	}
}

// On a disk that is full, a run says so, and once there is room it goes on to the head of any other run.
func TestHeadOnAFullDisk(t *testing.T) {
	model := briefModel(t)
	whole, parts := t.TempDir(), t.TempDir()
	if _, err := makehead.Run(t.Context(), headConfig(t, model, whole)); err != nil {
		t.Fatal(err)
	}
	full := 0
	for room := 1 << 10; ; room *= 3 {
		stop := vfstest.FullDisk(t, room, false)
		_, err := makehead.Run(t.Context(), headConfig(t, model, parts))
		stop()
		if err == nil {
			break
		}
		if full++; !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("with room for %d bytes: %v, want a full disk", room, err)
		}
	}
	if full < 5 {
		t.Errorf("the disk was full %d times, want every stage to meet that", full)
	}
	if weightsIn(t, whole) != weightsIn(t, parts) {
		t.Error("another head than that of a run that was not stopped")
	}
}

// A head for a tuned model starts from the head of the model that it was tuned from. A head that it cannot start from is
// refused before the model is asked anything.
func TestHeadFromAnother(t *testing.T) {
	model := briefModel(t)
	base, linear, tuned := eagleConfig(t, model, t.TempDir()), eagleConfig(t, model, t.TempDir()), eagleConfig(t, model, t.TempDir())
	base.Plan.Init = talftest.TinyHead(t, talftest.TinyModel(t, talftest.TinyConfig(), 7), 1) // of another model
	tuned.Plan.Init = base.Head()
	for _, c := range []makehead.Config{base, linear, tuned} {
		if _, err := makehead.Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	heads := map[string]bool{weightsIn(t, base.Dir): true, weightsIn(t, linear.Dir): true, weightsIn(t, tuned.Dir): true}
	if len(heads) != 3 {
		t.Error("heads that started elsewhere are the same")
	}
	wide := talftest.TinyConfig()
	wide.Hidden *= 2
	taps := t.TempDir()
	spec := talftest.OpenModel(t, model).Spec().Eagle3For([]int{0, 1, 2}, 0)
	if err := head.Write(t.Context(), taps, spec, identity.Tie{}, head.Random(spec, 1)...); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct{ init, network, want string }{
		{none, "eagle", "no such file"},
		{none, "block", "no such file"},
		{talftest.TinyHead(t, talftest.TinyModel(t, wide, 7), 1), "eagle", "hidden_size"},
		{taps, "eagle", "is eagle3:taps=0+1+2, not eagle as asked"},
		{taps, "block", "is eagle3:taps=0+1+2, not block as asked"},
		{taps, "eagle3:fc_norm=on", "is eagle3:taps=0+1+2, not eagle3:fc_norm=on as asked"},
		{base.Head(), "block", "is of EAGLE-1's or 2's kind, not block as asked"},
	} {
		out := t.TempDir()
		talftest.Run(t, "", "head", model, "--network", c.network, "--init", c.init, "--out", out).Refuses(t, ExitFailure, "initial head: ", c.want)
		if _, err := os.Stat(filepath.Join(out, "answers.jsonl")); err == nil {
			t.Errorf("%s: the model was asked first", c.want)
		}
	}
}

// A block head may start from another, in whose taps the text is labelled and whose tokens it predicts.
func TestBlockHeadFromAnother(t *testing.T) {
	model, from := briefModel(t), t.TempDir()
	target := talftest.OpenModel(t, model).Spec()
	spec := target.BlockFor(arch.Block{Size: 5, Taps: []int{1}, Mask: 3}, 2, target.Vocab/2)
	var ids []int32
	for i := range spec.DraftVocab {
		ids = append(ids, int32(2*i))
	}
	if err := head.Write(t.Context(), from, spec, identity.Tie{}, append(head.Random(spec, 1), draftvocab.Tensors(ids, spec.Vocab)...)...); err != nil {
		t.Fatal(err)
	}
	c := headConfig(t, model, t.TempDir())
	c.Plan.SetNetwork("block")
	c.Plan.Init, c.Plan.Stages = from, []string{"dflash:4"}
	r, err := makehead.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Costs.Network != "block:size=5,taps=1,mask=3" || r.Vocab != len(ids) || r.Covered <= 0 || r.Covered >= 1 {
		t.Errorf("%+v", r)
	}
	talftest.Run(t, "", "head", model, "--network", "block:size=4", "--init", from, "--out", t.TempDir()).Refuses(t, ExitFailure, "initial head: ", "not block:size=4 as asked")
}

// A model that linear blocks cannot be made of is told so before it is asked anything, with what can be made.
func TestHeadOfAModelWithLayerNorm(t *testing.T) {
	c, tiny := modeltest.Of("starcoder2"), talftest.TinyConfig()
	c.Vocab, c.MaxPos, c.EOS = tiny.Vocab, tiny.MaxPos, tiny.EOS
	out := t.TempDir()
	talftest.Run(t, "", "head", talftest.TinyModel(t, c, 1), "--out", out).Refuses(t, ExitFailure, "the model has LayerNorm", "use --network eagle")
	if _, err := os.Stat(filepath.Join(out, "answers.jsonl")); err == nil {
		t.Error("the model was asked first")
	}
}

// A head that starts from another has its network, unless it is asked for another.
func TestNetworkOfTheInitialHead(t *testing.T) {
	m := talftest.OpenModel(t, talftest.TinyModel(t, talftest.TinyConfig(), 1))
	s := m.Spec()
	for want, spec := range map[string]*arch.Spec{
		"eagle":                         s.DraftFor(false),
		"eagle3":                        s.Eagle3For([]int{0, 1, 2}, 0),
		"block":                         s.BlockFor(arch.Block{Size: 3, Taps: []int{1}, Mask: 3}, 1, 0),
		"block:size=3,taps=2,linear=on": s.BlockFor(arch.Block{Size: 3, Taps: []int{2}, Shift: true, Linear: true}, 0, 0),
	} {
		if got := train.NetworkOf(talftest.WriteHead(t, m, spec, 1)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := train.NetworkOf(t.TempDir()); got != "eagle" {
		t.Errorf("of no head: %s", got)
	}
	made := headConfig(t, briefModel(t), t.TempDir())
	if _, err := makehead.Run(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	if got, want := train.NetworkOf(made.Head()), strings.Replace(makehead.Network, "size=4", "size=4,taps=2", 1); got != want {
		t.Errorf("of a head in a run: %s, want %s", got, want)
	}
}

// A head of EAGLE's network that starts from another predicts the tokens that this one does.
func TestHeadFromAnotherKeepsItsTokens(t *testing.T) {
	model, from := briefModel(t), t.TempDir()
	spec := talftest.OpenModel(t, model).Spec().DraftFor(false)
	spec.DraftVocab = spec.Vocab / 3
	var ids []int32
	for i := range spec.DraftVocab {
		ids = append(ids, int32(3*i))
	}
	if err := head.Write(t.Context(), from, spec, identity.Tie{}, append(head.Random(spec, 1), draftvocab.Tensors(ids, spec.Vocab)...)...); err != nil {
		t.Fatal(err)
	}
	c := eagleConfig(t, model, t.TempDir())
	c.Plan.Init, c.Plan.Stages = from, []string{"hass:outside=mask:4"}
	r, err := makehead.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Vocab != len(ids) || r.Covered <= 0 || r.Covered >= 1 {
		t.Errorf("%d tokens with %v of the mass, want the %d of the head before", r.Vocab, r.Covered, len(ids))
	}
}

// With hours in place of tokens, a run learns what was written in its share of them.
func TestHeadInHours(t *testing.T) {
	c := headConfig(t, briefModel(t), t.TempDir())
	c.Plan.Tokens, c.Plan.Hours = 0, 1e-6
	r, err := makehead.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Answers == 0 || r.Tokens == 0 || r.Steps == 0 || len(r.Rows) != 4 {
		t.Errorf("%+v", r)
	}
}

func TestHeadRefusesEarly(t *testing.T) {
	w := talftest.World{Model: talftest.TinyModel(t, talftest.TinyConfig(), 1)}
	out := func() string { return filepath.Join(t.TempDir(), "head") }
	talftest.Run(t, "", "head", w.Model).Refuses(t, ExitUsage, "--out")
	talftest.Run(t, "", "head", w.Model, "--out", out(), "--tokens", "10", "--hours", "1").Refuses(t, ExitUsage, "--hours and --tokens")
	talftest.Run(t, "", "head", w.Model, "--out", out(), "--tokens", "-1").Refuses(t, ExitUsage, "tokens is -1")
	talftest.Run(t, "", "head", w.Model, "--out", out(), "--hours", "-2").Refuses(t, ExitUsage, "hours is -2")
	talftest.Run(t, "", "head", w.Model, "--out", out(), "--init", "").Refuses(t, ExitUsage, "init is empty")
	talftest.Run(t, "", "head", w.Model, "--out", out(), "--network", "block:rows=3").Refuses(t, ExitUsage, "rows")
	talftest.Run(t, "", "head", w.Model, "--out", out(), "--network", "block", "--init", "linear").Refuses(t, ExitUsage, "init is linear, want random or a head")
	talftest.Run(t, "", "head", w.Model, "--out", out(), "--network", "block:taps=9").Refuses(t, ExitFailure, "layer 8")
	talftest.Run(t, "", "head", w.Model, "--out", out(), "--data", talftest.PromptFile(t, 4)).Refuses(t, ExitFailure, "4 prompts, want more than")
	talftest.Run(t, "", "head", filepath.Join(t.TempDir(), "none"), "--out", out()).Refuses(t, ExitFailure, "does not exist")
}
