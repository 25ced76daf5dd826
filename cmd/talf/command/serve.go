package command

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/infer/decode"
	"talf/infer/loop"
	"talf/internal/cli"
	"talf/model"
	"talf/serve"
)

// A serveOptions holds the flags of serve.
type serveOptions struct {
	model    string
	drafting decode.Drafting
	chat     chatOptions
	machine  machineOptions
	methods  []string
	cached   int
	loop     loop.Config
	budget   string
	maxWait  time.Duration
	server   serve.Config
	listen   serve.Listener
	keyFile  string
	exposed  bool
	config   string
}

// serveFile returns the files that --config reads.
func serveFile() *cli.FlagFile {
	return &cli.FlagFile{Without: []string{"config", "help", "verbose", "quiet"}, Clashes: [][2]string{{"head", "draft"}}}
}

// keyVariable is the environment variable with an API key.
const keyVariable = "TALF_API_KEY"

func newServe(a *app) *cobra.Command {
	o := serveOptions{loop: loop.Default(), server: serve.Default()}
	c := &cobra.Command{
		Use:   "serve MODEL [--head CKPT]",
		Short: "Answer requests of OpenAI's API, and of Anthropic's",
		Long: `Serve answers /v1/chat/completions, /v1/completions, /v1/responses and Anthropic's
/v1/messages, whole and streamed, with /v1/models, /tokenize, /detokenize, /health, /ready,
/metrics and /version beside them. Requests share the model's passes, and each drafts its own
trees; the text is that of talf generate at the same temperature, which is 1 where a request
names none, as OpenAI documents (generate's and chat's is 0). The object "talf" of a request chooses its method
among those of --method ({"method": …}), bounds its trees ({"nodes": …}) or turns drafting
off ({"off": true}); the object "talf" of an answer says what was done.

With --api-key-file, or the environment variable ` + keyVariable + `, requests need a key. The first
interrupt stops taking requests and lets those that run end. SIGHUP makes the server read the
files of keys and of the certificate again. --config reads a YAML file whose keys are the
names of the flags; a flag on the command line wins.`,
		Example: `  talf serve MODEL --head CKPT
  talf serve MODEL --head CKPT --method salf --method goose --listen 127.0.0.1:8000 --served-model-name mine`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.config != "" {
				if err := serveFile().Read(cmd.Flags(), o.config); err != nil {
					return err
				}
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			return a.serve(cmd.Context(), &o)
		},
	}
	f := c.Flags()
	modelVar(f, &o.model, "")
	draftFlags(f, &o.drafting)
	f.StringArrayVar(&o.methods, "method", []string{decode.DefaultMethod}, "draft `method`, or METHOD@VERIFIER, that requests may choose, the first by default (may be repeated)")
	f.StringVar(&o.listen.Address, "listen", "127.0.0.1:8080", "address and port")
	f.StringSliceVar(&o.server.Names, "served-model-name", nil, "names of the model in requests (default: that of its directory); any other name is answered, too")
	f.IntVar(&o.loop.MaxRunning, "max-running", o.loop.MaxRunning, "requests that share the model's passes")
	cli.CountVar(f, &o.loop.MaxQueue, "max-queue", o.loop.MaxQueue, "requests that wait; further ones are refused with status 429")
	f.StringVar(&o.budget, "budget", "global", "who has the rows of passes: global (drafts of all requests share them by what they gain, and end where they do not pay) or sequence (each method drafts as if alone)")
	cli.DurationVar(f, &o.maxWait, "max-wait", 0, "longest time that a request waits (0: any)")
	cli.DurationVar(f, &o.server.MaxTime, "max-time", o.server.MaxTime, "longest time that a request takes (0: any)")
	cli.CountVar(f, &o.cached, "cached-prefixes", 64, "finished requests whose keys and values are kept for prompts that begin alike")
	cli.DurationVar(f, &o.server.PingTime, "ping", o.server.PingTime, "silence of a stream after which it says that it is alive (0: never)")
	f.Var(&o.server.ToolFormat, "tool-format", "`name` of the format in which the model calls tools (default: that of its chat template)")
	f.StringVar(&o.config, "config", "", "YAML file of flags")
	f.StringVar(&o.keyFile, "api-key-file", "", "`file` of API keys, one a line")
	f.StringVar(&o.listen.Certificate, "tls-cert", "", "`file` of the certificate for TLS")
	f.StringVar(&o.listen.Key, "tls-key", "", "`file` of the certificate's key")
	cli.DurationVar(f, &o.listen.Grace, "grace", 30*time.Second, "time for running requests to end once the server stops")
	f.StringSliceVar(&o.server.Origins, "allow-origin", nil, "origins of web pages that may ask, such as http://localhost:3000 (default: none)")
	f.BoolVar(&o.server.NoPlayground, "no-playground", false, "leave out the page at / that shows draft trees as they are accepted")
	f.BoolVar(&o.exposed, "without-key", false, "listen beyond this machine although requests need no key")
	f.StringVar(&o.server.Collector, "otlp-endpoint", "", "`URL` of an OpenTelemetry collector that gets a trace of each request, such as http://127.0.0.1:4318")
	f.BoolVar(&o.server.MetricsOpen, "metrics-without-key", false, "let everyone read /metrics")
	o.chat.flags(f)
	o.chat.today(f, "")
	o.machine.flags(f)
	return c
}

// check finds mistakes that show without a model.
func (o *serveOptions) check(cmd *cobra.Command) error {
	if err := cli.Need(cmd, "model"); err != nil {
		return err
	}
	if err := errors.Join(checkDraft(&o.drafting), o.chat.check()); err != nil {
		return err
	}
	if o.loop.Global = o.budget == "global"; !o.loop.Global && o.budget != "sequence" {
		return usagef("--budget is %q, want global or sequence", o.budget)
	}
	if o.loop.MaxRunning < 1 {
		return usagef("--max-running is %d, want at least 1", o.loop.MaxRunning)
	}
	if err := serve.CheckAddress(o.listen.Address); err != nil {
		return usagef("--listen is %w", err)
	}
	if (o.listen.Certificate == "") != (o.listen.Key == "") {
		return usagef("--tls-cert and --tls-key belong together")
	}
	if key := os.Getenv(keyVariable); o.keyFile == "" && key == "" && !o.exposed && !serve.Loopback(o.listen.Address) {
		return usagef("--listen %s can be reached from other machines: give --api-key-file, or --without-key to let everyone in", o.listen.Address)
	}
	return nil
}

func (a *app) serve(ctx context.Context, o *serveOptions) (err error) {
	o.listen.Reload = cli.Hangups(ctx) // one that comes while the model is loaded must not end that
	o.server.Keys, err = serve.OpenKeys(o.keyFile, os.Getenv(keyVariable))
	if err = errors.Join(err, o.listen.CheckCertificate()); err != nil { // before the model, which may take minutes
		return err
	}
	dir, err := checkpoints.FindModel(o.model)
	if err != nil {
		return err
	}
	o.server.Log = a.log
	if err := o.listen.Open(ctx, o.server); err != nil {
		return err
	}
	defer func() { _ = o.listen.Close() }() // there was an error
	told := a.told
	a.told = func(p model.Phase, done, total int64) {
		if o.listen.Tell(string(p), done, total); told != nil {
			told(p, done, total)
		}
	}
	template, _, err := o.chat.load(dir)
	if err != nil {
		return err
	}
	p, err := a.loader().Open(ctx, dir, &o.machine.Machine, o.drafting, o.cached)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.Model.Identify(); err != nil { // what answers say of it
		return err
	}
	s, err := serve.Open(serve.Parts{
		Dir: dir, Model: p.Model, Tokenizer: p.Tokenizer, Template: template, Source: p.Source,
		Methods: o.methods, Cached: o.cached, MaxWait: o.maxWait, Loop: o.loop, Server: o.server,
	})
	if err != nil {
		return usageError(err)
	}
	return s.Run(ctx, &o.listen, nil)
}
