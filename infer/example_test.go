package infer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
	"talf/model"
	"talf/model/modeltest"
	"talf/model/sample"
	"talf/tree"
)

// Speculative decoding with draft trees, greedy and without a KV cache: the whole
// algorithm, as simple as it can be. The engine does the same faster; a test below
// compares the two.
//
// logits is the target: what comes after a context, by scores [vocab]. draft adds
// guesses of what follows the context to a tree, at most depth tokens deep.
func speculate(logits func(context []int32) []float32, draft func(t *tree.Tree, context []int32, depth int),
	prompt []int32, maxTokens int,
) (output []int32, passes int) {
	context := slices.Clone(prompt)
	for left := maxTokens; left > 0; left = len(prompt) + maxTokens - len(context) {
		// Draft. The root is the newest token, which is certain; the nodes below it
		// are guesses, and each path from the root is one possible continuation.
		t := tree.New(context[len(context)-1], 16)
		draft(t, context, left-1)

		// Score. One pass of the target over all nodes says what it would choose after
		// each. Every node sees the context and its own path, nothing else.
		choice := make([]int32, t.Len())
		for n := range choice {
			path := slices.Clone(context[:len(context)-1])
			for _, node := range t.AppendPath(nil, n) {
				path = append(path, t.Token(node))
			}
			choice[n] = sample.Argmax(logits(path))
		}
		passes++

		// Verify. Follow the target's own choices down the tree. Each is what plain
		// decoding would have emitted, whether it was guessed or not, so the output
		// cannot differ. Where the tree has no such child, the round ends; the last
		// choice is the bonus that every pass yields.
		for node := 0; node >= 0; {
			next := choice[node]
			context = append(context, next)
			node = t.Child(node, next)
		}
	}
	return context[len(prompt):], passes
}

// followers is a toy drafter: after each node it guesses the tokens that followed
// the node's token earlier in the context, the latest first, up to two.
func followers(t *tree.Tree, context []int32, depth int) {
	for n := 0; n < t.Len(); n++ {
		for i, children := len(context)-2, 0; i >= 0 && children < 2; i-- {
			if t.Room() == 0 || t.Depth(n) == min(depth, 4) {
				break
			}
			if context[i] == t.Token(n) && t.Child(n, context[i+1]) < 0 {
				t.Add(n, context[i+1])
				children++
			}
		}
	}
}

func Example_plain() {
	model := drafttest.Table{Seed: 1, Vocab: 12, Order: 1, Sharp: 3}
	logits := func(context []int32) []float32 {
		row := make([]float32, model.Vocab)
		model.Logits(row, context)
		return row
	}
	nothing := func(*tree.Tree, []int32, int) {}
	plain, steps := speculate(logits, nothing, []int32{7, 8, 9}, 40)
	drafted, passes := speculate(logits, followers, []int32{7, 8, 9}, 40)
	fmt.Println("the same output:", slices.Equal(plain, drafted))
	fmt.Println("passes:", steps, "without drafts,", passes, "with")
	// Output:
	// the same output: true
	// passes: 40 without drafts, 10 with
}

// Decoding with SALF trees. The models here are tables for tests; infer.NewTarget
// and source.NewHead make the same of a model and of a draft head.
func ExampleEngine_Generate() {
	target := &drafttest.Target{Table: drafttest.Table{Seed: 1, Vocab: 50, Order: 3, Sharp: 3}, MaxLen: 100}
	engine := &infer.Engine{Target: target, Config: infer.Default()}

	request := func(method string) infer.Request {
		d, _, err := draft.New(method)
		if err != nil {
			panic(err)
		}
		return infer.Request{
			Prompt: []int32{7, 8, 9}, MaxTokens: 40,
			Drafter: d, Source: &drafttest.Source{Target: target, Agree: 0.9},
			Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
		}
	}
	plain, err := engine.Generate(context.Background(), request("ar"))
	if err != nil {
		panic(err)
	}
	drafted, err := engine.Generate(context.Background(), request("salf:th=0.4,N=30"))
	if err != nil {
		panic(err)
	}
	fmt.Println("the same output:", fmt.Sprint(drafted.Tokens()) == fmt.Sprint(plain.Tokens()))
	fmt.Println("passes of the target:", plain.Stats().Passes, "and fewer:", drafted.Stats().Passes < 20)
	// Output:
	// the same output: true
	// passes of the target: 40 and fewer: true
}

// toy is followers as a drafter of the engine.
type toy struct{ context []int32 }

func (d *toy) Traits() infer.Traits { return infer.Traits{} }

func (d *toy) Start(prompt []int32) error {
	d.context = slices.Clone(prompt)
	return nil
}

func (d *toy) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	followers(p.Tree, d.context, p.MaxDepth)
	return nil, nil
}

func (d *toy) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	if p.Pos < len(d.context)-1 {
		return nil // a chunk of the prompt
	}
	for _, n := range v.Path[1:] {
		d.context = append(d.context, p.Tree.Token(n))
	}
	d.context = append(d.context, v.Next)
	return nil
}

// The engine emits the same tokens in the same number of passes as the plain algorithm: on
// tables, and on small random models, whose logits the plain one computes from scratch for every
// node.
func TestTheEngineDoesWhatThePlainAlgorithmDoes(t *testing.T) {
	const maxTokens = 48
	saved := 0
	compare := func(t *testing.T, target infer.Target, logits func([]int32) []float32, prompt []int32) {
		t.Helper()
		config := infer.Default()
		config.MaxNodes = 16
		engine := &infer.Engine{Target: target, Config: config}
		got, err := engine.Generate(context.Background(), infer.Request{
			Prompt: prompt, MaxTokens: maxTokens, NoEOS: true,
			Drafter: new(toy), Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
		})
		if err != nil {
			t.Fatal(err)
		}
		want, passes := speculate(logits, followers, prompt, maxTokens)
		if !slices.Equal(got.Tokens(), want) || got.Stats().Passes != passes {
			t.Errorf("%v in %d passes, want %v in %d", got.Tokens(), got.Stats().Passes, want, passes)
		}
		saved += maxTokens - passes
	}
	for seed := range uint64(20) {
		table := drafttest.Table{Seed: seed, Vocab: 10, Order: 1 + int(seed%2), Sharp: 3}
		compare(t, &drafttest.Target{Table: table, MaxLen: 100}, func(context []int32) []float32 {
			row := make([]float32, table.Vocab)
			table.Logits(row, context)
			return row
		}, []int32{1, 2, int32(seed % 10)})
	}
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for seed := range uint64(3) {
		m, err := model.Load(modeltest.Random(t, modeltest.Default(), seed), dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		compare(t, infer.NewTarget(m, 0), func(tokens []int32) []float32 {
			s := m.NewSeq()
			defer s.Close()
			out, err := s.Append(context.Background(), tokens, nil, model.WantLast)
			if err != nil {
				t.Fatal(err)
			}
			row := make([]float32, m.Spec().Vocab)
			out.ReadLogits(row, out.LogitsRow(0, out.LastNode(0)))
			return row
		}, []int32{1, 17, 42, int32(seed)})
	}
	if saved < 100 {
		t.Errorf("drafts saved %d passes in all: the comparison is of plain decoding only", saved)
	}
}
