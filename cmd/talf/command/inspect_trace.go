package command

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"talf/infer/trace"
	"talf/internal/cli"
	"talf/internal/durable"
	"talf/internal/vfs"
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if from < 1 {
				return usagef("--from is %d, want at least 1", from)
			}
			if svg != "" {
				if err := durable.Writable(svg); err != nil {
					return err
				}
			}
			return a.inspectTrace(cmd.Context(), args[0], svg, from, n)
		},
	}
	f := c.Flags()
	cli.CountVar(f, &from, "from", from, "first round to show")
	cli.CountVar(f, &n, "n", n, "most rounds to show (0: all)")
	f.StringVar(&svg, "svg", "", "file to draw the rounds in, instead of printing them")
	return c
}

// inspectTrace draws n rounds, or all for 0, beginning with round from.
func (a *app) inspectTrace(ctx context.Context, path, svg string, from, n int) error {
	file, err := vfs.OpenRead(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	var picture bytes.Buffer
	draw := trace.NewSVG(&picture)
	sum, err := trace.Show(file, from, n, func(s *trace.Step, round int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if svg != "" {
			draw.Add(s, round)
			return nil
		}
		if err := s.Text(a.out, round); err != nil {
			return err
		}
		a.printf("\n")
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if sum.Shown == 0 && sum.Rounds > 0 {
		return fmt.Errorf("%s: it has %d rounds, --from is %d", path, sum.Rounds, from)
	}
	if svg != "" {
		if err := draw.Close(); err != nil {
			return err
		}
		if err := durable.WriteFile(svg, picture.Bytes()); err != nil {
			return err
		}
	}
	a.printf("%s\n", sum)
	return nil
}
