package command

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"talf/internal/e2e/talftest"
	"talf/internal/quickstart"
)

// stoppingTools stop a run after its first stage.
type stoppingTools struct{ quickTools }

func (*stoppingTools) End(time.Duration) error { return errStopped }

// A quickstart on a model of a few thousand weights that is interrupted after each of its stages
// and run again gives the result of an uninterrupted one.
func TestQuickstartGoesOnWhereItStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	source := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	config := func(dir string) quickstart.Config {
		return quickstart.Config{
			Dir: dir, Tools: &quickTools{stageTools{quietApp(t)}}, Unpack: func(to string) error { return os.CopyFS(to, os.DirFS(source)) },
			Plan: quickstart.Plan{
				Format: 1, Seed: 3, Documents: 24, Prompts: 2, MaxTokens: 8, EagleSteps: 4, TalfSteps: 3, Rows: 128, Shard: 8,
				LearnRate: 1e-3, Methods: []string{"beam:N=8,k=3,depth=2", "salf:N=8,B=3,th=0"},
				Deep: quickstart.Deep{Layers: 4, Prompts: 2, MaxTokens: 6, Methods: []string{"salf:N=8,B=3,th=0"}},
			},
		}
	}
	whole, err := quickstart.Run(t.Context(), config(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	parts := t.TempDir()
	for i := range 6 {
		c := config(parts)
		c.Tools = &stoppingTools{quickTools{stageTools{quietApp(t)}}}
		if _, err := quickstart.Run(t.Context(), c); !errors.Is(err, errStopped) {
			t.Fatalf("stage %d: %v, want the stop", i, err)
		}
		var state struct{ Done []string }
		b, err := os.ReadFile(filepath.Join(parts, "state.json"))
		if err == nil {
			err = json.Unmarshal(b, &state)
		}
		if err != nil || len(state.Done) != i+1 {
			t.Fatalf("stage %d: done %v, %v", i, state.Done, err)
		}
	}
	again, err := quickstart.Run(t.Context(), config(parts))
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Rows) != 7 || len(again.Deep) != 3 || len(again.Plots) != 2 {
		t.Fatalf("%d and %d rows and plots %v", len(again.Rows), len(again.Deep), again.Plots)
	}
	rows := slices.Concat(whole.Rows, whole.Deep)
	for i, r := range slices.Concat(again.Rows, again.Deep) {
		w := rows[i]
		if r.Label() != w.Label() || r.Tau != w.Tau || r.Tokens != w.Tokens || r.Passes != w.Passes {
			t.Errorf("row %d: %+v, want %+v", i, r, w)
		}
	}
	for _, name := range again.Plots {
		if info, err := os.Stat(name); err != nil || info.Size() < 1000 {
			t.Errorf("plot %s: %v", name, err)
		}
	}
	servesWhatItTrained(t, again.String())
}

// servesWhatItTrained runs the last two commands that quickstart prints, the server on a free
// port, and compares the answer with that of the command before. A pass of the test's model takes microseconds, so that
// auto need not draft: another method shows that the server has the head.
func servesWhatItTrained(t *testing.T, printed string) {
	t.Helper()
	last := func(program string) []string {
		t.Helper()
		at := strings.LastIndex(printed, "\n  "+program+" ")
		if at < 0 {
			t.Fatalf("no %s in %s", program, printed)
		}
		line, _, _ := strings.Cut(printed[at+1:], "\n")
		return talftest.Words(line)
	}
	url, _ := startServer(t, append(last("talf serve")[2:], "--budget", "sequence", "--method", "auto", "--method", "salf:paper")...)
	curl := last("curl")
	if len(curl) != 6 || curl[1] != "http://127.0.0.1:8080/v1/completions" || curl[3] != "Content-Type: application/json" {
		t.Fatalf("%q", curl)
	}
	answer := func(request string) (text string, drafted int) {
		t.Helper()
		status, body := ask(t, url+"/completions", request)
		var got struct {
			Choices []struct {
				Text string
				Talf struct{ Drafted int }
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || len(got.Choices) != 1 {
			t.Fatalf("%d, %v: %s", status, err, body)
		}
		return got.Choices[0].Text, got.Choices[0].Talf.Drafted
	}
	text, _ := answer(curl[5])
	same, drafted := answer(strings.TrimSuffix(curl[5], "}") + `, "talf": {"method": "salf:paper"}}`)
	if drafted == 0 || same != text {
		t.Errorf("salf drafts %d tokens and answers %q, auto %q", drafted, same, text)
	}
	alone := append(last("talf generate")[1:], "--max-tokens", "40")
	if want := talftest.OK(t, "", alone...); text+"\n" != want {
		t.Errorf("the server answers %q, generate %q", text, want)
	}
}
