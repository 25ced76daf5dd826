package main

import (
	"bytes"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"talf/cmd/talf/command"
	"talf/infer/bench/perplexity"
	"talf/infer/bench/rig"
	"talf/internal/cli"
	"talf/internal/limits"
	"talf/internal/plot"
	"talf/internal/table"
	"talf/lab/load"
)

// A loadOptions holds the flags of load.
type loadOptions struct {
	urls           []string
	model, keyFile string
	prompts        string // file
	template       string // of its objects
	chat           bool
	rates          []float64
	clients        []int
	config         load.Config
}

func newLoad(s *command.Session) *cobra.Command {
	o := loadOptions{config: load.Default()}
	c := &cobra.Command{
		Use:   "load --url URL --prompts FILE",
		Short: "Measure servers of OpenAI's API under load",
		Long: `Load sends requests to running servers, talf's or others', and measures what clients
see: time to the first token (TTFT), time per token after it (TPOT), the end of the answer
(E2E), how much all of them get, and how many requests keep to --good-ttft and --good-tpot.
Several servers take turns with the same requests.

With --clients, each of so many clients sends its next request once it has an answer (a
closed loop). With --rate, so many requests per second arrive at random times, whether or
not earlier ones were answered (an open loop). Several values are measured one after the
other. τ comes from the counters vllm:spec_decode_* of the server's /metrics.`,
		Example: `  lab load --url http://127.0.0.1:8080/v1 --prompts prompts.jsonl --clients 1,4,16
  lab load --url talf=http://127.0.0.1:8080/v1 --url llama=http://127.0.0.1:8081/v1 --prompts prompts.jsonl --rate 2,4,8 --markdown`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "url", "prompts"); err != nil {
				return err
			}
			if err := s.CheckPrint(); err != nil {
				return err
			}
			rs, err := o.run(cmd.Context(), s)
			if err != nil {
				return err
			}
			var figures []plot.Figure
			for _, r := range rs {
				figures, err = append(figures, r.Figures()...), errors.Join(err, r.Unanswered())
			}
			return errors.Join(s.Print(rs, figures, func(markdown bool) error {
				if err := s.Printf("%s, %s\n\n", rs[0].Machine, rs[0].Date); err != nil {
					return err
				}
				var ts []table.Table
				for _, r := range rs {
					ts = append(ts, r.Table())
				}
				return table.Write(s.Out(), ts, markdown)
			}), err)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&o.urls, "url", nil, "`URL` of an API, such as http://127.0.0.1:8080/v1, or NAME=URL to name it (may be repeated)")
	f.StringVar(&o.model, "model", "", "name of the model to ask for (default: the first that a server lists)")
	f.StringVar(&o.keyFile, "api-key-file", "", "`file` with the key of the servers")
	f.StringVar(&o.prompts, "prompts", "", "file of prompts")
	f.StringVar(&o.template, "template", "", "how the fields of a JSON object make a prompt: 'Question: {question}\\nAnswer:'")
	f.BoolVar(&o.chat, "chat", false, "send prompts as messages to /chat/completions, not as texts to /completions")
	f.IntSliceVar(&o.clients, "clients", []int{1}, "clients of a closed loop")
	cli.NumbersVar(f, &o.rates, "rate", nil, "requests per second of an open loop, instead of --clients")
	f.IntVar(&o.config.Requests, "requests", o.config.Requests, "requests of a run")
	f.IntVar(&o.config.Runs, "runs", o.config.Runs, "runs of every server at every load")
	f.IntVar(&o.config.Warmup, "warmup", o.config.Warmup, "requests to every server that are sent first and not counted")
	f.IntVar(&o.config.MaxTokens, "max-tokens", o.config.MaxTokens, "maximum number of tokens in an answer")
	f.BoolVar(&o.config.IgnoreEOS, "ignore-eos", false, "ask for answers of exactly --max-tokens, which not every server understands")
	f.Float64Var(&o.config.Temperature, "temperature", 0, "sampling temperature")
	f.Uint64Var(&o.config.Seed, "seed", 0, "seed of the times of arrival and of sampling")
	cli.DurationVar(f, &o.config.Timeout, "timeout", o.config.Timeout, "longest time for an answer")
	cli.DurationVar(f, &o.config.TTFT, "good-ttft", o.config.TTFT, "longest time to the first token of a good answer (0: any)")
	cli.DurationVar(f, &o.config.TPOT, "good-tpot", o.config.TPOT, "longest time per token of a good answer (0: any)")
	s.PrintFlags(f, "draw the distributions of times")
	return c
}

func (o *loadOptions) run(ctx context.Context, s *command.Session) ([]*load.Report, error) {
	loads, err := o.config.Each(o.clients, o.rates)
	if err != nil {
		return nil, command.Usage(err)
	}
	names, err := rig.ParseNames("--url", "URL", o.urls)
	if err != nil {
		return nil, command.Usage(err)
	}
	var key []byte
	if o.keyFile != "" {
		if key, err = limits.ReadFile(o.keyFile, limits.MiB); err != nil {
			return nil, err
		}
	}
	var servers []load.Server
	for _, n := range names {
		servers = append(servers, load.Server{Name: n.Name, URL: n.Path, Model: o.model, Key: string(bytes.TrimSpace(key))})
	}
	set, err := s.Prompts(o.prompts, o.template)
	if err != nil {
		return nil, err
	}
	var texts []load.Prompt
	for i := range set.Prompts { // the first turn of each
		p := load.Prompt{Text: set.Prompts[i].Turns[0]}
		if o.chat {
			p = load.Message(p.Text)
		}
		texts = append(texts, p)
	}
	bar, done, about := s.Stage("load", "runs"), 0, perplexity.NewReport()
	defer bar.End()
	var out []*load.Report
	for _, c := range loads {
		r, err := c.Run(ctx, servers, texts, func(server string, _ int) {
			bar.Set(int64(done), int64(c.Runs*len(servers)*len(loads)), server)
			done++
		})
		if err != nil {
			return nil, err
		}
		r.Machine, r.Date = about.Machine, about.Date
		out = append(out, r)
	}
	return out, nil
}
