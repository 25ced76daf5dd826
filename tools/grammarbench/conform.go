package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlclark/regexp2"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"talf/text/grammar"
	"talf/text/grammar/grammartest"
	"talf/text/grammar/schema"
)

// A group is a schema with values that are valid, or not.
type group struct {
	name        string
	values      bool            // of the benchmark
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Tests       []struct {
		Description string          `json:"description"`
		Data        json.RawMessage `json:"data"`
		Valid       bool            `json:"valid"`
	} `json:"tests"`
}

// groups reads a file of the test suite, which is a list, or of the benchmark.
func groups(path string) ([]group, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []group
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		err = json.Unmarshal(raw, &out)
	} else {
		out = []group{{values: true}}
		err = json.Unmarshal(raw, &out[0])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	base := strings.TrimSuffix(filepath.Base(path), ".json")
	for i := range out {
		out[i].Schema = declared(out[i].Schema, path)
		if out[i].name = base; len(out) > 1 || out[i].Description != "" && len(raw) > 0 && raw[0] == '[' {
			out[i].name = base + ": " + out[i].Description
		}
	}
	return out, nil
}

// declared is a schema of the suite with its draft, which the directory says before 2019-09.
func declared(schema json.RawMessage, path string) json.RawMessage {
	for _, draft := range []string{"4", "6", "7"} {
		in := "/draft" + draft + "/"
		if !strings.Contains("/"+filepath.ToSlash(path), in) || bytes.Contains(schema, []byte(`"$schema"`)) {
			continue
		}
		if s := bytes.TrimSpace(schema); len(s) > 2 && s[0] == '{' {
			return append([]byte(`{"$schema":"http://json-schema.org/draft-0`+draft+`/schema#",`), s[1:]...)
		}
	}
	return schema
}

// counts are the outcomes of one kind of schemas.
type counts struct {
	schemas, refused, wrong      int
	values, tight, narrow, loose int
	undecided, strict            int
	random, ended, invalid       int
	compile                      []time.Duration
}

func (c *counts) add(o counts) {
	c.schemas, c.refused, c.wrong = c.schemas+o.schemas, c.refused+o.refused, c.wrong+o.wrong
	c.values, c.tight, c.narrow, c.loose = c.values+o.values, c.tight+o.tight, c.narrow+o.narrow, c.loose+o.loose
	c.undecided, c.strict = c.undecided+o.undecided, c.strict+o.strict
	c.random, c.ended, c.invalid = c.random+o.random, c.ended+o.ended, c.invalid+o.invalid
	c.compile = append(c.compile, o.compile...)
}

// conform compares the grammars of schemas with the values that the schemas come with, and with a
// validator: what it says of random texts of each grammar.
func conform(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("conform", flag.ExitOnError)
	random := flags.Int("random", 20, "random texts of each grammar to validate")
	verbose := flags.Bool("v", false, "print every difference")
	each := flags.Bool("refused", false, "print why each schema is refused")
	narrow := flags.Bool("narrow", false, "take the grammars of answers that ask for nothing else: no properties that are not named, two blanks at most")
	if err := flags.Parse(args); err != nil {
		return err
	}
	files, err := tests(flags.Args())
	if err != nil {
		return fmt.Errorf("conform: %w", err)
	}
	wide := everything
	if *narrow {
		wide = schema.Config{}
	}
	by := map[string]*counts{}
	reasons := map[string]int{}
	var mu sync.Mutex // of both, of stdout and of failed
	var failed error
	one := func(path string) error {
		gs, err := groups(path)
		if err != nil {
			return err
		}
		for _, g := range gs {
			c, refused, diffs := check(&g, wide, *random)
			mu.Lock()
			kind := kindOf(path)
			if by[kind] == nil {
				by[kind] = new(counts)
			}
			by[kind].add(c)
			if refused != nil {
				reasons[reason(refused)]++
				if *each {
					fmt.Fprintf(stdout, "refused %s: %v\n", g.name, refused)
				}
			}
			if *verbose {
				for _, d := range diffs {
					fmt.Fprintf(stdout, "%s: %s\n", g.name, d)
				}
			}
			mu.Unlock()
		}
		return nil
	}
	todo := make(chan string)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for path := range todo {
				if err := one(path); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, path := range files {
		todo <- path
	}
	close(todo)
	workers.Wait()
	if failed != nil {
		return failed
	}
	fmt.Fprintln(stdout, "| schemas | number | supported | refused | with a difference | values | as the suite says | valid, not written | invalid, allowed | undecided | random texts that ended | of them invalid | compiled in, median | 99% | longest |")
	fmt.Fprintln(stdout, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	var all counts
	row := func(name string, c counts) {
		fmt.Fprintf(stdout, "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d of %d | %d | %s | %s | %s |\n", name, c.schemas, c.schemas-c.refused, c.refused, c.wrong,
			c.values, c.tight, c.narrow, c.loose, c.undecided, c.ended, c.random, c.invalid,
			quantile(c.compile, 0.5), quantile(c.compile, 0.99), quantile(c.compile, 1))
	}
	for _, kind := range slices.Sorted(maps.Keys(by)) {
		row(kind, *by[kind])
		all.add(*by[kind])
	}
	row("all", all)
	fmt.Fprintln(stdout, "\n| refused because of | schemas |\n|---|---|")
	for _, why := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		if reasons[a] != reasons[b] {
			return reasons[b] - reasons[a]
		}
		return strings.Compare(a, b)
	}) {
		fmt.Fprintf(stdout, "| %s | %d |\n", why, reasons[why])
	}
	return nil
}

// quantile is a time that a part of the times does not exceed.
func quantile(times []time.Duration, part float64) time.Duration {
	slices.Sort(times)
	return times[min(int(part*float64(len(times))), len(times)-1)].Round(time.Microsecond)
}

// kindOf is the set that a file belongs to: of the benchmark what stands before ---, of the suite the
// directory.
func kindOf(path string) string {
	base := filepath.Base(path)
	if set, _, ok := strings.Cut(base, "---"); ok {
		return set
	}
	for _, set := range []string{"BFCL", "JME"} {
		if strings.HasPrefix(base, set+"_") {
			return set
		}
	}
	return filepath.Base(filepath.Dir(path))
}

var (
	place  = regexp.MustCompile(`^(grammar: |JSON schema: )*(#\S*: )*`)
	detail = regexp.MustCompile(`"(\\.|[^"\\])*"|\d+`)
)

// reason is an error without its place and, unless it names a keyword or a format, its details.
func reason(err error) string {
	text := place.ReplaceAllString(err.Error(), "")
	if strings.HasPrefix(text, "the keyword") || strings.HasPrefix(text, "the format") {
		text, _, _ = strings.Cut(text, ", want")
		return text
	}
	return detail.ReplaceAllString(text, "…")
}

func decodeJSON(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// check compares one schema's grammar with its values and with random texts.
func check(g *group, as schema.Config, random int) (c counts, refused error, diffs []string) {
	c.schemas = 1
	began := time.Now()
	b := grammar.NewBuilder()
	e, err := as.Compile(b, g.Schema)
	var compiled *grammar.Grammar
	if err == nil {
		compiled, err = b.Compile(e)
	}
	c.compile = append(c.compile, time.Since(began))
	nothing := errors.Is(err, grammar.ErrNothing)
	var a *grammar.Automaton
	if err == nil {
		a, err = grammar.NewAutomaton(compiled, grammartest.Bytes())
	}
	if err != nil && !nothing {
		c.refused = 1
		return c, err, nil
	}
	oracle, oracleErr := validator(g.Schema)
	r := &reader{a: a, order: order(g.Schema), exact: bytes.Contains(g.Schema, []byte("draft-04"))}
	for _, t := range g.Tests {
		v, err := decodeJSON(t.Data)
		if err != nil {
			continue // no JSON for this decoder, such as half a surrogate
		}
		c.values++
		valid := t.Valid
		if valid && g.values && oracleErr == nil && validate(oracle, v) != nil {
			// Formats are annotations to some authors of values, and never to us.
			valid = false
			c.strict++
		}
		ok, decided := false, true
		if !nothing {
			ok, decided = r.allows(v)
		}
		switch {
		case !decided:
			c.undecided++
			diffs = append(diffs, "undecided: "+t.Description)
		case ok == valid:
			c.tight++
		case valid:
			c.narrow++
			diffs = append(diffs, fmt.Sprintf("valid, not written: %s %.300s", t.Description, t.Data))
		default:
			c.loose++
			diffs = append(diffs, fmt.Sprintf("INVALID, ALLOWED: %s %.300s", t.Description, t.Data))
		}
	}
	if oracleErr != nil {
		diffs = append(diffs, "the validator: "+oracleErr.Error())
	} else if !nothing {
		rng := rand.New(rand.NewPCG(20, uint64(len(g.Schema))))
		for range random {
			c.random++
			text, ended := walk(a, rng)
			if !ended {
				continue
			}
			c.ended++
			v, err := decodeJSON(text)
			if err == nil {
				err = validate(oracle, v)
			}
			if errors.Is(err, errUndecided) {
				c.undecided++
				continue
			}
			if err != nil {
				c.invalid++
				diffs = append(diffs, fmt.Sprintf("WRITTEN, INVALID: %.300s: %v", text, err))
			}
		}
	}
	if c.narrow+c.loose+c.invalid > 0 {
		c.wrong = 1
	}
	return c, nil, diffs
}

var errUndecided = errors.New("the validator failed")

// validate is an error if v is not valid. The validator does not survive exponents of many digits.
func validate(s *jsonschema.Schema, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errUndecided, p)
		}
	}()
	return s.Validate(v)
}

// validator compiles a schema for the oracle, which follows $schema.
func validator(raw []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	// What the library says of templates is not RFC 6570: it refuses operators.
	c.RegisterFormat(&jsonschema.Format{Name: "uri-template", Validate: func(any) error { return nil }})
	c.UseRegexpEngine(func(expr string) (jsonschema.Regexp, error) {
		re, err := regexp2.Compile(expr, regexp2.ECMAScript|regexp2.Unicode)
		return (*pattern)(re), err
	})
	if err := c.AddResource("file:///schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("file:///schema.json")
}

// A pattern is a regular expression as ECMAScript reads it.
type pattern regexp2.Regexp

func (p *pattern) MatchString(s string) bool {
	ok, err := (*regexp2.Regexp)(p).MatchString(s)
	return ok && err == nil
}

func (p *pattern) String() string { return (*regexp2.Regexp)(p).String() }

// order numbers the names of properties as they stand in a schema.
func order(raw []byte) map[string]int {
	out := map[string]int{}
	d := json.NewDecoder(bytes.NewReader(raw))
	for {
		t, err := d.Token()
		if err != nil {
			return out
		}
		if name, ok := t.(string); ok {
			if _, seen := out[name]; !seen {
				out[name] = len(out)
			}
		}
	}
}

// walk writes a random text. What closes a value is likelier than the rest, so that texts end.
func walk(a *grammar.Automaton, rng *rand.Rand) (text []byte, ended bool) {
	s := a.Start()
	eager := 1 + rng.IntN(6)
	for len(text) < 3000 && !s.Complete() {
		m, err := a.Mask(s)
		if err != nil {
			return text, false
		}
		if s.Accepting() && rng.IntN(2) == 0 {
			return text, true
		}
		c := int32(-1)
		if rng.IntN(eager) > 0 || len(text) > 1000 {
			for _, by := range []int32{'"', '}', ']'} {
				if m.Has(by) {
					c = by
					break
				}
			}
		}
		if c < 0 && rng.IntN(4) > 0 { // mostly plain characters
			for range 20 {
				if by := ' ' + rng.Int32N(95); m.Has(by) {
					c = by
					break
				}
			}
		}
		if c < 0 {
			for c = rng.Int32N(256); !m.Has(c); c = (c + 1) % 256 {
			}
		}
		text, s = append(text, byte(c)), a.Next(s, c)
	}
	return text, s.Accepting()
}

// everything is all that a grammar can write of what is valid.
var everything = schema.Config{Blanks: true, Others: true}
