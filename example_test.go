package talf_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"talf"
	"talf/infer"
	"talf/internal/demo"
	"talf/preprocess"
	"talf/train"
)

// The examples run on the model of talf quickstart. Any directory in Hugging Face's layout and any .gguf file does.
func demoModel() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "talf")
	if err != nil {
		panic(err)
	}
	if err := demo.Unpack(filepath.Join(dir, "model")); err != nil {
		panic(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }
}

// A text is continued, piece by piece.
func Example() {
	dir, remove := demoModel()
	defer remove()
	ctx := context.Background()

	m, err := talf.Open(ctx, talf.Config{Path: filepath.Join(dir, "model")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	for piece, err := range m.Generate(ctx, "Ana has three apples", talf.Options{MaxTokens: 24}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(piece.Text)
		if piece.Stats != nil {
			fmt.Printf("\n%s after %d tokens\n", piece.Reason, piece.Stats.Tokens)
		}
	}
	// Output:
	// in the village. Anna had six buttons in her pocket and gave one away. Anna wanted to say no
	// length after 24 tokens
}

// A draft head is made for a model: its own token trees are labels, and what is trained on them drafts. The text stays the
// same, with fewer passes of the model.
func ExampleTrainHead() {
	dir, remove := demoModel()
	defer remove()
	ctx := context.Background()
	c := talf.Config{Path: filepath.Join(dir, "model")}

	texts := filepath.Join(dir, "texts.jsonl")
	if err := demo.WriteJSONL(texts, demo.Corpus(1, 30)); err != nil {
		fmt.Println(err)
		return
	}
	job := preprocess.Default()
	job.K, job.Depth = 1, 1 // the loss below learns from the text, not from trees
	job.Files, job.Out = []string{texts}, filepath.Join(dir, "labels")
	if _, err := talf.Label(ctx, c, job); err != nil {
		fmt.Println(err)
		return
	}
	run := train.Default()
	run.Loss, run.Steps, run.Rows, run.LR = "eagle", 120, 256, 6e-3 // for a small model; a few thousand steps are usual
	if _, err := talf.TrainHead(ctx, c, run, []string{job.Out}, filepath.Join(dir, "head")); err != nil {
		fmt.Println(err)
		return
	}

	answer := func(c talf.Config) (string, talf.Stats) {
		m, err := talf.Open(ctx, c)
		if err != nil {
			panic(err)
		}
		defer m.Close()
		text, stats, err := talf.Collect(m.Generate(ctx, demo.Prompts(1, 1)[0], talf.Options{MaxTokens: 64}))
		if err != nil {
			panic(err)
		}
		return text, stats
	}
	c.Method = "ar"
	plain, alone := answer(c)
	c.Method, c.Head = "salf:th=0.2,N=12", filepath.Join(dir, "head") // of a given size; without one, the clock decides what pays
	drafted, stats := answer(c)
	fmt.Println("the same text:", drafted == plain)
	fmt.Println("fewer passes:", stats.Passes < alone.Passes)
	// Output:
	// the same text: true
	// fewer passes: true
}

// An echo drafts what came after the last token when it came before: a chain of nodes. A tree would have nodes with several
// children.
type echo struct{ text []int32 }

func (e *echo) Start(prompt []int32) error {
	e.text = slices.Clone(prompt)
	return nil
}

func (e *echo) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) (ask []int, err error) {
	last := len(e.text) - 1
	at := last
	for at > 0 && e.text[at-1] != e.text[last] {
		at--
	}
	for node := 0; at <= last && p.Tree.Room() > 0 && p.Tree.Depth(node) < p.MaxDepth; at++ {
		node = p.Tree.Add(node, e.text[at])
	}
	return nil, nil // no draft model is asked
}

func (e *echo) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	e.text = e.text[:p.Pos+1] // up to the root
	for _, node := range v.Path[1:] {
		e.text = append(e.text, p.Tree.Token(node))
	}
	e.text = append(e.text, v.Next)
	return nil
}

func (*echo) Traits() infer.Traits { return infer.Traits{} }

// A drafter of one's own decides how many passes a text takes, and never which text it is. Its drafts are scored where
// they are worth their time on this machine: stats.Passes tells.
func ExampleConfig_drafter() {
	dir, remove := demoModel()
	defer remove()
	ctx := context.Background()
	for _, c := range []talf.Config{
		{Method: "ar"},
		{Drafter: func() infer.Drafter { return new(echo) }},
	} {
		c.Path = filepath.Join(dir, "model")
		m, err := talf.Open(ctx, c)
		if err != nil {
			fmt.Println(err)
			return
		}
		text, stats, err := talf.Collect(m.Generate(ctx, demo.Prompts(1, 1)[0], talf.Options{MaxTokens: 120}))
		if err != nil {
			fmt.Println(err)
		}
		sentence, _, _ := strings.Cut(text, ".")
		fmt.Printf("…%s. … %d tokens\n", sentence, stats.Tokens)
		_ = m.Close()
	}
	// Output:
	// … At noon he sat alone near the tall tree and ate his soup. … 120 tokens
	// … At noon he sat alone near the tall tree and ate his soup. … 120 tokens
}

// A model is served to clients of OpenAI's API.
func ExampleModel_Handler() {
	dir, remove := demoModel()
	defer remove()
	m, err := talf.Open(context.Background(), talf.Config{Path: filepath.Join(dir, "model")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	h, err := m.Handler("demo")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(h) // or http.ListenAndServe("127.0.0.1:8080", h)
	defer server.Close()

	r, err := http.Post(server.URL+"/v1/completions", "application/json", bytes.NewBufferString(`{"model":"demo","prompt":"Ana has three apples","max_tokens":12,"temperature":0}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Body.Close()
	var answer struct {
		Model   string
		Choices []struct{ Text string }
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %q\n", answer.Model, answer.Choices[0].Text)
	// Output:
	// demo: " in the village. Anna had six buttons in her pocket"
}
