package zoo

import (
	"encoding/json"
	"flag"
	"testing"

	"talf/checkpoints"
	"talf/cmd/talf/command"
	"talf/compute/cpu"
	"talf/internal/e2e/talftest"
	"talf/internal/golden"
	"talf/internal/zoo"
	"talf/model"
)

func TestMain(m *testing.M) { talftest.Main(m, command.Run) }

var (
	full   = flag.Bool("full", false, "take all models, prompts and methods instead of what a few minutes allow")
	tokens = flag.Int("tokens", 16, "of every answer in which methods are compared with plain decoding")
)

// chosen returns the models to test with: the small ones, or all. In short tests there are none.
func chosen(t *testing.T) []zoo.Model {
	t.Helper()
	if testing.Short() {
		t.Skip("real models take minutes")
	}
	var some []zoo.Model
	for _, m := range zoo.Models() {
		if m.Small || *full {
			some = append(some, m)
		}
	}
	return some
}

// open loads a model as --dtype would, with activations of the given bits (0: the default).
func open(t *testing.T, path string, dtype checkpoints.DType, bits int) *model.Model {
	t.Helper()
	c := cpu.Default()
	c.ActBits = bits
	dev, err := cpu.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l := checkpoints.Loading{DType: dtype}
	m, err := l.Load(path, dev)
	if err != nil {
		dev.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// A record is what other programs made of a model.
type record struct {
	Prompts []struct {
		IDs    []int32
		Likely []struct {
			After int
			Top   [][2]float64 // token and ln p
		}
		Greedy []int32
		Leads  []*float64 // by which each token of Greedy leads, in ln p; nil: not told
	}
	Perplexity struct {
		Window       int
		AfterWindows []float64 `json:"after_windows"`
	}
	Templates []struct {
		Name, Text string
		LlamaCpp   *string `json:"llama.cpp"` // what llama.cpp writes, where it differs
	}
}

// inputs are what they made it of.
type inputs struct {
	Prompts       []string
	Conversations []json.RawMessage
}

func recorded(t *testing.T, name string) (r record) {
	t.Helper()
	read(t, "zoo/"+name+".json", &r)
	return r
}

// computed returns the record of a model with what was computed with it: of the largest only templates are recorded.
func computed(t *testing.T, name string) record {
	t.Helper()
	r := recorded(t, name)
	if len(r.Prompts) == 0 {
		t.Skip("the logits of a real model are not recorded: " + name)
	}
	return r
}

func read(t *testing.T, name string, to any) {
	t.Helper()
	if err := json.Unmarshal(golden.Read(t, name), to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
