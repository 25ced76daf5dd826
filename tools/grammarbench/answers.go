package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/constrain"
	"talf/infer/decode"
	"talf/infer/source"
	"talf/model"
	"talf/model/sample"
	"talf/text/chat"
	"talf/text/grammar"
	"talf/text/tokenizer"
)

// outcomes are what became of the answers with one method.
type outcomes struct{ answers, ended, valid, invalid, undecided, tokens, passes int }

// A writer has a model write values of schemas.
type writer struct {
	model  *model.Model
	tok    *tokenizer.Tokenizer
	vocab  *grammar.Vocabulary
	source infer.Source // what drafts; nil: nothing does
	most   int          // tokens of an answer
}

// answers has a model write a value of each schema at temperature 1, with each method in turn, and a
// validator read those that come to their end.
func answers(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("answers", flag.ContinueOnError)
	methods := flags.String("methods", "pld,suffix,static:binary-4,beam", "draft methods, which take turns, separated by commas")
	draft := flags.String("draft", "", "`directory` of a small model that drafts; the model itself if none is given")
	most := flags.Int("max", 250, "tokens of an answer")
	every := flags.Int("every", 1, "take one file of so many")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() < 2 || *every < 1 {
		return errors.New("answers: want the directory of a model, and directories with tests")
	}
	files, err := tests(flags.Args()[1:])
	if err != nil {
		return err
	}
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		return err
	}
	defer dev.Close()
	w := &writer{most: *most}
	if w.model, err = model.Load(flags.Arg(0), dev, model.Default()); err != nil {
		return err
	}
	defer w.model.Close()
	if w.tok, err = decode.LoadTokenizer(flags.Arg(0), w.model); err != nil {
		return err
	}
	if w.vocab, err = constrain.Vocabulary(w.tok, w.model.Spec().Vocab); err != nil {
		return err
	}
	if *draft == "" {
		*draft = flags.Arg(0)
	}
	small, shared, err := decode.LoadDraft(*draft, "", w.model, w.tok, func(dir string) (*model.Model, error) { return model.Load(dir, dev, model.Default()) })
	if err != nil {
		return err
	}
	defer small.Close()
	w.source = source.NewLM(small, shared, 0)
	names := strings.Split(*methods, ",")
	by := make([]outcomes, len(names))
	schemas, refused := 0, 0
	for i := 0; i < len(files); i += *every {
		gs, err := groups(files[i])
		if err != nil {
			return err
		}
		for _, g := range gs {
			n := (schemas + refused) % len(names)
			c, err := constrain.NewFor(constrain.Format{Kind: constrain.Schema, Text: string(g.Schema)}, w.tok, w.vocab, w.model.Spec().EOS)
			if err != nil {
				refused++
				continue
			}
			schemas++
			if err := w.write(&g, c, names[n], uint64(i), &by[n], stdout); err != nil {
				return fmt.Errorf("%s with %s: %w", g.name, names[n], err)
			}
		}
	}
	fmt.Fprintf(stdout, "%d schemas, and %d that are refused\n\n", schemas, refused)
	fmt.Fprintln(stdout, "| method | answers | ended | of them valid | invalid | undecided | tokens of all | passes |\n|---|---|---|---|---|---|---|---|")
	var all outcomes
	row := func(name string, o outcomes) {
		fmt.Fprintf(stdout, "| %s | %d | %d | %d | %d | %d | %d | %d |\n", name, o.answers, o.ended, o.valid, o.invalid, o.undecided, o.tokens, o.passes)
	}
	for i, o := range by {
		row(names[i], o)
		all.add(o)
	}
	row("all", all)
	if all.invalid > 0 {
		return fmt.Errorf("answers: %d answers are invalid", all.invalid)
	}
	return nil
}

func (o *outcomes) add(x outcomes) {
	o.answers, o.ended, o.valid, o.invalid = o.answers+x.answers, o.ended+x.ended, o.valid+x.valid, o.invalid+x.invalid
	o.undecided, o.tokens, o.passes = o.undecided+x.undecided, o.tokens+x.tokens, o.passes+x.passes
}

// write writes a value of a schema and counts what it is.
func (w *writer) write(g *group, c *constrain.Constraint, method string, seed uint64, o *outcomes, stdout io.Writer) error {
	params := sample.Default()
	params.Temperature = 1
	d, err := decode.New(decode.Config{
		Target: w.model, Tokenizer: w.tok,
		Options: decode.Options{Method: method, Sample: params, MaxTokens: w.most, Constraint: c},
		Source:  w.source,
	})
	var without *decode.SourceError
	if errors.As(err, &without) && without.Given { // the method asks no model
		d, err = decode.New(decode.Config{
			Target: w.model, Tokenizer: w.tok,
			Options: decode.Options{Method: method, Sample: params, MaxTokens: w.most, Constraint: c},
		})
	}
	if err != nil {
		return err
	}
	defer d.Close()
	prompt := "A JSON value of the schema " + string(g.Schema[:min(len(g.Schema), 200)]) + "\n"
	s, err := d.Answer(context.Background(), chat.Prompt{Text: strings.ToValidUTF8(prompt, ""), Special: true}, seed, func(string) error { return nil })
	if err != nil {
		return err
	}
	reason, _ := s.Done()
	o.answers, o.tokens, o.passes = o.answers+1, o.tokens+s.Stats().Tokens, o.passes+s.Stats().Passes
	if reason != infer.EOS && reason != infer.Complete {
		return nil
	}
	o.ended++
	oracle, err := validator(g.Schema)
	if err != nil {
		o.undecided++
		return nil
	}
	v, err := decodeJSON([]byte(s.Text()))
	if err == nil {
		err = validate(oracle, v)
	}
	switch {
	case errors.Is(err, errUndecided):
		o.undecided++
	case err != nil:
		o.invalid++
		fmt.Fprintf(stdout, "%s with %s: WRITTEN, INVALID: %.300s: %v\n", g.name, method, s.Text(), err)
	default:
		o.valid++
	}
	return nil
}

// tests are the files with tests in directories, in the order of their names.
func tests(roots []string) (files []string, err error) {
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			// Where content is asserted, which is up to an implementation, and where 1.0 is no integer, which
			// ended with draft 4, there is nothing to compare.
			skip := filepath.Base(path) == "content.json" || filepath.Base(path) == "zeroTerminatedFloats.json"
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".json") && !skip {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(files) == 0 {
		return nil, errors.New("want directories with tests")
	}
	return files, nil
}
