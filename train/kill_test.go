package train

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"talf/checkpoints"
	"talf/compute/cpu"
	"talf/data"
	"talf/internal/leak"
	"talf/model"
	"talf/model/safetensors"
	"talf/train/mix"
)

const (
	childEnv   = "TALF_TEST_TRAIN_CHILD" // directory of a run that is to be killed
	childSteps = 120
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(leak.Main(m.Run))
}

// child trains in dir/run with the target and data in dir, and reports every step. A byte of its standard
// input lets it go on; at the end of the input it goes on for ever.
func child(dir string) error {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		return err
	}
	target, err := model.Load(filepath.Join(dir, "target"), dev, model.Default())
	if err != nil {
		return err
	}
	set, err := data.Open(filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	_, err = Head(context.Background(), childConfig(os.Getenv(childEnv+"_SHORT") != "", os.Getenv(childEnv+"_NETWORK")), HeadJob{
		Target: target, Data: mix.Only(set), Out: os.Getenv(childEnv + "_OUT"),
		Report: func(p Progress) {
			fmt.Println("step", p.Step)
			_, _ = os.Stdin.Read(make([]byte, 1))
		},
	})
	return err
}

func childConfig(short bool, network string) Config {
	cfg := tinyConfig()
	cfg.Network = network
	cfg.SaveEvery, cfg.EvalEvery, cfg.Keep, cfg.Noise = 2, 10, 2, 0.01
	n := childSteps / 3
	if short {
		n /= 5
	}
	losses := []string{"eagle", "hass:top=4", "talf"}
	if network != "" {
		losses = []string{"eagle3", "hass:top=4,w_reg=0", "talf"}
	}
	for _, l := range losses {
		cfg.Stages = append(cfg.Stages, Stage{Loss: l, Steps: n, LR: cfg.LR, Warmup: 2})
	}
	return cfg
}

func TestKilledRunsEndWithTheSameBits(t *testing.T) {
	for _, network := range []string{"", tinyEagle3} {
		t.Run(cmp.Or(network, "eagle"), func(t *testing.T) { killRuns(t, network) })
	}
}

func killRuns(t *testing.T, network string) {
	kills, short := 20, ""
	switch {
	case testing.Short():
		kills, short = 4, "1"
	case network != "":
		kills = 8
	}
	dir := t.TempDir()
	dev := device(t, 1)
	target := filepath.Join(dir, "target")
	if err := os.Mkdir(target, 0o777); err != nil {
		t.Fatal(err)
	}
	conf, err := tinySpec().LlamaConfig("float32")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(target, "config.json"), conf, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := safetensors.WriteFile(filepath.Join(target, "model.safetensors"), nil, tinyTensors()...); err != nil {
		t.Fatal(err)
	}
	tinyDataIn(t, filepath.Join(dir, "data"), tinyTarget(t, dev), 30, data.BF16)

	// start runs a child and kills it the given time after it has made this many steps; it
	// reports whether the child finished by itself. However late it is killed, it has made few more.
	start := func(out string, steps int, after time.Duration) (done bool) {
		t.Helper()
		c := exec.Command(os.Args[0], "-test.run=^$")
		c.Env = append(os.Environ(), childEnv+"="+dir, childEnv+"_OUT="+out, childEnv+"_SHORT="+short, childEnv+"_NETWORK="+network)
		c.Stderr = os.Stderr
		p, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if steps >= 0 {
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := in.Write(make([]byte, steps+3)); err != nil { // the system keeps them
				t.Fatal(err)
			}
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(p)
		for n := 0; (steps < 0 || n < steps) && lines.Scan(); n++ {
		}
		if steps >= 0 {
			time.Sleep(after)
			c.Process.Kill() // SIGKILL
		}
		for lines.Scan() {
		}
		err = c.Wait()
		if steps < 0 && err != nil {
			t.Fatalf("child: %v", err)
		}
		return err == nil
	}
	whole := filepath.Join(dir, "whole")
	start(whole, -1, 0)

	const seed = 11
	r := rand.New(rand.NewPCG(seed, seed))
	out := filepath.Join(dir, "killed")
	killed := 0
	for killed < kills {
		mean := 3 * childConfig(short != "", network).Stages[0].Steps / kills
		if start(out, r.IntN(mean*3/2), time.Duration(r.IntN(4000))*time.Microsecond) {
			break
		}
		killed++
	}
	start(out, -1, 0)
	t.Logf("killed %d times", killed)
	if killed < kills*3/4 {
		t.Errorf("killed only %d times before the end, seed %d", killed, seed)
	}
	s, err := checkpoints.NewStore(out, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	last, err := s.Latest()
	if err != nil || last == "" {
		t.Fatal(last, err)
	}
	sameFiles(t, fmt.Sprintf("seed %d", seed), files(t, filepath.Join(whole, filepath.Base(last))), files(t, last))
	// The log is also that of a run that was never stopped, except for the times.
	a, b := logOf(t, whole), logOf(t, out)
	for i := range a {
		a[i].Seconds, b[i].Seconds = 0, 0
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("seed %d: the logs differ", seed)
	}
}
