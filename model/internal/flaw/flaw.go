// Package flaw says what is wrong with numbers of models: logits that are not finite, and weights that a
// type cannot hold.
package flaw

import (
	"fmt"
	"math"

	"talf/compute"
	"talf/model/safetensors"
)

// A NonFiniteError says that a pass made logits from which no token can be chosen: one is NaN or
// +Inf, or all are −Inf.
type NonFiniteError struct {
	Model   string
	Segment int     // of the batch
	Node    int     // node of its tree after which the token would come
	Token   int32   // column of the logits
	Logit   float32 // its value

	// Layer is the first layer whose output, the residual stream, is not finite: −1 for the
	// embedding, the number of layers if all outputs are finite and the final norm or the LM
	// head is what fails, and Unknown if the pass cannot be run again.
	Layer int
	// The row of Layer's output that is not finite is that of this token at this position. It may
	// be another node of the tree.
	At, Position int32
	// Weight is the first weight, in the order of the network, that is not finite, or nil if all
	// are: then numbers grow beyond float32 where Layer says.
	Weight *safetensors.ValueError

	Layers int // of the model
}

// Unknown is the Layer of a NonFiniteError whose pass cannot be run again.
const Unknown = -2

func (e *NonFiniteError) Error() string {
	s := fmt.Sprintf("%s: the logits of node %d are not finite: that of token %d is %v", e.Model, e.Node, e.Token, e.Logit)
	switch {
	case e.Layer == Unknown:
	case e.Layer < 0:
		s += fmt.Sprintf("; the first such numbers are in the embedding of token %d at position %d", e.At, e.Position)
	case e.Layer < e.Layers:
		s += fmt.Sprintf("; the first such numbers are in the output of layer %d for token %d at position %d", e.Layer, e.At, e.Position)
	default:
		s += fmt.Sprintf("; all %d layers have finite outputs, the final norm or the LM head does not", e.Layers)
	}
	if e.Weight != nil {
		return s + ": " + e.Weight.Error()
	}
	return s + "; all weights are finite: numbers grow too large for float32 there, or at an earlier position"
}

// Infinite is the limit of weights that are kept in their own precision.
var Infinite = float32(math.Inf(1))

// Limit returns the smallest magnitude that the elements of a tensor must not have, whose matrices are packed as as.
func Limit(matrix bool, as compute.DType) float32 {
	switch {
	case !matrix:
	case as == compute.BF16 || as == compute.BF16DP:
		return math.Float32frombits(0x7f7f8000) // rounds to infinity
	case as == compute.Q8 || as == compute.Q4:
		return 127*65504 + 0.5 // beyond 127 of the largest scales, which are float16
	}
	return Infinite
}

// Odd returns the first of a row of logits for which no token can be chosen from it, and whether there is none.
func Odd(logits []float32) (at int, x float32, ok bool) {
	for i, x := range logits {
		if x != x || x > math.MaxFloat32 {
			return i, x, false
		}
		ok = ok || x >= -math.MaxFloat32
	}
	return 0, logits[0], ok
}

// Likely reports whether the log probability of the most likely of n tokens shows that all of their logits allow a choice. It has
// a probability of 1/n or more, except if a logit is NaN or +Inf, or all are −Inf: the sum that the probabilities are
// divided by is NaN then, and its logarithm is NaN or large.
func Likely(logp float32, n int) bool { return logp >= -1-float32(math.Log(float64(n))) }
