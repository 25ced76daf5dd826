package infer_test

import (
	"context"
	"fmt"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
)

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
