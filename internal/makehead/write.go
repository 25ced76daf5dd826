package makehead

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"time"

	"talf/infer/decode"
	"talf/internal/durable"
	"talf/model"
	"talf/model/sample"
	"talf/text/chat"
	"talf/text/tokenizer"
)

const (
	// chunk is how many prompts are answered before it is known how long answers are; with Plan.Hours, before the time
	// is looked at.
	chunk = 64
	// answering is the share of the time that answers may take of Plan.Hours. The rest is labelling, training and
	// measuring.
	answering = 0.2
)

// A writer writes the answers of one call.
type writer struct {
	r        *run
	model    *model.Model
	tok      *tokenizer.Tokenizer
	template *chat.Template
	hash     string
	tasks    []decode.Task // all prompts, in the order in which they are taken; nil: those of asking.txt
}

// open loads the model and the prompts. The returned function frees the model.
// Rough answers cost less: what the model says of their tokens is asked exactly.
func (r *run) open(ctx context.Context, rough bool) (*writer, func(), error) {
	w := &writer{r: r}
	var err error
	if w.tasks, w.template, w.hash, err = r.Tools.Prompts(r.Plan.Data); err != nil {
		return nil, nil, err
	}
	if len(r.Plan.Data) > 0 {
		if n := r.Plan.held(); len(w.tasks) <= n {
			return nil, nil, fmt.Errorf("%d prompts, want more than the %d that nothing is learnt from", len(w.tasks), n)
		}
		// A part of a file is a sample of it, whatever its order.
		rng := rand.New(rand.NewPCG(r.Plan.Seed, 0))
		rng.Shuffle(len(w.tasks), func(i, j int) { w.tasks[i], w.tasks[j] = w.tasks[j], w.tasks[i] })
	}
	var end func()
	w.model, w.tok, end, err = r.Tools.Open(ctx, rough)
	return w, end, err
}

// decoder returns a decoder of the model that samples with p.
func (w *writer) decoder(p sample.Params, tokens int) (*decode.Decoder, error) {
	o := decode.Default()
	o.Method, o.Sample, o.MaxTokens = "auto", p, tokens
	return decode.New(decode.Config{Target: w.model, Tokenizer: w.tok, Options: o})
}

// prompts returns the first n prompts, or fewer if there are no more.
func (w *writer) prompts(n int) []decode.Task {
	if len(w.r.Plan.Data) > 0 {
		return w.tasks[:min(n, len(w.tasks))]
	}
	tasks := make([]decode.Task, n)
	for i, text := range written().ask(n, w.r.Plan.Seed) {
		tasks[i] = decode.Task{Place: fmt.Sprintf("prompt %d", i), Key: text, Begin: func() *chat.Dialogue {
			if w.template == nil {
				return chat.NewText(text)
			}
			d := chat.Begin(w.template, "")
			d.Say(text)
			return &d
		}}
	}
	return tasks
}

// fill answers the tasks that have no answer in the file at path yet.
func (w *writer) fill(ctx context.Context, d *decode.Decoder, path string, tasks []decode.Task) (err error) {
	settings, err := d.Settings(decode.Facts{Seed: w.r.Plan.Seed, Template: w.hash})
	if err != nil {
		return err
	}
	to, err := decode.OpenAnswers(path, tasks, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	set, end := w.r.Tools.Progress("answer", "prompts")
	defer end()
	_, err = d.AnswerAll(ctx, tasks, to, decode.Batch{
		Seed: w.r.Plan.Seed, Side: max(w.r.Plan.Side, 1),
		Progress: func(done, total int) { set(done, total, "") },
		Skipped:  func(err error) { w.r.Tools.Warn(err.Error()) },
	})
	return err
}

// answers lets the model write what the head learns from, until there are as many tokens as planned, or the
// prompts or the time are used up, and writes it as text.
func (r *run) answers(ctx context.Context) error {
	w, end, err := r.open(ctx, true)
	if err != nil {
		return err
	}
	defer end()
	p := sample.Greedy()
	p.Temperature = r.Plan.Temperature
	d, err := w.decoder(p, r.Plan.MaxTokens)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only read
	f, path, held := &r.state.Result, r.path("answers.jsonl"), r.Plan.held()
	there, err := begun(path)
	if err != nil {
		return err
	}
	for n, more := max(chunk, there), chunk; f.Answers == 0; n += more {
		began := time.Now()
		tasks := w.prompts(held + n)[held:]
		if err := w.fill(ctx, d, path, tasks); err != nil {
			return err
		}
		f.Spent += time.Since(began).Seconds()
		sum, last := 0, 0
		err = inOrder(path, func(a *decode.Answer) {
			if r.Plan.Tokens > 0 && sum >= r.Plan.Tokens {
				return
			}
			sum, last = sum+a.Tokens, a.Index
		})
		if err != nil {
			return err
		}
		switch enough := r.Plan.Tokens > 0 && sum >= r.Plan.Tokens || r.Plan.Hours > 0 && f.Spent >= answering*r.Plan.Hours*time.Hour.Seconds(); {
		case enough:
		case len(tasks) < n && r.Plan.Tokens > 0:
			r.Tools.Warn(fmt.Sprintf("the answers to all prompts have %d tokens, not the %d that were asked for", sum, r.Plan.Tokens))
		case len(tasks) < n:
		default:
			r.Tools.Tell(fmt.Sprintf("    %d tokens of answers", sum))
			if r.Plan.Tokens > 0 && sum > 0 {
				more = max(chunk/4, (r.Plan.Tokens-sum)*n/sum) // as many as are expected to be missing
			}
			if err := r.state.Save(); err != nil {
				return err
			}
			continue
		}
		if sum == 0 {
			return errors.New("none of the prompts was answered: there is nothing to learn from")
		}
		f.Answers, f.Tokens = last+1, sum
	}
	if err := r.state.Save(); err != nil {
		return err
	}
	return r.writeText(ctx, w.prompts(held + f.Answers)[held:], path)
}

// writeText writes the answered prompts as documents that preprocess reads.
func (r *run) writeText(ctx context.Context, tasks []decode.Task, answers string) error {
	return durable.Write(r.path("text.jsonl"), func(to io.Writer) error {
		b := bufio.NewWriter(to)
		var failed error
		err := inOrder(answers, func(a *decode.Answer) {
			if failed != nil || a.Index >= len(tasks) {
				return
			}
			line, err := document(ctx, tasks[a.Index].Begin(), a)
			if err == nil {
				_, err = b.Write(append(line, '\n'))
			}
			failed = err
		})
		return errors.Join(err, failed, b.Flush())
	})
}

// document returns an answered dialogue as JSON.
func document(ctx context.Context, d *chat.Dialogue, a *decode.Answer) ([]byte, error) {
	replies := []string{a.Text}
	if len(a.Turns) > 0 {
		replies = nil
		for _, t := range a.Turns {
			replies = append(replies, t.Text)
		}
	}
	for _, text := range replies {
		if !d.Ask() {
			break
		}
		d.Answer(text)
	}
	if t := d.Transcript(); t != nil {
		return t.JSON(d.Said()), nil
	}
	p, err := d.Prompt(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]string{"text": p.Text})
}

// begun returns how many prompts have to be asked for so that every answer of a file, if it is there, belongs to one.
func begun(path string) (n int, err error) {
	err = decode.ReadAnswers(path, func(a *decode.Answer) { n = max(n, a.Index+1) })
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

// inOrder calls f for the answers of a file, in the order of the prompts.
func inOrder(path string, f func(*decode.Answer)) error {
	var all []decode.Answer
	if err := decode.ReadAnswers(path, func(a *decode.Answer) { all = append(all, *a) }); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b decode.Answer) int { return a.Index - b.Index })
	for i := range all {
		f(&all[i])
	}
	return nil
}
