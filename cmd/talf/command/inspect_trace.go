package command

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"talf/infer/trace"
	"talf/internal/durable"
)

func newInspectTrace(a *app) *cobra.Command {
	var svg string
	from, n := 1, 20
	c := &cobra.Command{
		Use:   "trace FILE",
		Short: "Draw the draft trees that generate --trace recorded",
		Long: `Inspect trace prints the tree of each round, children below their parent: ● was
accepted, ○ was not, → is the model's own token after what was accepted. q is what
the draft gave to a token, p what the model gives (at temperature 0, the model's
probability at temperature 1, where the token is among its 64 most likely).

--svg FILE draws the same as a picture, the accepted path highlighted.`,
		Example: "  talf inspect trace trace.jsonl\n  talf inspect trace trace.jsonl --from 3 --n 5 --svg rounds.svg",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if from < 1 {
				return usagef("--from is %d, want at least 1", from)
			}
			if svg != "" {
				if err := canWrite(svg); err != nil {
					return err
				}
			}
			return a.inspectTrace(args[0], svg, from, n)
		},
	}
	f := c.Flags()
	countVar(f, &from, "from", from, "first round to show")
	countVar(f, &n, "n", n, "most rounds to show (0: all)")
	f.StringVar(&svg, "svg", "", "file to draw the rounds in, instead of printing them")
	return c
}

// inspectTrace draws n rounds, or all for 0, beginning with round from.
func (a *app) inspectTrace(path, svg string, from, n int) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	var picture bytes.Buffer
	draw := trace.NewSVG(&picture)
	rounds, shown, tokens := 0, 0, 0
	h, err := trace.Read(file, func(s *trace.Step) error {
		rounds++
		tokens += s.Kept
		if rounds < from || n > 0 && shown == n {
			return nil
		}
		shown++
		if svg != "" {
			draw.Add(s, rounds)
			return nil
		}
		if err := s.Text(a.out, rounds); err != nil {
			return err
		}
		a.printf("\n")
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if shown == 0 && rounds > 0 {
		return fmt.Errorf("%s: it has %d rounds, --from is %d", path, rounds, from)
	}
	if svg != "" {
		if err := draw.Close(); err != nil {
			return err
		}
		if err := durable.WriteFile(svg, picture.Bytes()); err != nil {
			return err
		}
	}
	a.printf("%s, verified by %s, temperature %g: %d tokens in %d rounds, τ %.2f; %d shown\n",
		h.Method, h.Verify, h.Temperature, tokens, rounds, float64(tokens)/float64(max(rounds, 1)), shown)
	return nil
}
