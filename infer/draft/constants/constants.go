// Package constants holds the constants of draft methods that were fitted to data, where theory and
// publications give none: on the tuning part of prompts alone, as fitted.json says;
// docs/methods.md lists them with the others.
package constants

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// A Set is a value for every fitted constant.
type Set struct {
	Fuse Fuse `json:"fuse"`
	// Recycle and Sequoia are how often the next token is the r-th of a row, from the first on: of
	// Token Recycling's table, and of a draft model.
	Recycle []float64 `json:"recycle_accept"`
	Sequoia []float64 `json:"sequoia_accept"`
}

// Fuse are the constants of fuse's search and of its calibration.
type Fuse struct {
	Th      float64 `json:"th"`      // stop asking the draft model when the probability that no child covers sums to less
	Shrink  float64 `json:"shrink"`  // trials that a source's own estimate counts as
	Memory  float64 `json:"memory"`  // trials after which old ones fade
	Rate    float64 `json:"rate"`    // by which the mixing weights and biases learn
	Agree   float64 `json:"agree"`   // log odds that are added at first where several sources agree
	Dissent float64 `json:"dissent"` // and subtracted for every source that knows the place but proposes something else
}

// Validate checks the ranges.
func (s *Set) Validate() error {
	var errs []error
	f := s.Fuse
	check := func(name string, x, least, most float64) {
		if !(x >= least && x <= most) {
			errs = append(errs, fmt.Errorf("constants: %s is %v, want %v..%v", name, x, least, most))
		}
	}
	check("fuse.th", f.Th, 0, 0.999)
	check("fuse.shrink", f.Shrink, 1e-3, 1e6)
	check("fuse.memory", f.Memory, 2, 1e6)
	check("fuse.rate", f.Rate, 0, 1)
	check("fuse.agree", f.Agree, -10, 10)
	check("fuse.dissent", f.Dissent, -10, 10)
	for name, list := range map[string][]float64{"recycle_accept": s.Recycle, "sequoia_accept": s.Sequoia} {
		if len(list) == 0 {
			errs = append(errs, fmt.Errorf("constants: %s is empty", name))
		}
		sum := 0.0
		for i, x := range list {
			check(fmt.Sprintf("%s[%d]", name, i), x, 0, 1)
			sum += x
		}
		check("the sum of "+name, sum, 0, 1)
	}
	return errors.Join(errs...)
}

// A Record is a fit: its values, and what they were fitted on.
type Record struct {
	Command string `json:"command"`
	Date    string `json:"date"`
	Prompts int    `json:"prompts"`
	Part    string `json:"part"`  // of the prompts
	Texts   string `json:"texts"` // SHA-256 of the answers' tokens
	Costs   string `json:"costs"` // SHA-256 of the cost curves
	Values  Set    `json:"values"`
}

//go:embed fitted.json
var fitted []byte

// Fit returns the record that fitted.json holds.
var Fit = sync.OnceValue(func() *Record {
	r := new(Record)
	if err := json.Unmarshal(fitted, r); err != nil {
		panic(fmt.Sprintf("constants: fitted.json: %v", err)) // a test reads it too
	}
	return r
})

// Fitted returns the values in use. They must not be changed.
func Fitted() *Set { return &Fit().Values }

// List returns probabilities as specifications give them, such as 0.5/0.2.
func List(all []float64) string {
	var words []string
	for _, x := range all {
		words = append(words, strconv.FormatFloat(x, 'g', -1, 64))
	}
	return strings.Join(words, "/")
}
