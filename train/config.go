// Package train fits draft heads to a target's trees and labels, and small language models to
// text. Gorgonia builds the gradients over fused operations (train/internal/gg). Losses are in
// train/loss, the choice of data in train/mix, the ranks of one run in train/dist.
//
// A run is a function of its configuration and data. No bit of the result depends on the number
// of threads, or on where the run was stopped: started again, it continues from its last
// checkpoint.
package train

import (
	"fmt"
	"math"
	"strings"

	"talf/compute"
	"talf/train/net"
)

// A Config says how a run learns. It is stored with every checkpoint, and a run continues
// only with the configuration that it was started with, but that its last stage may be longer.
type Config struct {
	Steps int `json:"steps"` // optimiser steps
	Rows  int `json:"rows"`  // positions of a micro-batch, into which whole sequences are packed; longer ones are cut
	Accum int `json:"accum"` // micro-batches of a step

	Loss string `json:"loss"` // of a head: see train/loss
	// Network is the kind of a head, see net.ParseNetwork. "" is that of the head that the run starts from or that
	// a stage's loss implies, else EAGLE-1/2's.
	Network string `json:"network,omitempty"`
	// Layers of a head, and whether its fc has a bias. EAGLE's head has one layer; systems
	// differ on the bias (docs/formats.md).
	Layers int  `json:"layers"`
	FCBias bool `json:"fc_bias,omitempty"`
	// DType is F32 or BF16. With BF16, activations that wait for the backward pass and the
	// target's LM head are kept in bfloat16. Weights, moments, gradients and all sums are
	// float32 either way, and so are checkpoints.
	DType string `json:"dtype,omitempty"`
	// Stages, if there are any, run one after another, in place of Loss, Steps, LR, MinLR
	// and Warmup.
	Stages []Stage `json:"stages,omitempty"`
	// Patience ends a stage after this many evaluations without a better one; 0: never.
	Patience int `json:"patience,omitempty"`

	Noise float64 `json:"noise"` // width of uniform noise on a head's input features, divided by length/512; EAGLE's script: 0.2

	LR     float64 `json:"lr"`
	MinLR  float64 `json:"min_lr"` // fraction of LR that the cosine ends at
	Warmup int     `json:"warmup"` // steps of linear warm-up
	Beta1  float64 `json:"beta1"`
	Beta2  float64 `json:"beta2"`
	Eps    float64 `json:"eps"`
	Decay  float64 `json:"decay"` // decoupled weight decay, on all weights
	Clip   float64 `json:"clip"`  // largest global gradient norm; 0: no clipping

	Held     float64 `json:"held"`      // fraction of the sequences held out for evaluation
	EvalSeqs int     `json:"eval_seqs"` // most sequences of an evaluation; 0: all held-out ones
	Seed     uint64  `json:"seed"`      // of weights, order and noise

	EvalEvery int `json:"-"` // steps between evaluations; 0: at the end only
	SaveEvery int `json:"-"` // steps between checkpoints; 0: at the end only
	Keep      int `json:"-"` // checkpoints to keep; 0: all
}

// The values of Config.DType.
const (
	F32  = "" // the default
	BF16 = "bf16"
)

// lmHead returns the type in which the target's LM head is kept.
func (c Config) lmHead() compute.DType {
	if c.DType == BF16 {
		return compute.BF16
	}
	return compute.F32
}

// A Stage is a part of a run with its own loss and schedule. It starts from the weights of
// the stage before as a new run would: with new moments, at the start of the data.
type Stage struct {
	Loss   string  `json:"loss"`
	Steps  int     `json:"steps"`
	LR     float64 `json:"lr"`
	MinLR  float64 `json:"min_lr"`
	Warmup int     `json:"warmup"`
}

// Plan returns the stages of a run.
func (c Config) Plan() []Stage {
	if len(c.Stages) > 0 {
		return c.Stages
	}
	return []Stage{{Loss: c.Loss, Steps: c.Steps, LR: c.LR, MinLR: c.MinLR, Warmup: c.Warmup}}
}

// Default returns the configuration of the papers for one head on a CPU.
func Default() Config {
	return Config{
		Steps: 1000, Rows: 1024, Accum: 1,
		Loss: "talf", Layers: 1,
		LR: 3e-4, Warmup: 50, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.01, Clip: 1,
		Held: 0.05, EvalSeqs: 64, Seed: 1,
		EvalEvery: 200, SaveEvery: 200, Keep: 3,
	}
}

// Validate reports the first field whose value is not allowed.
func (c Config) Validate() error {
	for _, f := range []struct {
		name     string
		v        int
		min, max int
	}{
		{"steps", c.Steps, 1, 1 << 30},
		{"rows", c.Rows, 1, 1 << 20},
		{"accum", c.Accum, 1, 1 << 16},
		{"layers", c.Layers, 1, 64},
		{"warmup", c.Warmup, 0, 1 << 30},
		{"eval-seqs", c.EvalSeqs, 0, 1 << 30},
		{"eval-every", c.EvalEvery, 0, 1 << 30},
		{"save-every", c.SaveEvery, 0, 1 << 30},
		{"keep", c.Keep, 0, 1 << 30},
		{"patience", c.Patience, 0, 1 << 30},
	} {
		if f.v < f.min || f.v > f.max {
			return fmt.Errorf("train: %s is %d, want %d to %d", f.name, f.v, f.min, f.max)
		}
	}
	for _, f := range []struct {
		name   string
		v, max float64
	}{
		{"noise", c.Noise, 100},
		{"lr", c.LR, 10},
		{"min-lr", c.MinLR, 1},
		{"beta1", c.Beta1, 0.999999},
		{"beta2", c.Beta2, 0.999999},
		{"eps", c.Eps, 1},
		{"weight-decay", c.Decay, 10},
		{"clip", c.Clip, 1e9},
		{"held-out", c.Held, 0.999},
	} {
		if !(f.v >= 0 && f.v <= f.max) { // NaN fails too
			return fmt.Errorf("train: %s is %v, want 0 to %v", f.name, f.v, f.max)
		}
	}
	if _, err := net.ParseNetwork(c.Network); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	switch {
	case c.DType != F32 && c.DType != BF16:
		return fmt.Errorf("train: dtype is %q, want %q or %q (float32)", c.DType, BF16, F32)
	case c.Patience > 0 && c.EvalEvery == 0:
		return fmt.Errorf("train: patience is %d, but eval-every is 0: nothing is evaluated before a stage ends", c.Patience)
	case c.Patience > 0 && c.Held == 0:
		return fmt.Errorf("train: patience is %d, but held-out is 0: nothing is evaluated", c.Patience)
	}
	for i, s := range c.Stages {
		one := c
		one.Stages, one.Loss, one.Steps, one.LR, one.MinLR, one.Warmup = nil, s.Loss, s.Steps, s.LR, s.MinLR, s.Warmup
		if err := one.Validate(); err != nil {
			return fmt.Errorf("train: stage %d: %s", i+1, strings.TrimPrefix(err.Error(), "train: "))
		}
	}
	return nil
}

// Rate returns the learning rate of a step of the stage, counted from 1: linear warm-up,
// then a cosine down to MinLR·LR at the last step.
func (s Stage) Rate(step int) float64 {
	if step <= s.Warmup {
		return s.LR * float64(step) / float64(s.Warmup)
	}
	at := float64(step-s.Warmup) / float64(max(1, s.Steps-s.Warmup))
	return s.LR * (s.MinLR + (1-s.MinLR)*0.5*(1+math.Cos(math.Pi*min(at, 1))))
}
