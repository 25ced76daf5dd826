package source_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/internal/golden"
	"talf/model"
	"talf/model/head"
)

// blockTargets are the cases of data/block that decode, and their targets.
var blockTargets = map[string]string{
	"dflash/a": "qwen3", "dflash/b": "llama", "dflash2/a": "qwen3", "dspark/a": "qwen3", "dspark/b": "llama",
	"jetspec/a": "qwen3", "jetspec/b": "llama",
}

// blockNets loads a head of data/block and its target.
func blockNets(t testing.TB, name string, opt model.Options) (*model.Model, *head.Head) {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	target, err := model.Load(golden.Shared(t, "data/block/targets/"+blockTargets[name]), dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	h, err := head.Load(golden.Shared(t, "data/block/"+name+"/head"), target, head.Options{Model: opt})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return target, h
}

// A recording is what the authors' code drafted and accepted. Chains have Drafted and a number of accepted tokens; nodes of
// trees are without the root, which parents count as 0.
type recording struct {
	Prompt    []int32
	NewTokens int `json:"new_tokens"`
	IDs       []int32
	Threshold float64 `json:"confidence_threshold"`
	Budget    int
	Width     int
	Knobs     *struct{ Beta, G0 float64 }
	Rounds    []struct {
		Start    int
		Drafted  *[]int32
		Tokens   []int32
		Parents  []int
		Accepted json.RawMessage
	}
}

// method is the one that drafts like the file's.
func (r *recording) method(file string, drafts int) string {
	switch {
	case strings.HasPrefix(file, "ddtree"):
		return fmt.Sprintf("optimal:N=%d", r.Budget+1)
	case file == "accum_logp.json":
		return fmt.Sprintf("jetspec:N=%d,k=%d", r.Budget, r.Width)
	case file == "top2gap_fanout.json":
		return fmt.Sprintf("jetspec:N=%d,k=%d,beta=2,g0=0.7", r.Budget, r.Width)
	}
	return fmt.Sprintf("linear:K=%d,sure=%v", drafts, r.Threshold)
}

func TestBlockDecodingIsTheAuthors(t *testing.T) {
	files := 0
	for name := range blockTargets {
		target, h := blockNets(t, name, model.Default())
		paths, err := filepath.Glob(filepath.Join(golden.Shared(t, "data/block/"+name), "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			file := filepath.Base(path)
			if file == "info.json" || file == "losses.json" {
				continue
			}
			files++
			t.Run(name+"/"+file, func(t *testing.T) {
				raw, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				var want recording
				if err := json.Unmarshal(raw, &want); err != nil {
					t.Fatal(err)
				}
				replay(t, target, h, &want, want.method(file, h.Spec().Block.Drafts()))
			})
		}
	}
	if files != 15 {
		t.Errorf("%d recordings, want 15", files)
	}
}

// replay decodes with a method and compares rounds.
func replay(t *testing.T, target *model.Model, h *head.Head, want *recording, method string) {
	d, _, err := draft.New(method)
	if err != nil {
		t.Fatal(err)
	}
	round := 0
	prompt := want.IDs[:len(want.Prompt)+1] // theirs have no draft before the first token
	e := &infer.Engine{Target: infer.NewTarget(target, 0), Config: infer.Default()}
	s, err := e.Generate(t.Context(), infer.Request{
		Prompt: prompt, MaxTokens: want.NewTokens + 30, NoEOS: true, Source: source.NewBlock(h, 0), Drafter: d,
		Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
		Trace: func(r infer.Round) error {
			if round == len(want.Rounds) {
				return nil
			}
			w := want.Rounds[round]
			round++
			tree := r.Proposal.Tree
			tokens, parents := tree.Tokens()[1:], []int(nil)
			for n := 1; n < tree.Len(); n++ {
				parents = append(parents, tree.Parent(n))
			}
			accepted := string(w.Accepted)
			got := fmt.Sprint(r.Verdict.Path)
			if w.Drafted != nil {
				w.Tokens, w.Parents, got = *w.Drafted, nil, fmt.Sprint(len(r.Verdict.Path)-1)
				for n := range w.Tokens {
					w.Parents = append(w.Parents, n)
				}
			}
			accepted = strings.Join(strings.Fields(strings.ReplaceAll(accepted, ",", " ")), " ")
			if r.Proposal.Pos != w.Start || !slices.Equal(tokens, w.Tokens) || !slices.Equal(parents, w.Parents) || got != accepted {
				t.Fatalf("round %d at %d: tokens %v below %v, accepted %s, want at %d %v below %v, %s",
					round, r.Proposal.Pos, tokens, parents, got, w.Start, w.Tokens, w.Parents, accepted)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := slices.Concat(prompt, s.Tokens())
	if round != len(want.Rounds) || !slices.Equal(text[:len(want.IDs)], want.IDs) {
		t.Errorf("%s: %d rounds of %d, text %v, want %v", method, round, len(want.Rounds), text[:len(want.IDs)], want.IDs)
	}
}
