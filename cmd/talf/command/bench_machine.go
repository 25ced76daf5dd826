package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/infer/bench"
	"talf/model"
	"talf/model/synth"
)

// A machineReport is the result of bench decode or bench kernels.
type machineReport struct {
	Machine string            `json:"machine"`
	Device  string            `json:"device,omitempty"`
	Date    string            `json:"date"`
	Version buildVersion      `json:"version"`
	Passes  []bench.PassRow   `json:"passes,omitempty"`
	Kernels []bench.KernelRow `json:"kernels,omitempty"`

	Perplexity []bench.Perplexity `json:"perplexity,omitempty"`
}

func newMachineReport() machineReport {
	return machineReport{Machine: cpuName(), Date: time.Now().UTC().Format(time.DateOnly), Version: readVersion()}
}

// printing are the flags that say what becomes of a report.
type printing struct {
	out            string
	json, markdown bool
}

func (p *printing) flags(f *pflag.FlagSet) {
	f.StringVar(&p.out, "out", "", "JSON file for the results")
	f.BoolVar(&p.json, "json", false, "print JSON")
	f.BoolVar(&p.markdown, "markdown", false, "print a Markdown table")
}

func (p *printing) check() error {
	if p.json && p.markdown {
		return usagef("--json and --markdown exclude each other")
	}
	return canWrite(p.out)
}

// print writes r as asked; table prints it for people.
func (p *printing) print(a *app, r any, table func(markdown bool) error) error {
	var err error
	if p.out != "" {
		err = writeJSON(p.out, r)
	}
	// What was measured for hours is printed although it could not be written.
	if p.json {
		return errors.Join(err, a.printJSON(r))
	}
	return errors.Join(err, table(p.markdown))
}

// parseDTypes reads a list of types of weights.
func parseDTypes(names []string) ([]compute.DType, error) {
	var out []compute.DType
	for _, n := range names {
		var d dtypeFlag
		if err := d.Set(n); err != nil || d == dtypeAuto {
			return nil, usagef("--dtype %q: want some of %s", n, dtypeNames())
		}
		out = append(out, compute.DType(d))
	}
	return out, nil
}

func newBenchDecode(a *app) *cobra.Command {
	var p printing
	var dir, shape, picture string
	var dtypes []string
	var context []int
	o := machineOptions{actBits: 16}
	c := bench.DefaultPasses()
	cmd := &cobra.Command{
		Use:   "decode [--model DIR | --shape NAME]",
		Short: "Measure what a pass costs by number of rows",
		Long: `Decode measures a pass of a model over trees of several sizes, in turn, and what
it costs over a pass of one row: a draft tree pays if that is less than the tokens
that it brings. Between the passes it reads as much memory as the weights take,
which is the limit for one row; the cost of attention over the context comes on
top. Without --model it takes random weights of a given shape: ` + shapeNames() + `.`,
		Example: `  talf bench decode --shape 110m --dtype f32,bf16,q8
  talf bench decode --model DIR --context 64,1024 --rows 1,8,60 --out passes.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			if err := checkPlot(picture); err != nil {
				return err
			}
			if dir != "" && cmd.Flags().Changed("shape") {
				return usagef("--model and --shape exclude each other")
			}
			for _, c.Context = range context {
				if err := c.Validate(); err != nil {
					return usageError{err}
				}
			}
			types, err := parseDTypes(dtypes)
			if err != nil {
				return err
			}
			dev, err := o.openCPU()
			if err != nil {
				return err
			}
			defer func() { _ = dev.Close() }()
			var models []bench.PassModel
			for _, dt := range types {
				timed := bench.NewTimed(dev)
				o.dtype = dtypeFlag(dt)
				m, err := openPassModel(dir, shape, timed, &o)
				if err != nil {
					return err
				}
				defer func() { _ = m.Close() }()
				probe := dev.NewProbe(m.WeightBytes())
				models = append(models, bench.PassModel{Name: dt.String(), Model: m, Device: timed, Read: probe.Read})
			}
			r := newMachineReport()
			r.Device = dev.Name()
			for _, c.Context = range context {
				rows, err := bench.Passes(cmd.Context(), models, c)
				if err != nil {
					return err
				}
				r.Passes = append(r.Passes, rows...)
			}
			if picture != "" {
				err = savePasses(picture, r.Passes)
			}
			return errors.Join(err, p.print(a, r, func(markdown bool) error {
				a.printf("%s, %s, %s\n\n", r.Machine, r.Device, r.Date)
				return bench.WritePasses(a.out, r.Passes, markdown)
			}))
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "model", "", "model directory in Hugging Face layout")
	f.StringVar(&shape, "shape", "110m", "shape of random weights")
	f.StringVar(&picture, "plot", "", "PNG or SVG file for a picture of the costs")
	f.StringSliceVar(&dtypes, "dtype", []string{"f32", "bf16", "q8"}, "types that weights are kept as")
	f.IntSliceVar(&c.Rows, "rows", c.Rows, "sizes of trees; costs are over the first one's")
	f.IntSliceVar(&context, "context", []int{c.Context}, "positions before the tree")
	countVar(f, &c.Prompt, "prompt", 0, "also measure a prompt of so many tokens, with logits of the last one (0: none)")
	f.IntVar(&c.Reps, "reps", c.Reps, "rounds over types and sizes")
	countVar(f, &o.threads, "threads", 0, "CPU threads (0: one for each core that talf doctor finds)")
	f.Var(&o.kv, "kv-dtype", "type that keys and values are kept as: f32 or bf16")
	countVar(f, &o.layers, "layers", 0, "deepen --model to so many layers (0: as it is)")
	f.Var(&o.actBits, "act-bits", "bits of an activation in products with q8 weights: 8 or 16")
	p.flags(f)
	return cmd
}

func shapeNames() string {
	var names []string
	for _, s := range synth.Shapes() {
		names = append(names, s.Name+" ("+s.Doc+")")
	}
	return strings.Join(names, "; ")
}

// openPassModel loads the model of dir, or random weights of a shape.
func openPassModel(dir, shape string, dev compute.Device, o *machineOptions) (*model.Model, error) {
	if dir != "" {
		path, err := findModel(dir)
		if err != nil {
			return nil, err
		}
		return o.load(path, dev)
	}
	s, err := synth.FindShape(shape)
	if err != nil {
		return nil, usageError{err}
	}
	spec := s.Spec()
	set := synth.RandomWeights(spec, 1)
	return model.New(spec, set, dev, o.modelOptions(set))
}

func newBenchPerplexity(a *app) *cobra.Command {
	var p printing
	var dir, text string
	var dtypes []string
	var window, limit int
	o := machineOptions{actBits: 16}
	cmd := &cobra.Command{
		Use:   "perplexity --model DIR --text FILE",
		Short: "Measure what types of weights cost in accuracy",
		Long: `Perplexity has a model predict every token of a text, in windows that do not
overlap and begin with the model's begin token if it has one, and compares types
of weights with the first one.`,
		Example: "  talf bench perplexity --model DIR --text FILE --dtype f32,bf16,q8",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "model", "text"); err != nil {
				return err
			}
			if err := p.check(); err != nil {
				return err
			}
			types, err := parseDTypes(dtypes)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(text)
			if err != nil {
				return err
			}
			path, err := findModel(dir)
			if err != nil {
				return err
			}
			r := newMachineReport()
			for _, dt := range types {
				o.dtype = dtypeFlag(dt)
				x, err := perplexity(cmd.Context(), path, string(b), &o, window, limit)
				if err != nil {
					return fmt.Errorf("%s: %w", text, err)
				}
				r.Perplexity = append(r.Perplexity, x)
				last := &r.Perplexity[len(r.Perplexity)-1]
				last.Above = last.Perplexity/r.Perplexity[0].Perplexity - 1
			}
			return p.print(a, r, func(markdown bool) error { return bench.WritePerplexity(a.out, r.Perplexity, markdown) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "model", "", "model directory in Hugging Face layout")
	f.StringVar(&text, "text", "", "text file")
	f.StringSliceVar(&dtypes, "dtype", []string{"f32", "bf16", "q8"}, "types that weights are kept as")
	countVar(f, &window, "context", 0, "tokens of a window (0: the model's most, at most 1024)")
	countVar(f, &limit, "limit", 0, "most tokens of the text (0: all)")
	countVar(f, &o.threads, "threads", 0, "CPU threads (0: one for each core that talf doctor finds)")
	f.Var(&o.kv, "kv-dtype", "type that keys and values are kept as: f32 or bf16")
	f.Var(&o.actBits, "act-bits", "bits of an activation in products with q8 weights: 8 or 16")
	p.flags(f)
	return cmd
}

func perplexity(ctx context.Context, dir, text string, o *machineOptions, window, limit int) (bench.Perplexity, error) {
	m, closeModel, err := openModelAs(dir, o)
	if err != nil {
		return bench.Perplexity{}, err
	}
	defer closeModel()
	tok, err := loadTokenizer(dir, m)
	if err != nil {
		return bench.Perplexity{}, err
	}
	ids, err := tok.Encode(text, false)
	if err != nil {
		return bench.Perplexity{}, err
	}
	if limit > 0 {
		ids = ids[:min(limit, len(ids))]
	}
	if window == 0 {
		window = min(1024, m.Spec().MaxPos)
	}
	return bench.MeasurePerplexity(ctx, o.dtype.String(), m, ids, window, m.Spec().BOS)
}

func newBenchKernels(a *app) *cobra.Command {
	var p printing
	var dtypes, classes, sizes []string
	var threads int
	c := bench.DefaultKernels()
	cmd := &cobra.Command{
		Use:   "kernels",
		Short: "Measure the matrix products of every kind of CPU kernel",
		Long: `Kernels measures products of few rows with weights in a core's own cache and in
memory, by type of weights and class of kernels, against two limits that are
measured between them: reading as much memory, and multiplying f32 numbers in the
first-level cache. 8-bit products may pass the second.`,
		Example: "  talf bench kernels\n  talf bench kernels --class avx2,portable --rows 1,16 --out kernels.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			var err error
			if c.DTypes, err = parseDTypes(dtypes); err != nil {
				return err
			}
			if c.Sizes, err = parseSizes(sizes); err != nil {
				return err
			}
			if err := c.Validate(); err != nil {
				return usageError{err}
			}
			var devices []bench.KernelDevice
			for _, name := range classes {
				class, err := kern.ParseClass(name)
				if err != nil {
					return usageError{err}
				}
				cfg := cpu.Default()
				cfg.Class = class
				if threads > 0 {
					cfg.Threads = threads
				}
				dev, err := cpu.New(cfg)
				if err != nil {
					return err
				}
				defer func() { _ = dev.Close() }()
				devices = append(devices, bench.KernelDevice{
					Name: name, Device: dev, Probe: func(size int) bench.Probe { return dev.NewProbe(size) },
				})
			}
			r := newMachineReport()
			if r.Kernels, err = bench.Kernels(cmd.Context(), devices, c); err != nil {
				return err
			}
			return p.print(a, r, func(markdown bool) error {
				a.printf("%s, %s\n\n", r.Machine, r.Date)
				return bench.WriteKernels(a.out, r.Kernels, markdown)
			})
		},
	}
	var have []string
	for _, k := range kern.Available() {
		if k != kern.Portable { // seconds a product
			have = append(have, k.String())
		}
	}
	if len(have) == 0 {
		have = []string{kern.Portable.String()}
	}
	f := cmd.Flags()
	f.StringSliceVar(&classes, "class", have, "classes of kernels")
	f.StringSliceVar(&dtypes, "dtype", []string{"f32", "bf16", "q8"}, "types that weights are kept as")
	f.IntSliceVar(&c.Rows, "rows", c.Rows, "rows of the products; costs are over the first one's")
	f.StringSliceVar(&sizes, "sizes", sizeNames(c.Sizes), "outputs and inputs of the weights")
	f.IntVar(&c.Reps, "reps", c.Reps, "rounds over numbers of rows")
	countVar(f, &threads, "threads", 0, "CPU threads (0: one for each core that talf doctor finds)")
	p.flags(f)
	return cmd
}

func sizeNames(sizes [][2]int) (names []string) {
	for _, s := range sizes {
		names = append(names, fmt.Sprintf("%dx%d", s[0], s[1]))
	}
	return names
}

func parseSizes(names []string) (sizes [][2]int, err error) {
	for _, n := range names {
		out, in, ok := strings.Cut(n, "x")
		a, err1 := strconv.Atoi(out)
		b, err2 := strconv.Atoi(in)
		if !ok || err1 != nil || err2 != nil {
			return nil, usagef("--sizes %q: want outputs and inputs, such as 512x768", n)
		}
		sizes = append(sizes, [2]int{a, b})
	}
	return sizes, nil
}

// cpuName names the machine's processor and cores.
func cpuName() string {
	return fmt.Sprintf("%s, %d cores", cmp.Or(processor(), runtime.GOARCH), runtime.NumCPU())
}
