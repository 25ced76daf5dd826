package quickstart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"talf/model"
	"talf/preprocess"
	"talf/train"
)

// A script is a machine that records the steps it is asked to do. The step called fail fails; if
// the model cannot be opened, every step does.
type script struct {
	dir, fail string
	did       []string
}

var errPlanted = errors.New("planted")

func (s *script) step(name, text string) error {
	s.did = append(s.did, strings.ReplaceAll(name+text, s.dir+string(filepath.Separator), ""))
	if name == s.fail {
		return errPlanted
	}
	return nil
}

func (s *script) Label(_ context.Context, c preprocess.Config, dir string) error {
	return s.step("label", fmt.Sprintf(" %v with %s to %s, shards of %d", c.Files, dir, c.Out, c.Shard))
}

func (s *script) Train(_ context.Context, c train.Config, f TrainFiles) error {
	return s.step(c.Loss, fmt.Sprintf(" on %s from %q to %s, %d steps, %d to warm up", f.Labels, f.Init, f.Out, c.Steps, c.Warmup))
}

func (s *script) Open(_ context.Context, dir string, _ int) (*model.Model, func(), error) {
	return nil, nil, s.step("open", " "+dir)
}

func (s *script) Begin(i, n int, _ string) { s.did = append(s.did, fmt.Sprintf("%d/%d", i, n)) }
func (s *script) End(time.Duration) error  { return nil }
func (s *script) Answers() (func(done, total int), func()) {
	return func(int, int) {}, func() {}
}

func TestStagesThatAreDoneAreNotRunAgain(t *testing.T) {
	dir := t.TempDir()
	begin := func(fail string) []string {
		t.Helper()
		s := &script{dir: dir, fail: fail}
		_, err := Run(t.Context(), Config{Dir: dir, Plan: Default(), Tools: s, Unpack: func(dir string) error { return os.MkdirAll(dir, 0o755) }})
		if !errors.Is(err, errPlanted) {
			t.Fatalf("%v, want the planted failure", err)
		}
		return s.did
	}
	label := "label [text.jsonl] with model to labels, shards of 100"
	eagle := `eagle on labels from "" to eagle, 400 steps, 40 to warm up`
	talf := `talf on labels from "eagle" to talf, 200 steps, 20 to warm up`
	for _, c := range []struct {
		fail string
		want []string
	}{
		{"label", []string{"1/6", "2/6", label}},
		{"label", []string{"2/6", label}},
		{"talf", []string{"2/6", label, "3/6", eagle, "4/6", talf}},
		{"open", []string{"4/6", talf, "5/6", "open model"}},
		{"open", []string{"5/6", "open model"}},
	} {
		if d := cmp.Diff(c.want, begin(c.fail)); d != "" {
			t.Errorf("until %s: %s", c.fail, d)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "text.jsonl")); err != nil || strings.Count(string(b), "\n") != 400 {
		t.Errorf("text of %d lines, %v; want 400", strings.Count(string(b), "\n"), err)
	}
}

func TestFilesOfAnotherPlanAreNotTakenOver(t *testing.T) {
	dir := t.TempDir()
	c := Config{Dir: dir, Plan: Default(), Tools: &script{dir: dir, fail: "label"}, Unpack: func(string) error { return nil }}
	if _, err := Run(t.Context(), c); !errors.Is(err, errPlanted) {
		t.Fatal(err)
	}
	c.Plan.Seed++
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "choose another --dir") {
		t.Errorf("another plan: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "remove "+dir) {
		t.Errorf("a damaged state: %v", err)
	}
}

func TestTheTableComparesHeadsWithPlainDecoding(t *testing.T) {
	r := &Result{
		Plan: Default(), Plots: []string{"a.png", "a.svg"}, dir: "qs",
		Rows: []Row{
			{Method: "ar", Tau: 1, TokensPerSecond: 100, SpeedUp: 1, Equal: 24, Outputs: 24},
			{Method: "salf:N=12,B=4", Head: "talf", Tau: 3.5, TokensPerSecond: 250, SpeedUp: 2.5, Low: 2, High: 3, ByDepth: []float64{0.75, 0.5}, Equal: 23, Outputs: 24},
		},
		Deep: []Row{{Method: "ar", Tau: 1}, {Method: "salf", Head: "talf", Tau: 3, SpeedUp: 1.95, Low: 1.9, High: 2.25, Equal: 16, Outputs: 16}},
	}
	text := r.String()
	for _, want := range []string{
		"ar            –           1.00       100  1.00                 \n",
		"salf          talf        3.50       250  2.50 [2.00, 3.00]     0.75 0.50\n",
		"salf          talf        3.00         0  1.95 [1.90, 2.25]    \n",
		"24 prompts of up to 96\n", "39 of 40 outputs", "deepened to 100 layers", "Plots: a.png, a.svg\n", "talf report qs --out",
		"--model " + filepath.Join("qs", "model") + " --head " + filepath.Join("qs", "talf") + " ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var labels []string
	plan := Default()
	for _, w := range plan.ways() {
		labels = append(labels, w.Label())
	}
	want := []string{"ar", "beam, untrained", "salf, untrained", "beam, eagle", "salf, eagle", "beam, talf", "salf, talf"}
	if d := cmp.Diff(want, labels); d != "" {
		t.Error(d)
	}
}
