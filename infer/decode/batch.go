package decode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"talf/infer"
	"talf/internal/jsonl"
	"talf/internal/vfs"
	"talf/text/chat"
)

// An Answer is one line of a file of answers.
type Answer struct {
	Index    int    `json:"index"` // of the prompt in the input, from 0
	Prompt   string `json:"prompt"`
	Text     string `json:"text"`
	Tokens   int    `json:"tokens"`
	Stop     string `json:"stop"`               // why it ended
	Seed     uint64 `json:"seed"`               // of the first turn
	Settings string `json:"settings,omitempty"` // hash of the file's Settings
	// MadeWith are the Settings, in a file's first line.
	MadeWith *Settings      `json:"made_with,omitempty"`
	Stats    *infer.Summary `json:"stats,omitempty"`
	Turns    []Reply        `json:"turns,omitempty"` // if there are several
}

// A Reply is the answer to one turn of a dialogue.
type Reply struct {
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
	Seed   uint64 `json:"seed,omitempty"` // if the answer is sampled
}

// NewAnswer describes the answer of a sequence to a prompt.
func NewAnswer(i int, prompt string, seed uint64, s *infer.Sequence) Answer {
	reason, _ := s.Done()
	sum := s.Stats().Summary()
	return Answer{
		Index: i, Prompt: prompt, Text: s.Text(), Tokens: len(s.Tokens()), Stop: string(reason), Seed: seed, Stats: &sum,
	}
}

// A Task is a prompt of a file.
type Task struct {
	Place string // in the file, for errors
	Key   string // identifies the prompt in the file of answers
	Begin func() *chat.Dialogue
}

// Answers is a file of answers, open for appending.
type Answers struct {
	log      *jsonl.Log
	with     *Settings
	settings string // hash in every line
	done     map[int]bool
}

// OpenAnswers opens or creates a file of answers to tasks. A file of answers to other
// prompts or with other settings is refused.
func OpenAnswers(path string, tasks []Task, with *Settings) (*Answers, error) {
	a := &Answers{with: with, settings: with.Hash(), done: map[int]bool{}}
	log, err := jsonl.Open(path, answersLog(func(line []byte) error {
		var got Answer
		if err := json.Unmarshal(line, &got); err != nil {
			return err
		}
		if then := got.MadeWith; then != nil {
			if d := with.Against(then); d != nil {
				return fmt.Errorf("%w: %s", jsonl.ErrSettings, d.Since("the answers were made"))
			}
		}
		switch {
		case got.Settings != a.settings:
			return jsonl.ErrSettings
		case got.Index < 0 || got.Index >= len(tasks) || got.Prompt != tasks[got.Index].Key:
			return fmt.Errorf("answers a prompt that is not number %d of the input", got.Index)
		}
		a.done[got.Index] = true
		return nil
	}))
	if err != nil {
		return nil, err
	}
	a.log = log
	return a, nil
}

// Has reports whether the file has an answer to task i.
func (a *Answers) Has(i int) bool { return a.done[i] }

// Len returns the number of answers.
func (a *Answers) Len() int { return len(a.done) }

// Add appends an answer and makes it durable.
func (a *Answers) Add(x Answer) error {
	x.Settings = a.settings
	if len(a.done) == 0 {
		x.MadeWith = a.with
	}
	if err := a.log.Append(x); err != nil {
		return err
	}
	a.done[x.Index] = true
	return nil
}

// Close closes the file. Every answer is on disk already.
func (a *Answers) Close() error { return a.log.Close() }

// A Batch says how a file of prompts is answered.
type Batch struct {
	Seed     uint64 // of the run: each prompt's is Seed of it, each turn's TurnSeed of that
	Side     int    // dialogues that are answered side by side; 0 is one
	Stats    bool   // answers include what they cost
	Progress func(done, total int)
	// Skipped is called for every prompt that cannot be answered because it is too long or the
	// chat template refuses it.
	Skipped func(error)
}

// A Report sums up the answers to a file of prompts.
type Report struct {
	Stats    infer.Stats // of the answers made by this call
	Answered int         // by this call
	Skipped  int
	First    error // why the first was skipped
	// Undrafted is why rounds went without drafts, the last such reason; nil if none did.
	Undrafted error
}

// AnswerAll answers the tasks that have no answer yet, each with the text that it would have
// alone. If ctx ends, the answers so far are kept, and a later call continues.
func (d *Decoder) AnswerAll(ctx context.Context, tasks []Task, to *Answers, b Batch) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := run{d: d, tasks: tasks, to: to, b: b, cancel: cancel}
	var others sync.WaitGroup
	for range b.Side - 1 {
		others.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					r.stop(&infer.PanicError{Op: "answer prompts", Value: v, Stack: debug.Stack()})
				}
			}()
			r.answer(ctx)
		})
	}
	r.answer(ctx)
	others.Wait()
	if r.err == nil {
		b.Progress(to.Len(), len(tasks))
	}
	return r.report, r.err
}

// A run is what the goroutines of AnswerAll share.
type run struct {
	d      *Decoder
	tasks  []Task
	b      Batch
	cancel context.CancelFunc

	mu     sync.Mutex
	to     *Answers
	next   int // of tasks
	report Report
	err    error // why no more tasks are begun
}

// answer answers one task after the other.
func (r *run) answer(ctx context.Context) {
	for {
		i, ok := r.begin()
		if !ok {
			return
		}
		ans, cost, err := r.d.answerTurns(ctx, i, r.tasks[i], Seed(r.b.Seed, i))
		r.end(ctx, i, ans, cost, err)
	}
}

// begin returns the next task without an answer.
func (r *run) begin() (i int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.next < len(r.tasks) && r.to.Has(r.next) {
		r.next++
	}
	if r.err != nil || r.next == len(r.tasks) {
		return 0, false
	}
	r.b.Progress(r.to.Len(), len(r.tasks))
	r.next++
	return r.next - 1, true
}

// end keeps the answer to a task.
func (r *run) end(ctx context.Context, i int, ans Answer, cost *turns, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	place := r.tasks[i].Place
	if errors.Is(err, ErrLongPrompt) || errors.Is(err, chat.ErrRefused) && ctx.Err() == nil { // the others get answers all the same
		err = fmt.Errorf("%s was not answered: %w", place, err)
		if r.report.Skipped++; r.report.First == nil {
			r.report.First = err
		}
		r.b.Skipped(err)
		return
	}
	if err == nil {
		if !r.b.Stats {
			ans.Stats = nil
		}
		err = r.to.Add(ans)
	} else {
		err = fmt.Errorf("prompt %d, %s: %w", i, place, err)
	}
	if err != nil {
		r.fail(err)
		return
	}
	r.report.Stats.Add(&cost.stats)
	r.report.Answered++
	if cost.undrafted != nil {
		r.report.Undrafted = cost.undrafted
	}
}

// stop begins no more tasks and cancels those that were begun.
func (r *run) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(err)
}

func (r *run) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.cancel()
}

// turns are what the turns of a dialogue cost.
type turns struct {
	stats     infer.Stats
	undrafted error
}

// answerTurns answers a dialogue turn by turn; each answer is part of the next turn's
// prompt. Turns have seeds of their own, derived from the dialogue's.
func (d *Decoder) answerTurns(ctx context.Context, i int, t Task, seed uint64) (Answer, *turns, error) {
	cost := new(turns)
	var ans Answer
	var replies []Reply
	for talk := t.Begin(); talk.Ask(); {
		p, err := talk.Prompt(ctx)
		if err != nil {
			return ans, cost, err
		}
		own := TurnSeed(seed, len(replies))
		s, err := d.Answer(ctx, p, own, nil)
		if err != nil {
			return ans, cost, err
		}
		cost.stats.Add(s.Stats())
		if err := s.Undrafted(); err != nil {
			cost.undrafted = err
		}
		ans = NewAnswer(i, t.Key, seed, s)
		if d.c.Options.Sample.Temperature == 0 {
			own = 0 // nothing was drawn
		}
		replies = append(replies, Reply{talk.Asked(), s.Text(), own})
		talk.Answer(s.Text())
	}
	if len(replies) > 1 { // otherwise the answer has it all
		ans.Turns = replies
	}
	sum := cost.stats.Summary()
	ans.Tokens, ans.Stats = cost.stats.Tokens, &sum
	return ans, cost, nil
}

// ReadAnswers calls f for every answer of a file that AnswerAll wrote, in the order in which they were made.
func ReadAnswers(path string, f func(*Answer)) error {
	in, err := vfs.OpenRead(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	c := answersLog(func(line []byte) error {
		var a Answer
		if err := json.Unmarshal(line, &a); err != nil {
			return err
		}
		f(&a)
		return nil
	})
	if _, err := c.Read(in); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// answersLog is the format of a file of answers.
func answersLog(line func([]byte) error) jsonl.Config {
	return jsonl.Config{Kind: "a file that generate wrote", Start: `{"index":`, Sync: true, Line: line}
}
