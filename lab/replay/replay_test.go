package replay_test

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/bench/benchtest"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/lab/replay"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
)

// recorded returns a recording of a table target and two draft models, what was recorded, and
// the engine that decoded it.
func recorded(t *testing.T) (*replay.Recording, bench.Config, []bench.Source, *infer.Engine) {
	t.Helper()
	e, target := benchtest.Engine()
	target.EOS = []int32{3}
	sources := []bench.Source{
		{Name: "head", Source: &drafttest.Source{Target: target, Agree: 0.7}},
		{Name: "small", LM: true, Source: &drafttest.Source{Target: target, Agree: 0.9}},
	}
	c := bench.Default()
	c.Sets = benchtest.Sets()
	c.Temperatures, c.Repeat, c.MaxTokens, c.Methods = []float64{0, 1}, 1, 30, []bench.Method{{Spec: "recycle"}}
	r, err := replay.Record(t.Context(), e, c, sources, replay.Default())
	if err != nil {
		t.Fatal(err)
	}
	return r, c, sources, e
}

func replayMethods(sources []bench.Source) (ms []bench.Method) {
	for _, s := range sources {
		for _, spec := range []string{"salf:N=12,B=3,th=0.2", "beam:N=10,k=3,depth=2", "linear:K=4", "dynatree:N=20"} {
			ms = append(ms, bench.Method{Spec: spec, Source: s.Source, SourceName: s.Name})
		}
	}
	return append(ms, bench.Method{Spec: "pld:lo=1,hi=3"}, bench.Method{Spec: "recycle"})
}

// A replay accepts what decoding accepts, node for node, and reports the rows it lacks.
func TestAReplayAcceptsWhatDecodingAccepts(t *testing.T) {
	r, c, sources, e := recorded(t)
	var file bytes.Buffer
	if err := r.Write(&file); err != nil {
		t.Fatal(err)
	}
	back, err := replay.Read(bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	player := replay.New(back)
	c.Methods = replayMethods(sources)
	live, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	c.Methods = replayMethods(player.Sources())
	c.Sets = back.Sets()
	got, err := player.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := benchtest.Counts(got), benchtest.Counts(live); !reflect.DeepEqual(a, b) {
		for i := range a {
			if !reflect.DeepEqual(a[i], b[i]) {
				t.Errorf("replayed %v\n decoded %v, %d of %d rows missed", a[i], b[i], got.Rows[i].Missed, got.Rows[i].Asked)
			}
		}
	}
	for _, x := range got.Rows {
		if x.Missed > 0 || x.Asked == 0 && strings.Contains(x.Method, "salf") {
			t.Errorf("%s: %d of %d rows were missed", x.Method, x.Missed, x.Asked)
		}
	}
	// A tree larger than those recorded becomes smaller, and the report says so.
	c.Methods = []bench.Method{{Spec: "optimal:N=300,B=50", Source: player.Sources()[0].Source}}
	if got, err = player.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if x := got.Row("optimal:N=300,B=50", "", 0); x.Missed == 0 || x.Equal != x.Outputs {
		t.Errorf("%d of %d rows missed, %d of %d outputs equal", x.Missed, x.Asked, x.Equal, x.Outputs)
	}
}

// Methods that read the target's rows off the text do without rows that were not recorded.
func TestAReplayOfMethodsThatWereNotRecorded(t *testing.T) {
	r, c, _, _ := recorded(t)
	player := replay.New(r)
	c.Sets, c.Methods = r.Sets(), nil
	learners := []string{"lookahead:W=4,N=3,G=4", "goose", "isotropic", "auto"}
	for _, spec := range learners {
		c.Methods = append(c.Methods, bench.Method{Spec: spec})
	}
	got, err := player.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range learners {
		if x := got.Row(spec, "", 0); x.Equal != x.Outputs || x.Tau.Mean < 1 {
			t.Errorf("%s: %d of %d outputs equal, τ %v", spec, x.Equal, x.Outputs, x.Tau.Mean)
		}
	}
	if x := got.Row("lookahead:W=4,N=3,G=4", "", 0); x.Missed == 0 {
		t.Errorf("a window off the text was recorded: %d rows asked", x.Asked)
	}
}

// The time of a replay follows from the recorded costs and the passes' sizes.
func TestAReplaysTimeIsThatOfItsPasses(t *testing.T) {
	r, c, _, _ := recorded(t)
	r.Channels[0].SetCosts([]replay.Cost{{Rows: 1, Seconds: 1}, {Rows: 5, Seconds: 2}, {Rows: 9, Seconds: 1.5}})
	r.Channels[1].SetCosts([]replay.Cost{{Rows: 1, Seconds: 0.25}})
	player := replay.New(r)
	c.Sets, c.Temperatures = r.Sets()[1:], []float64{0} // one prompt that counts
	c.Methods = []bench.Method{{Spec: "linear:K=2", Source: player.Sources()[0].Source}}
	got, err := player.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ar, linear := got.Row("ar", "", 0), got.Row("linear:K=2", "", 0)
	if math.Abs(ar.TPOT.Mean-1) > 1e-9 || ar.Speedup.Mean != 1 || ar.Overhead != 0 {
		t.Errorf("plain decoding takes %v s a token, want 1; %v of it overhead", ar.TPOT.Mean, ar.Overhead)
	}
	// A round with a chain of two takes two draft passes and one target pass of at most three
	// rows; the last rounds of an answer are shorter.
	if linear.TPOT.Mean*linear.Pooled > 2*0.25+1.25+1e-9 || linear.TPOT.Mean*linear.Pooled < 1.25 {
		t.Errorf("a round takes %v s", linear.TPOT.Mean*linear.Pooled)
	}
}

// What a draft model has not read, of the prompt or of what was kept, are further rows of the pass that
// answers next. A prompt of lag tokens is read as it comes.
func TestReplayedDraftModelsRead(t *testing.T) {
	const row, lag = 0.25, 64
	r, c, _, _ := recorded(t)
	r.Channels[0].SetCosts([]replay.Cost{{Rows: 1, Seconds: 1}})
	r.Channels[1].SetCosts([]replay.Cost{{Rows: 1, Seconds: row}, {Rows: 2, Seconds: 2 * row}})
	player := replay.New(r)
	c.Sets, c.Temperatures, c.Parts = r.Sets()[1:], []float64{0}, true
	c.Methods = []bench.Method{{Spec: "linear:K=2", Source: player.Sources()[0].Source}}
	passes, kept := 0, 0
	c.Keep = func(m *bench.Measurement) error {
		for i, x := range m.Rounds {
			rows := x.Target.At + 1
			if i > 0 {
				rows = x.Target.At - m.Rounds[i-1].Target.At
				kept += rows - 1
			} else if rows >= lag {
				rows = 1
			}
			for k, d := range x.Draft {
				if k > 0 {
					rows = 1
				}
				if math.Abs(d.Loop.Seconds()-row*float64(rows)) > 1e-6 {
					t.Errorf("round %d: draft pass %d took %v, want that of %d rows", i, k, d.Loop, rows)
				}
				passes++
			}
		}
		return nil
	}
	if _, err := player.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if passes == 0 || kept == 0 {
		t.Errorf("%d draft passes, %d drafted tokens kept", passes, kept)
	}
}

// A head's rows depend on the target's hidden states of the committed tokens. A replay is still
// right, since every position was a root.
func TestAReplayOfAHeadAcceptsWhatDecodingAccepts(t *testing.T) {
	conf := modeltest.Default()
	m, err := model.Load(modeltest.Random(t, conf, 1), benchtest.CPU(t), model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	spec := m.Spec().DraftFor(true)
	h, err := head.FromTensors(spec, m, head.Default(), head.Random(spec, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	sources := []bench.Source{{Name: "head", Source: source.NewHead(h, 0)}}
	c := bench.Default()
	c.Sets, c.MaxTokens = []bench.Set{{Prompts: benchtest.Prompts(3, conf.Vocab)}}, 20
	e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
	// A chain reaches deeper than the best nodes of a head that knows nothing.
	c.Methods = []bench.Method{{Spec: "linear:K=4", Source: sources[0].Source}}
	r, err := replay.Record(t.Context(), e, c, sources, replay.Default())
	if err != nil {
		t.Fatal(err)
	}
	methods := func(sources []bench.Source) (ms []bench.Method) {
		for _, s := range sources {
			for _, spec := range []string{"salf:N=12,B=3,th=0.2", "beam:N=10,k=3,depth=2", "linear:K=4"} {
				ms = append(ms, bench.Method{Spec: spec, Source: s.Source, SourceName: s.Name})
			}
		}
		return ms
	}
	c.Methods = methods(sources)
	live, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	player := replay.New(r)
	c.Methods = methods(player.Sources())
	got, err := player.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := benchtest.Counts(got), benchtest.Counts(live); !reflect.DeepEqual(a, b) {
		t.Errorf("replayed %v\ndecoded %v", a, b)
	}
}

func TestReplaysThatCannotBeTrueAreRefused(t *testing.T) {
	r, c, _, _ := recorded(t)
	player := replay.New(r)
	src := player.Sources()[0].Source
	c.Sets, c.Temperatures = r.Sets(), r.Temperatures()
	for want, change := range map[string]func(c *bench.Config){
		"at most the recording's 30": func(c *bench.Config) { c.MaxTokens = 31 },
		"other lengths were not":     func(c *bench.Config) { c.Methods = []bench.Method{{Spec: "pld", PromptChars: 3}} },
		"not recorded at":            func(c *bench.Config) { c.Temperatures = []float64{0.5} },
		"only greedy and target": func(c *bench.Config) {
			c.Methods = []bench.Method{{Spec: "linear:draw=distinct", Verify: "rrsw", Source: src, Temperatures: []float64{1}}}
		},
		"drawn without replacement need": func(c *bench.Config) {
			c.Methods = []bench.Method{{Spec: "linear:draw=distinct", Source: src, Temperatures: []float64{1}}}
		},
	} {
		x := c
		x.Methods = nil
		change(&x)
		if _, err := player.Run(t.Context(), x); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	var file bytes.Buffer
	if err := r.Write(&file); err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(file.Bytes())
	flipped := slices.Clone(b)
	flipped[len(b)/2] ^= 1
	for name, bad := range map[string][]byte{"empty": nil, "foreign": []byte("{\"tau\":1}"), "truncated": b[:len(b)-5], "half": b[:len(b)/2], "flipped": flipped} {
		if _, err := replay.Read(bytes.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "recording") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for want, change := range map[string]func(r *replay.Recording){
		"no target":    func(r *replay.Recording) { r.Channels = nil },
		"text 0":       func(r *replay.Recording) { r.Texts[0].Tokens[0] = 99 },
		"rows of":      func(r *replay.Recording) { r.Channels[1].Rows = r.Channels[1].Rows[1:] },
		"node 1":       func(r *replay.Recording) { r.Channels[1].Rows[0].Parent[1] = 1 },
		"fit together": func(r *replay.Recording) { r.Channels[1].Rows[0].Token = nil },
		"cost 0":       func(r *replay.Recording) { r.Channels[0].Costs[0].Seconds = math.NaN() },
	} {
		x, err := replay.Read(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		change(x)
		file.Reset()
		if err := x.Write(&file); err != nil {
			t.Fatal(err)
		}
		if _, err := replay.Read(&file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	r := &replay.Recording{
		Vocab: 9, MaxLen: 9, MaxTokens: 2,
		Texts: []replay.Text{{Set: "a", Prompt: "0", Start: 1, Tokens: []int32{1, 2}}},
		Channels: []replay.Channel{{Name: "target", Costs: []replay.Cost{{Rows: 1, Seconds: 1}}, Rows: []replay.Nodes{{
			Parent: []int32{-1}, Token: []int32{0}, Next: []replay.Candidates{{Token: []int32{2}, LogProb: []float32{-1}}},
		}}}},
	}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := replay.Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		c := bench.Default()
		c.Sets, c.Temperatures, c.Seeds, c.MaxTokens = r.Sets(), r.Temperatures(), r.Seeds(), 1
		_, _ = replay.New(r).Run(t.Context(), c)
	})
}
