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
	"strings"
	"time"

	"talf/infer"
	"talf/infer/decode"
	"talf/infer/prompts"
	"talf/internal/durable"
	"talf/model"
	"talf/model/sample"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// Asking says how a model asks itself: it continues the chat template's header of a user's turn, as in Magpie (Xu et
// al. 2024, arXiv 2406.08464, §2.1). A low temperature and top-p keep the questions of small models to the point.
type Asking struct {
	Temperature float64 `json:"temperature"`
	TopP        float64 `json:"top_p"`
	MaxTokens   int     `json:"max_tokens"`
}

const (
	// chunk is how many prompts are answered before the tokens are counted again.
	chunk = 64
	// shortest is the smallest number of characters of a question.
	shortest = 8
	// fewest is the share of questions that have to have an end: a model that has not learnt to ask does not come to
	// one. Models of code paste long listings into theirs, so that many have none within Asking.MaxTokens.
	fewest = 0.1
	// answering is the share of the time that answers may take of Plan.Hours. The rest is labelling, training and
	// measuring.
	answering = 0.2
)

// mark stands for what a user says.
const mark = "Q7f3a91c5e0b24d68"

// header returns what a chat template writes before what a user says, and after a conversation's beginning.
func header(ctx context.Context, t *chat.Template) (string, error) {
	if t == nil {
		return "", errors.New("the model has no chat template, so it cannot ask itself: give prompts with --data")
	}
	d := prompts.Ask(t, mark)
	p, err := d.Prompt(ctx)
	if err != nil {
		return "", err
	}
	before, _, ok := strings.Cut(p.Text, mark)
	if !ok {
		return "", errors.New("the chat template does not write what a user says as it stands: give prompts with --data")
	}
	return before, nil
}

// A writer writes the answers of one call.
type writer struct {
	r        *run
	model    *model.Model
	tok      *tokenizer.Tokenizer
	template *chat.Template
	hash     string
	tasks    []decode.Task // all prompts, in the order in which they are taken; nil: the model asks itself
}

// open loads the model and the prompts. The returned function frees the model.
func (r *run) open(ctx context.Context) (*writer, func(), error) {
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
	} else if _, err := header(ctx, w.template); err != nil {
		return nil, nil, err
	}
	var end func()
	w.model, w.tok, end, err = r.Tools.Open(ctx)
	return w, end, err
}

// decoder returns a decoder of the model that samples with p.
func (w *writer) decoder(p sample.Params, tokens int) (*decode.Decoder, error) {
	o := decode.Default()
	o.Method, o.Sample, o.MaxTokens = "auto", p, tokens
	return decode.New(decode.Config{Target: w.model, Tokenizer: w.tok, Options: o})
}

// prompts returns the first n prompts, or fewer if there are no more.
func (w *writer) prompts(ctx context.Context, n int) ([]decode.Task, error) {
	if w.tasks != nil {
		return w.tasks[:min(n, len(w.tasks))], nil
	}
	q := &w.r.Plan.Questions
	before, err := header(ctx, w.template)
	if err != nil {
		return nil, err
	}
	p := sample.Greedy()
	p.Temperature, p.TopP = q.Temperature, q.TopP
	d, err := w.decoder(p, q.MaxTokens)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	one := decode.Task{Place: "a question", Key: before, Begin: func() *chat.Dialogue { return chat.NewText(before) }}
	path := w.r.path("questions.jsonl")
	there, err := begun(path)
	if err != nil {
		return nil, err
	}
	for asked := max(n, there); ; {
		if err := w.fill(ctx, d, path, slices.Repeat([]decode.Task{one}, asked), "ask"); err != nil {
			return nil, err
		}
		var all []decode.Task
		ended := 0
		seen := map[string]bool{}
		err := inOrder(path, func(a *decode.Answer) {
			text := question(a)
			if a.Stop == string(infer.EOS) {
				ended++
			}
			if len([]rune(text)) < shortest || seen[text] {
				return
			}
			seen[text] = true
			all = append(all, decode.Task{Place: fmt.Sprintf("question %d", a.Index), Key: text, Begin: func() *chat.Dialogue {
				d := chat.Begin(w.template, "")
				d.Say(text)
				return &d
			}})
		})
		switch {
		case err != nil:
			return nil, err
		case float64(ended) < fewest*float64(asked) || 4*len(all) < asked:
			return nil, fmt.Errorf("of %d questions that the model asked itself %d have an end, and %d are of use: give prompts with --data", asked, ended, len(all))
		case len(all) >= n:
			return all[:n], nil
		}
		asked += n - len(all)
	}
}

// question returns what a user is taken to say: a question that has no end is cut behind its last whole line.
func question(a *decode.Answer) string {
	text := a.Text
	if a.Stop != string(infer.EOS) {
		text = text[:strings.LastIndexByte(text, '\n')+1]
	}
	return strings.TrimSpace(text)
}

// fill answers the tasks that have no answer in the file at path yet.
func (w *writer) fill(ctx context.Context, d *decode.Decoder, path string, tasks []decode.Task, what string) (err error) {
	settings, err := d.Settings(decode.Facts{Seed: w.r.Plan.Seed, Template: w.hash})
	if err != nil {
		return err
	}
	to, err := decode.OpenAnswers(path, tasks, settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	set, end := w.r.Tools.Progress(what, "prompts")
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
	w, end, err := r.open(ctx)
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
	for n := max(chunk, there); f.Answers == 0; n += chunk {
		began := time.Now()
		tasks, err := w.prompts(ctx, held+n)
		if err != nil {
			return err
		}
		tasks = tasks[held:]
		if err := w.fill(ctx, d, path, tasks, "answer"); err != nil {
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
	tasks, err := w.prompts(ctx, held+f.Answers)
	if err != nil {
		return err
	}
	return r.writeText(ctx, tasks[held:], path)
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
