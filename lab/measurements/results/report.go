// Package results reads what talf bench measured, adds it up over heads and seeds, and compares it.
package results

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// A Report is what talf bench writes, as far as the tables show it.
type Report struct {
	Prompts   int    `json:"prompts"`
	Warmup    int    `json:"warmup"`
	MaxTokens int    `json:"max_tokens"`
	Repeat    int    `json:"repeat"`
	Device    string `json:"device"`
	Rows      []Row  `json:"rows"`
	// Compared are the speeds end to end relative to the fastest method of a temperature.
	Compared []struct {
		Method, Against string
		Temperature     float64
		Ratio           Interval
	} `json:"compared_with_fastest"`
	// ByRank are heads on their own ranked tokens, if that was asked for.
	ByRank []RankLine `json:"heads_by_rank"`
}

type Row struct {
	Method      string   `json:"method"`
	Spec        string   `json:"spec"`
	Source      string   `json:"source"`
	Set         string   `json:"set"`
	Temperature float64  `json:"temperature"`
	Tau         float64  `json:"tau_pooled"`
	TauOf       Interval `json:"tau_interval"`
	Speed       mean     `json:"tokens_per_second"`
	EndToEnd    Interval `json:"speedup_end_to_end"`
	EndMean     mean     `json:"speedup_end_to_end_mean"` // of the prompts' own ratios
	Decoding    Interval `json:"speedup_decoding"`
	DecodeMean  mean     `json:"speedup"`
	Slowest     float64  `json:"speedup_min"`
	Equal       int      `json:"equal_outputs"`
	Compared    int      `json:"compared_outputs"`
	ByPrompt    []struct {
		Prompt         string  `json:"prompt"`
		MedianEnd      float64 `json:"end_to_end_median"` // over repetitions
		MedianDecoding float64 `json:"decoding_median"`
		// Decodings are relative to plain decoding of the same repetition.
		Decodings []float64 `json:"decoding_by_repetition"`
	} `json:"by_prompt"`
	// Hindsight compares with the other methods of the run that ask the same draft model or none.
	Hindsight *struct {
		Each, One Interval
		Best      string
	}
}

type mean struct{ Mean, Std float64 }

func (m mean) String() string { return fmt.Sprintf("%.2f ± %.2f", m.Mean, m.Std) }

// cold says whether a method that learns began every answer anew.
func (r *Row) cold() bool { return strings.Contains(r.Method, "cold") }

// datastoreFile is how a specification names the datastore of rest.
var datastoreFile = regexp.MustCompile(`^rest:file=[^,]*`)

// Label is the method and what it asks, as the first two cells of a row.
func (r *Row) Label() []string {
	asks := map[string]string{"": "–", "talf": "head", "lm": "LM"}[r.Source]
	spec := "`" + datastoreFile.ReplaceAllString(r.Spec, "rest:FILE") + "`"
	if r.cold() {
		spec += " cold"
	}
	return []string{spec, asks}
}

type Interval struct{ Value, Low, High float64 }

func (i Interval) String() string { return fmt.Sprintf("%.2f [%.2f, %.2f]", i.Value, i.Low, i.High) }

// Of returns the row of the same method, source and temperature over another set.
func (r *Report) Of(x *Row, set string) (*Row, error) {
	for i := range r.Rows {
		y := &r.Rows[i]
		if y.Method == x.Method && y.Source == x.Source && y.Temperature == x.Temperature && y.Set == set {
			return y, nil
		}
	}
	return nil, fmt.Errorf("%s: no figures of the set %q", x.Method, set)
}

// Fastest is the method of a temperature that is the fastest end to end, and those that were not told
// apart from it, as a sentence.
func (r *Report) Fastest(temperature float64) (string, error) {
	against := ""
	var near []string
	for _, c := range r.Compared {
		if c.Temperature != temperature {
			continue
		}
		against = c.Against
		if c.Ratio.High >= 1 {
			name, err := r.called(c.Method, temperature)
			if err != nil {
				return "", err
			}
			near = append(near, name+" at "+c.Ratio.String())
		}
	}
	if against == "" {
		return "", fmt.Errorf("nothing is compared with the fastest at temperature %g", temperature)
	}
	name, err := r.called(against, temperature)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("At temperature %g, the fastest end to end is %s; ", temperature, name)
	if len(near) == 0 {
		return text + "no other method's interval of the ratio to it holds 1.\n", nil
	}
	return text + "not told apart from it, with their speeds relative to it: " + strings.Join(near, "; ") + ".\n", nil
}

// called is a method by its title, as a sentence says it.
func (r *Report) called(title string, temperature float64) (string, error) {
	for i := range r.Rows {
		if x := &r.Rows[i]; x.Method == title && x.Temperature == temperature && x.Set == "" {
			label := x.Label()
			if label[1] == "–" {
				return label[0], nil
			}
			return label[0] + " (" + label[1] + ")", nil
		}
	}
	return "", fmt.Errorf("no row %q at temperature %g", title, temperature)
}

// OfFastest returns a method's speed end to end relative to the fastest.
func (r *Report) OfFastest(x *Row) string {
	for _, c := range r.Compared {
		if c.Method == x.Method && c.Temperature == x.Temperature {
			return c.Ratio.String()
		}
	}
	return "1.00"
}

// Read reads a report. Greedy outputs that are not those of plain decoding are an error.
func Read(name string) (*Report, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for i := range r.Rows {
		if x := &r.Rows[i]; x.Temperature == 0 && (x.Equal != x.Compared || x.Compared == 0) {
			return nil, fmt.Errorf("%s: %s: %d of %d outputs are those of plain decoding", name, x.Method, x.Equal, x.Compared)
		}
	}
	return r, nil
}
