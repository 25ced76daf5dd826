package preprocess_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"talf/compute/cpu"
	"talf/data"
	"talf/data/corpus"
	"talf/internal/leak"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// Environment variables that make the test binary run preprocessing instead of tests.
const (
	childModel  = "TALF_TEST_MODEL"
	childFile   = "TALF_TEST_FILE"
	childOut    = "TALF_TEST_OUT"
	childCopies = "TALF_TEST_COPIES" // of the target
)

func TestMain(m *testing.M) {
	if os.Getenv(childModel) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(leak.Main(m.Run))
}

func child() error {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		return err
	}
	in := preprocess.Inputs{Tokenizer: numbers{1}, TokenizerHash: "numbers"}
	copies, err := strconv.Atoi(os.Getenv(childCopies))
	if err != nil {
		return err
	}
	for i := range copies {
		m, err := model.Load(os.Getenv(childModel), dev, model.Default())
		if err != nil {
			return err
		}
		if i == 0 {
			in.Target = m
		} else {
			in.Beside = append(in.Beside, preprocess.Worker{Target: m})
		}
	}
	c := preprocess.Default()
	c.Files, c.Out = []string{os.Getenv(childFile)}, os.Getenv(childOut)
	c.Load.Format, c.Load.Template, c.Load.AnswerField = corpus.JSONL, "{q}", "a"
	c.TopK, c.Shard, c.MaxLen, c.Tokens = 6, 3, 120, 40
	_, err = preprocess.Run(context.Background(), c, in)
	return err
}

// A process that is killed at random times and restarted writes the same bytes as one
// that is not. Finished shards are not touched again.
func TestKilledRunsResumeToTheSameBytes(t *testing.T) {
	kills := 20
	if testing.Short() {
		kills = 4
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := modeltest.Random(t, modeltest.Default(), 5)
	file := write(t, "in.jsonl", problems(60, 97))
	start := func(out string, copies int) *exec.Cmd {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childModel+"="+dir, childFile+"="+file, childOut+"="+out, fmt.Sprintf("%s=%d", childCopies, copies))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	whole := t.TempDir()
	began := time.Now()
	if err := start(whole, 1).Wait(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)

	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	out := t.TempDir()
	finished, killed, sets := 0, 0, 0
	for killed < kills {
		cmd := start(out, 1+killed%3)
		// A continued run needs less time the more is finished. Half the time of a
		// whole run leaves most runs something to lose.
		time.Sleep(time.Duration(rng.Int64N(int64(took)/2 + 1)))
		if cmd.Process.Kill() == nil && cmd.Wait() != nil {
			killed++
		}
		names := hashes(t, out)
		n := 0
		if m, err := data.Open(out); err == nil {
			n = len(m.Shards())
			if m.Complete() {
				// A kill at the last moment leaves a lock's file, which the next run takes away.
				if err := os.WriteFile(filepath.Join(out, ".manifest.json.lock"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				if err := start(out, 1).Wait(); err != nil {
					t.Fatal(err)
				}
				sameSet(t, whole, out)
				sets++
				out, n = t.TempDir(), 0
			}
			m.Close()
		}
		if n < finished && n > 0 {
			t.Fatalf("seed %d: %d finished shards after %d: %v", seed, n, finished, names)
		}
		finished = n
	}
	if err := start(out, 3).Wait(); err != nil {
		t.Fatal(err)
	}
	sameSet(t, whole, out)
	t.Logf("a whole run takes %v; %d kills over %d sets", took, killed, sets+1)
}
