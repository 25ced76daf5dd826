package draft_test

import (
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
)

// A mixture is a target of experts whose tokens choose the same ones or different ones.
type mixture struct {
	name  string
	apart bool
}

// decode decodes a sequence and returns the units per token and the mean number of rows of a pass.
func (x mixture) decode(t *testing.T, spec string) (units, rows float64) {
	t.Helper()
	const top = 4
	us := func(units float64) time.Duration { return time.Duration(units * 1e6) }
	passes, all := 0, 0
	costs := &drafttest.Costs{
		Pass: func(n int) time.Duration { return us(0.4 + 0.002*float64(n)) },
		Step: func(rows int) time.Duration { return us(0.05 + 0.001*float64(rows)) },
		Of:   160, Expert: us(0.15),
		Route: func(token int32) (e []int) {
			for i := range top {
				if e = append(e, i); x.apart {
					e[i] = top*int(token) + i
				}
			}
			return e
		},
	}
	mk, _, err := draft.Open(spec, draft.Env{Source: true})
	if err != nil {
		t.Fatal(err)
	}
	defer mk.Close()
	tokens := 0
	var took time.Duration
	for seed := range uint64(4) {
		world := &drafttest.Target{Table: drafttest.Table{Seed: seed, Vocab: 40, Order: 4, Sharp: 2}, MaxLen: 2000}
		e := &infer.Engine{Target: costs.Target(world), Config: infer.Default(), Clock: costs.Now}
		req := infer.Request{
			Prompt: []int32{1}, MaxTokens: 128, Drafter: mk.New(), Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
			Trace: func(r infer.Round) error {
				passes, all = passes+1, all+r.Proposal.Tree.Len()
				return nil
			},
		}
		if spec != "ar" {
			req.Source = costs.Source(&drafttest.Source{Target: world, Agree: 0.8})
		}
		s, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		tokens, took = tokens+len(s.Tokens()), took+s.Stats().Decode
	}
	return took.Seconds() * 1e3 / float64(tokens), float64(all) / float64(passes)
}

// Methods that follow costs draft less where the rows of a tree read different experts, and are not
// slower than plain decoding.
func TestTreesFollowTheExpertsThatTheyRead(t *testing.T) {
	same, apart := mixture{"the same experts", false}, mixture{"different experts", true}
	for _, spec := range []string{"auto", "salf", "beam", "optimal"} {
		rows := map[bool]float64{}
		for _, x := range []mixture{same, apart} {
			plain, _ := x.decode(t, "ar")
			got, n := x.decode(t, spec)
			rows[x.apart] = n
			t.Logf("%-8s %-18s %.1f rows, %.3f of plain decoding's speed", spec, x.name, n, plain/got)
			if plain/got < 0.9 || !x.apart && plain/got < 1.5 {
				t.Errorf("%s with %s: %.3f of plain decoding's speed", spec, x.name, plain/got)
			}
		}
		if rows[true] > 0.5*rows[false] {
			t.Errorf("%s: passes of %.1f rows where they read different experts, of %.1f where they read the same", spec, rows[true], rows[false])
		}
	}
}
