// Package plan reads what a run learns from and how long it takes from a user's words.
package plan

import (
	"fmt"
	"log/slog"
	"strings"

	"talf/data"
	"talf/train"
	"talf/train/mix"
)

// A Head says what a draft head learns from and how long.
type Head struct {
	Data []string // of mix.ParseShare
	// Label, if not nil, labels Data, which are texts, while the run reads them, with the states
	// before the layers taps (nil: the last hidden states).
	Label  func(taps []int) (*data.Set, error)
	Vocab  string   // of mix.Vocab
	Epochs float64  // 0: Config.Steps
	Stages []string // of train.ParseStage; none: Config.Loss for Config.Steps
}

// Open opens the data and completes the configuration and the job with it. What may
// surprise the user goes to log. The caller closes job.Data, which is open also if the
// rest of the plan is wrong.
func (p *Head) Open(cfg *train.Config, job *train.HeadJob, log *slog.Logger) (err error) {
	if job.Data, err = p.data(*cfg, job); err != nil {
		return err
	}
	for _, s := range job.Data {
		if !s.Set.Complete() && !strings.HasSuffix(s.Dir, ".parquet") {
			log.Warn("preprocess has not finished: training on what is there", "data", s.Dir)
		}
	}
	tokens := job.Data.Tokens()
	if job.Linear { // which shows nothing for as long as it takes
		log.Info("linear start of a new run, in seconds or minutes", "regression_over_tokens", tokens)
	}
	if p.Epochs > 0 {
		cfg.Steps = cfg.EpochSteps(p.Epochs, tokens)
	}
	for _, text := range p.Stages {
		s, err := train.ParseStage(text, *cfg)
		if err != nil {
			return err
		}
		cfg.Stages = append(cfg.Stages, s.In(*cfg, tokens))
	}
	vocab, share, err := mix.Vocab(p.Vocab, job.Data, cfg.Held)
	if err != nil {
		return err
	}
	if job.Vocab = vocab; vocab != nil {
		log.Info("draft vocabulary", "tokens", len(vocab), "share_of_text", fmt.Sprintf("%.2f%%", 100*share))
	}
	return nil
}

// data opens the sets, or makes one of the texts.
func (p *Head) data(cfg train.Config, job *train.HeadJob) (mix.Shares, error) {
	if p.Label == nil {
		return mix.Open(p.Data)
	}
	for _, text := range p.Stages { // a loss may decide the network
		s, err := train.ParseStage(text, cfg)
		if err != nil {
			return nil, err
		}
		cfg.Stages = append(cfg.Stages, s.In(cfg, 1))
	}
	_, taps, err := train.Shape(cfg, *job)
	if err != nil {
		return nil, err
	}
	set, err := p.Label(taps)
	if err != nil {
		return nil, err
	}
	return mix.Only(set), nil
}
