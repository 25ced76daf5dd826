// Package report writes one page of HTML about runs: training, comparisons of methods,
// evaluations and traces, several of them side by side. The page is a single file
// without scripts that asks nobody for anything.
package report

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"talf/checkpoints"
	"talf/infer/bench"
	"talf/infer/bench/heads"
	"talf/infer/bench/rig"
	"talf/infer/trace"
	"talf/internal/cli"
	"talf/internal/ijson"
	"talf/internal/limits"
	"talf/internal/vfs"
	"talf/model/identity"
	"talf/train"
)

// A Run is what one argument of the command holds.
type Run struct {
	Name string

	Training []Training
	Benches  []Bench
	Evals    []Eval
	Traces   []Trace
	Files    []File
}

// A Training is the log of a training run.
type Training struct {
	Name     string
	Steps    []train.Progress
	Settings []Setting
}

// A Bench is a comparison of methods.
type Bench struct {
	Name   string
	Report *rig.Report
	// Settings identify what a log's measurements were made with.
	Settings []Setting
}

// An Eval is an evaluation of draft heads.
type Eval struct {
	Name   string
	Report *heads.Report
}

// A Trace is the rounds of a sequence.
type Trace struct {
	Name   string
	Header trace.Header
	Steps  []trace.Step
}

// A Setting is a line of what a run was made with.
type Setting struct{ Name, Value string }

// A File is a file that the page was made of.
type File struct {
	Path, Kind string
	Bytes      int64
	SHA256     string
}

// The most runs and files of a page, and rounds of a trace.
const (
	MostRuns  = 24
	mostFiles = 200
	mostSteps = 20000
)

// errUnknown says that a file is none that a page shows.
var errUnknown = errors.New("want a training run, a log of bench, the JSON of bench or eval, a trace, or a directory with some of them")

// ReadAll reads runs given as PATH or NAME=PATH.
func ReadAll(args []string) (runs []*Run, err error) {
	names, err := rig.ParseNames("RUN", "PATH", args)
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	for _, n := range names {
		r, err := Read(n.Name, n.Path)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// Read reads a run: a file of results, a directory of checkpoints, or a directory that holds such
// files and directories.
func Read(name, path string) (*Run, error) {
	r := &Run{Name: name}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		if err := r.file(path, ""); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return r, nil
	}
	if err := r.directory(path, ""); err != nil {
		return nil, err
	}
	if len(r.Files) > 0 {
		return r, nil
	}
	entries, err := vfs.List(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		at := filepath.Join(path, e.Name())
		if e.IsDir() {
			err = r.directory(at, e.Name())
		} else if ext := filepath.Ext(e.Name()); ext == ".json" || ext == ".jsonl" {
			if err = r.file(at, strings.TrimSuffix(e.Name(), ext)); errors.Is(err, errUnknown) {
				err = nil // a directory of results holds other files too
			} else if err != nil {
				err = fmt.Errorf("%s: %w", at, err)
			}
		}
		if err != nil {
			return nil, err
		}
		if len(r.Files) > mostFiles {
			return nil, fmt.Errorf("%s: more than %d files of results", path, mostFiles)
		}
	}
	if len(r.Files) == 0 {
		return nil, fmt.Errorf("%s: nothing to show: %w", path, errUnknown)
	}
	return r, nil
}

// directory reads the training run of a directory, if it has one.
func (r *Run) directory(dir, name string) error {
	log := filepath.Join(dir, train.MetricsFile)
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	before := len(r.Training)
	if err := r.file(log, name); err != nil {
		return fmt.Errorf("%s: %w", log, err)
	}
	if len(r.Training) == before {
		return fmt.Errorf("%s: a %s, want a log of training", log, r.Files[len(r.Files)-1].Kind)
	}
	t := &r.Training[before]
	last, err := checkpoints.Find(dir)
	if err != nil {
		return nil // nothing is saved yet: the log alone
	}
	m, err := checkpoints.ReadManifest(last)
	if err != nil {
		return fmt.Errorf("%s: %w", last, err)
	}
	t.Settings = append(t.Settings, Setting{"checkpoint", filepath.Base(last)}, Setting{"step", fmt.Sprint(m.Step)})
	var state struct {
		Config map[string]json.RawMessage `json:"config"`
	}
	raw, err := limits.ReadFile(filepath.Join(last, checkpoints.StateFile), limits.ConfigBytes)
	if err == nil && json.Unmarshal(raw, &state) == nil {
		t.Settings = append(t.Settings, settings(state.Config)...)
	}
	if m.Data != "" {
		t.Settings = append(t.Settings, Setting{"labels", m.Data})
	}
	if m.Model != nil {
		t.Settings = append(t.Settings, Setting{"tensors of the target", m.Model.Tensors})
	}
	for _, n := range sorted(m.Files) {
		f := m.Files[n]
		r.Files = append(r.Files, File{filepath.Join(last, n), "checkpoint, by its manifest", f.Bytes, f.SHA256})
	}
	return nil
}

// settings lays out the fields of a configuration by name.
func settings(fields map[string]json.RawMessage) (out []Setting) {
	for _, n := range sorted(fields) {
		if v := string(fields[n]); v != "null" && v != `""` {
			out = append(out, Setting{n, strings.Trim(v, `"`)})
		}
	}
	return out
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// file reads one file of results by what it begins with.
func (r *Run) file(path, name string) error {
	f, err := limits.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	sum := sha256.New()
	count := &counter{}
	in := bufio.NewReaderSize(io.TeeReader(limits.Reader(f, limits.ResultBytes, "results"), io.MultiWriter(sum, count)), 64<<10)
	begin, err := in.Peek(64)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	kind := ""
	switch {
	case bytes.HasPrefix(begin, []byte(`{"talf_trace"`)):
		kind, err = "trace", r.trace(in, name)
	case bytes.HasPrefix(begin, []byte(`{"format":"talf-bench-`)):
		kind, err = "log of bench", r.log(in, name)
	case bytes.HasPrefix(begin, []byte(`{"step":`)):
		kind, err = "log of training", r.metrics(in, name)
	case bytes.HasPrefix(bytes.TrimLeft(begin, " \t\r\n"), []byte("{")):
		kind, err = r.result(in, name)
	default:
		return errUnknown
	}
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	r.Files = append(r.Files, File{path, kind, count.n, hex.EncodeToString(sum.Sum(nil))})
	return nil
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func (r *Run) metrics(in io.Reader, name string) error {
	all, err := train.ParseMetrics(in)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no step was made yet")
	}
	r.Training = append(r.Training, Training{Name: name, Steps: all})
	return nil
}

func (r *Run) trace(in io.Reader, name string) error {
	t := Trace{Name: name}
	var err error
	t.Header, err = trace.Read(in, func(s *trace.Step) error {
		if len(t.Steps) == mostSteps {
			return fmt.Errorf("more than %d rounds", mostSteps)
		}
		t.Steps = append(t.Steps, *s)
		return nil
	})
	if err != nil {
		return err
	}
	if len(t.Steps) == 0 {
		return errors.New("the trace has no round")
	}
	r.Traces = append(r.Traces, t)
	return nil
}

func (r *Run) log(in io.Reader, name string) error {
	got, made, err := bench.ReadLog(in)
	if err != nil {
		return err
	}
	if len(got) == 0 {
		return errors.New("the log has no measurement")
	}
	report, err := bench.Recount(got)
	if err != nil {
		return err
	}
	b := Bench{Name: name, Report: &rig.Report{Report: report, Device: "from a log"}}
	if made != nil {
		b.Settings = append(function("target", made.Function), settings(made.Rest)...)
		for _, d := range made.Drafts {
			b.Settings = append(b.Settings, function("draft model "+d.Name, d.Function)...)
		}
	}
	r.Benches = append(r.Benches, b)
	return nil
}

// function says what a model computes.
func function(name string, f *identity.Function) []Setting {
	if f == nil {
		return nil
	}
	return []Setting{
		{name + ", tensors", f.Tensors}, {name + ", types", strings.Trim(f.Weights+" weights, "+f.KV+" keys and values, "+f.Arithmetic, " ,")},
	}
}

// result reads a JSON document that a command wrote with --out.
func (r *Run) result(in io.Reader, name string) (kind string, err error) {
	d := json.NewDecoder(in)
	var raw json.RawMessage
	switch err := d.Decode(&raw); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "", errors.New("the JSON is cut short")
	case err != nil:
		return "", fmt.Errorf("not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", errUnknown // lines of something else
	}
	var has map[string]json.RawMessage
	if err := ijson.Unmarshal(raw, &has); err != nil {
		return "", errUnknown
	}
	all := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { _, ok := has[n]; return !ok })
	}
	switch {
	case all("rows", "sets", "prompts", "max_tokens", "seeds"):
		var p rig.Report
		if err := json.Unmarshal(raw, &p); err != nil {
			return "", err
		}
		if p.Report == nil || len(p.Rows) == 0 {
			return "", errors.New("rows: want at least one")
		}
		r.Benches = append(r.Benches, Bench{Name: name, Report: &p})
		return "comparison of methods", nil
	case all("name", "doc", "bootstrap"):
		e, err := heads.ReadReport(raw)
		if err != nil {
			return "", err
		}
		r.Evals = append(r.Evals, Eval{name, e})
		return "evaluation", nil
	}
	return "", errUnknown
}
