// Package stages runs jobs of several stages that are interrupted and run again: a stage that is done is not
// repeated. What a stage does on its own to continue in its middle is its own affair.
package stages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"talf/internal/durable"
)

// ErrPlan is wrapped by the error of a record that was begun with another plan.
var ErrPlan = errors.New("begun with another plan")

// A Stage is a step of a job. If it was interrupted, it continues where it stopped when it is run again, or
// starts over.
type Stage struct {
	Name, Doc string
	Run       func(context.Context) error
}

// Show shows the progress of a job.
type Show interface {
	// Begin is called when stage i of n begins, counted from 1; End is called when it is done. If End
	// returns an error, the job stops there.
	Begin(i, n int, doc string)
	End(took time.Duration) error
}

// A Record is the contents of a job's file: what it does, how far it has come, and what its stages found.
type Record[P, R any] struct {
	Plan   P        `json:"plan"`
	Done   []string `json:"done"` // names of finished stages
	Result R        `json:"result"`
	file   string
}

// Open reads the record in file, or begins one. The plan of a record without a finished stage may be another: a
// mistake in a job's first words binds nobody.
func Open[P, R any](file string, plan P) (*Record[P, R], error) {
	r := &Record[P, R]{file: file}
	found, err := durable.ReadJSON(file, r)
	if err != nil {
		return nil, err
	}
	if found && len(r.Done) > 0 && !same(r.Plan, plan) {
		return nil, fmt.Errorf("%s: %w", file, ErrPlan)
	}
	r.Plan = plan
	return r, r.Save()
}

// Save writes the record. A stage calls it to keep a part of its result; Run does at the end of every stage.
func (r *Record[P, R]) Save() error { return durable.WriteJSON(r.file, r) }

// Run executes the stages that are not done.
func (r *Record[P, R]) Run(ctx context.Context, all []Stage, show Show) error {
	for i, s := range all {
		if slices.Contains(r.Done, s.Name) {
			continue
		}
		show.Begin(i+1, len(all), s.Doc)
		begun := time.Now()
		if err := s.Run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.Doc, err)
		}
		r.Done = append(r.Done, s.Name)
		if err := r.Save(); err != nil {
			return err
		}
		if err := show.End(time.Since(begun)); err != nil {
			return err
		}
	}
	return nil
}

// same compares what is written.
func same(a, b any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}
