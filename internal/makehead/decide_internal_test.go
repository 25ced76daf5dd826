package makehead

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"talf/infer/bench"
	"talf/infer/decode"
	"talf/internal/stats"
	"talf/model/modeltest"
	"talf/text/chat"
	"talf/train"
	"talf/train/net"
)

func TestPlansThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []struct {
		change func(p *Plan)
		want   string
	}{
		{func(*Plan) {}, ""},
		{func(p *Plan) { p.Tokens, p.Hours = 0, 0.5 }, ""},
		{func(p *Plan) { p.Tokens = -1 }, "tokens is -1"},
		{func(p *Plan) { p.Hours = -2 }, "hours is -2"},
		{func(p *Plan) { p.Hours = 1 }, "either tokens or hours"},
		{func(p *Plan) { p.Tokens = 0 }, "either tokens or hours"},
		{func(p *Plan) { p.SetNetwork("block:size=1") }, "size"},
		{func(p *Plan) { p.SetNetwork("eagle4") }, `unknown network "eagle4"`},
		{func(p *Plan) { p.SetNetwork("eagle3"); p.Init = Linear }, "init is linear, want random or a head"},
		{func(p *Plan) { p.Init = Random }, ""},
	} {
		p := Default()
		c.change(&p)
		if err := p.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d tokens, %v hours: %v, want %q", p.Tokens, p.Hours, err, c.want)
		}
	}
	if p := Default(); p.held() != p.Report+1 {
		t.Errorf("%d prompts are held out, want those that are measured and one that warms up", p.held())
	}
}

// The vocabulary is the smallest that lacks no more than planned; of a model with few tokens, and where none does, all.
func TestTheSmallestVocabularyThatLosesLittle(t *testing.T) {
	failed := errors.New("no labels")
	for _, c := range []struct {
		vocab  int
		shares map[int]float64
		size   int
		share  float64
		err    error
	}{
		{32000, map[int]float64{2048: 0.80, 4096: 0.94, 8192: 0.951, 16384: 0.99}, 8192, 0.951, nil},
		{32000, map[int]float64{2048: 0.95}, 2048, 0.95, nil},
		{32000, map[int]float64{2048: 0.1, 4096: 0.2, 8192: 0.3, 16384: 0.4}, 0, 1, nil},
		{2048, nil, 0, 1, nil},
		{32000, map[int]float64{2048: -1}, 2048, 0, failed},
	} {
		size, share, err := covering(c.vocab, 0.05, func(n int) (float64, error) {
			x, ok := c.shares[n]
			if !ok {
				t.Errorf("of %d tokens %d are tried", c.vocab, n)
			}
			if x < 0 {
				return 0, failed
			}
			return x, nil
		})
		if size != c.size || share != c.share || !errors.Is(err, c.err) {
			t.Errorf("%d tokens, %v: %d with %v, %v; want %d with %v, %v", c.vocab, c.shares, size, share, err, c.size, c.share, c.err)
		}
	}
}

func TestWhatARunTakesFollowsFromItsPlan(t *testing.T) {
	s := modeltest.Default().Spec()
	estimate := func(change func(p *Plan)) Costs {
		p := Default()
		change(&p)
		d, taps, err := p.network(s)
		if err != nil {
			t.Fatal(err)
		}
		c := Costs{Row: 0.001, Pass: 0.01, Taps: taps}
		c.estimate(&p, s, d, 1<<20)
		return c
	}
	one := estimate(func(*Plan) {})
	two := estimate(func(p *Plan) { p.Tokens *= 2 })
	for what, x := range map[string][2]float64{
		"answers": {one.Answer, two.Answer}, "labels": {one.Label, two.Label}, "training": {one.Train, two.Train}, "states": {float64(one.Features), float64(two.Features)},
	} {
		if r := x[1] / x[0]; x[0] <= 0 || r < 2-1e-9 || r > 2+1e-9 {
			t.Errorf("%s: %v, of twice the tokens %v", what, x[0], x[1])
		}
	}
	if one.Measure != two.Measure || one.Memory != two.Memory || one.Memory <= 1<<20 {
		t.Errorf("measuring and memory follow the number of tokens: %+v, %+v", one, two)
	}
	// Hidden states are stored up to a size; beyond it they are computed anew in every epoch.
	const many = 1 << 24
	stored, computed := estimate(func(p *Plan) { p.Tokens = many / 8 }), estimate(func(p *Plan) { p.Tokens = many })
	if stored.Features > featureBytes || computed.Features <= featureBytes {
		t.Fatalf("states of %d and %d bytes, want one on each side of %d", stored.Features, computed.Features, featureBytes)
	}
	if computed.Disk >= 8*stored.Disk || computed.Train <= 8*stored.Train {
		t.Errorf("%d bytes and %v s without stored states, with them %d and %v for an eighth", computed.Disk, computed.Train, stored.Disk, stored.Train)
	}
	if said := stored.String(); !strings.Contains(said, "with the hidden states") || !strings.Contains(computed.String(), "without hidden states") {
		t.Errorf("said:\n%s\n%s", said, computed.String())
	}
	// An hour says what the head is, and nothing of what is not known yet.
	hours := estimate(func(p *Plan) { p.Tokens, p.Hours = 0, 1 })
	if hours.Head != one.Head || hours.Answer != 0 || hours.Disk != 0 {
		t.Errorf("with hours: %+v", hours)
	}
	// Stored states are those that the head reads, and a block's rows are fewer than the others' steps.
	taps, block := estimate(func(p *Plan) { p.SetNetwork("eagle3") }), estimate(func(p *Plan) { p.SetNetwork("block:taps=0+1") })
	if taps.Features != 3*one.Features || block.Features != 2*one.Features {
		t.Errorf("states of %d, %d and %d bytes", one.Features, taps.Features, block.Features)
	}
	if a, b := taps.Train/float64(taps.Head), block.Train/float64(block.Head); a < 1.2*b || a > 1.4*b {
		t.Errorf("training is %v a weight, of blocks %v", a, b)
	}
}

// A network that names no states reads three of the model's, and one that is not EAGLE's is not started linearly.
func TestPlansOfNetworks(t *testing.T) {
	for _, c := range []struct {
		network, full, init string
		layers              int
		taps                []int
	}{
		{Network, "block:size=4,taps=30,linear=on,markov=vanilla,rank=64", Linear, 30, []int{30}},
		{"eagle", "", Linear, 30, nil},
		{"eagle3", "eagle3:taps=0+1+2", Random, 2, []int{0, 1, 2}},
		{"eagle3:fc_norm=on", "eagle3:taps=2+15+27,fc_norm=on", Random, 30, []int{2, 15, 27}},
		{"block", "block:size=8,taps=0+1,mask=63", Random, 2, []int{0, 1}},
		{"block:shift=on,markov=vanilla,rank=4", "block:size=8,taps=2+15+27,mask=63,shift=on,markov=vanilla,rank=4", Random, 30, []int{2, 15, 27}},
		{"block:taps=5,size=4,selector=8", "block:size=4,taps=5,mask=63,selector=8,top=16", Random, 30, []int{5}},
	} {
		p := Default()
		p.SetNetwork(c.network)
		s := modeltest.Default().Spec()
		s.Layers, s.Vocab = c.layers, 64
		d, taps, err := p.network(s)
		if err != nil || p.Validate() != nil {
			t.Fatalf("%q: %v, %v", c.network, err, p.Validate())
		}
		if full := net.NetworkOf(d, taps); full != c.full || p.Init != c.init || !slices.Equal(taps, c.taps) {
			t.Errorf("%q: %q from %s with taps %v, want %q from %s with %v", c.network, full, p.Init, taps, c.full, c.init, c.taps)
		}
		if whole := d.DraftVocab == 0; whole != (d.Block.SelectorRank > 0) {
			t.Errorf("%q: a draft vocabulary of %d", c.network, d.DraftVocab)
		}
		for _, stage := range p.Stages {
			if _, err := train.ParseStage(stage, train.Default()); err != nil {
				t.Errorf("%q: %v", c.network, err)
			}
		}
	}
}

// Rows of training are counted by what each stage's loss computes for a token.
func TestRowsOfTraining(t *testing.T) {
	for _, c := range []struct {
		stages      []string
		all, epochs float64
	}{
		{[]string{"hass:10e", "talf:2e"}, 5*10 + 5*2, 12},
		{[]string{"eagle3:3e"}, 7 * 3, 3},
		{[]string{"eagle3:steps=2:3e", "talf:1e"}, 2*3 + 5, 4},
		{[]string{"dflash:labels=tail,gamma=0:20e"}, 20, 20},
		{[]string{"none:3e"}, 0, 0}, // training refuses it
	} {
		p := Default()
		p.Stages = c.stages
		if all, epochs := p.passes(5); all != c.all || epochs != c.epochs {
			t.Errorf("%q: %v rows in %v epochs, want %v in %v", c.stages, all, epochs, c.all, c.epochs)
		}
	}
}

// A document is what preprocess reads: the conversation, or without a template its text.
func TestAnAnsweredPromptIsADocument(t *testing.T) {
	template, err := chat.Parse("t", "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		template *chat.Template
		want     []string
	}{
		{template, []string{`"role":"user"`, `"content":"Why?"`, `"role":"assistant"`, `"content":"Because."`}},
		{nil, []string{`{"text":"Why?Because."}`}},
	} {
		d := chat.NewText()
		if c.template != nil {
			*d = chat.Begin(c.template, "")
		}
		d.Say("Why?")
		got, err := document(t.Context(), d, &decode.Answer{Text: "Because."})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(string(got), want) {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
}

// A head pays if greedy decoding with it is faster than without it and than plain decoding, beyond doubt.
func TestWhatPays(t *testing.T) {
	slower := func(method string, temperature, high float64) bench.Comparison {
		return bench.Comparison{Method: method, Against: with, Temperature: temperature, Ratio: stats.Interval{Value: high - 0.1, Low: high - 0.2, High: high}}
	}
	for _, c := range []struct {
		name string
		all  []bench.Comparison
		want bool
	}{
		{"faster than both", []bench.Comparison{slower("ar", 0, 0.7), slower(without, 0, 0.9), slower(without, 1, 1.1)}, true},
		{"perhaps as fast as without", []bench.Comparison{slower("ar", 0, 0.7), slower(without, 0, 1.01)}, false},
		{"slower", []bench.Comparison{{Method: with, Against: without, Ratio: stats.Interval{High: 0.9}}, {Method: "ar", Against: without, Ratio: stats.Interval{High: 0.9}}}, false},
		{"not compared", nil, false},
	} {
		if got := pays(c.all); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Of a head that does not pay a run says which of its causes it has.
func TestWhyAHeadDoesNotPay(t *testing.T) {
	for want, row := range map[string]Row{
		"":                               {Tau: 2, SpeedUp: 1.5, Draft: 0.2, Round: 1.3},
		"a round keeps 1.20 tokens, and": {Tau: 1.2, SpeedUp: 0.9, Draft: 0.1, Round: 1.3},
		"the head takes 50% of the time": {Tau: 2, SpeedUp: 0.9, Draft: 0.5, Round: 2.2},
		"but takes 2.20 times the time":  {Tau: 2, SpeedUp: 0.9, Draft: 0.2, Round: 2.2},
		"1.15 times as fast with it and": {Tau: 2, SpeedUp: 1.15, Draft: 0.2, Round: 1.8},
	} {
		f := found{Vocab: 2048, Rows: []Row{{Tau: 1.1, SpeedUp: 1.05}, row, {Temperature: 1}, {Temperature: 1}}, Pays: want == ""}
		for network, format := range map[string]string{Network: "talf", "eagle": "sglang"} { // which reads an EAGLE head's draft vocabulary
			p := Default()
			p.SetNetwork(network)
			r := Result{Plan: p, Dir: "out", Head: "out/head/best", found: f}
			text := r.Text("m.gguf")
			if !strings.Contains(text, want) || strings.Contains(text, "on this machine") == r.Pays {
				t.Errorf("%+v: want %q in\n%s", row, want, text)
			}
			if !strings.Contains(text, "--format "+format) {
				t.Errorf("%s: the export is another:\n%s", network, text)
			}
		}
	}
}
