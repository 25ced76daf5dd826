package infer_test

import (
	"context"
	"slices"
	"testing"

	"talf/compute"
	"talf/infer"
	"talf/infer/source"
)

// asked is a target whose passes are asked for tokens, as those of a device that draws are. The model refuses what does not fit
// its rows, and the CPU draws none: each token that a verifier asks for must be the one that the pass was asked for.
type asked struct {
	*infer.ModelTarget
	t testing.TB
}

func (asked) Abilities() infer.Abilities { return infer.Abilities{Draws: true} }

func (a asked) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	rows, err := a.ModelTarget.Score(ctx, jobs)
	rows = slices.Clone(rows)
	for i, r := range rows {
		rows[i] = askedRows{r, slices.Clone(jobs[i].Draws), a.t}
	}
	return rows, err
}

type askedRows struct {
	infer.Rows
	draws []compute.Draw
	t     testing.TB
}

func (r askedRows) Drawn(n int, d compute.Draw) (int32, bool) {
	if n >= len(r.draws) || r.draws[n] != d {
		r.t.Errorf("%+v is wanted after node %d, and %+v were asked for", d, n, r.draws)
	}
	return 0, false
}

// Verifiers want just the tokens that passes were asked for, after every node of a tree.
func TestPassesAreAskedForTheTokensThatAreWanted(t *testing.T) {
	n := pooled(t, 0, 0)
	for _, j := range []*job{
		{max: 30, method: "", temperature: 1},
		{max: 30, method: "beam:N=12,k=4,depth=3", temperature: 0.7},
		{max: 30, method: "static:binary-3,draw=distinct", verify: "rrsw", temperature: 1},
		{max: 30, method: "static:binary-3,draw=distinct", verify: "traversal", temperature: 1},
		{max: 30, method: "linear:draw=distinct", verify: "block", temperature: 1},
	} {
		j.prompt, j.seed = []int32{1, 2, 3}, 9
		e := &infer.Engine{Target: asked{infer.NewTarget(n.target, 0), t}, Config: infer.Config{PrefillChunk: 16, MaxNodes: 64}}
		s, err := e.Generate(t.Context(), j.request(t, source.NewHead(n.head, 0)))
		if err != nil {
			t.Fatal(err)
		}
		if st := s.Stats(); j.method != "" && st.Accepted == 0 {
			t.Errorf("%s: no node but roots was asked about: %+v", j.method, st)
		}
	}
}
