package draft_test

import (
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
)

func TestTrainingFreeMethodsConform(t *testing.T) {
	for _, spec := range []string{
		"pld", "pld:K=1", "pld:lo=1,hi=2", "pld:lo=2,hi=9,K=200",
		"recycle", "recycle:K=1", "recycle:N=7,K=3,accept=0.2/0.4/0.1", "recycle:N=300,depth=3,harvest=rounds,table=keep", "recycle:accept=0",
		"isotropic", "isotropic:k=5", "isotropic:k=1,lo=1", "isotropic:bigram=off,harvest=verified", "isotropic:spine=0,table=keep",
		"goose", "goose:N=1", "goose:N=2", "goose:N=200,D=20,K=3,lo=1", "goose:D=1,rho=0", "goose:rho=1,r=1,lo=1",
		"goose:r=0", "goose:ema=1,bypass=0", "goose:spine=0", "goose:from=table,lo=1", "goose:consensus=off,bypass=1000,lo=1,hi=3",
		"goose:branches=off,lo=1", "goose:alloc=linear,lo=1,bypass=1000,consensus=off", "goose:extend=breadth", "goose:score=0", "goose:score=1",
		"goose:bigram=off", "goose:harvest=verified", "goose:harvest=rounds", "goose:table=keep",
	} {
		t.Run(spec, func(t *testing.T) {
			drafttest.Run(t, func() infer.Drafter {
				d, _, err := draft.New(spec)
				if err != nil {
					t.Fatal(err)
				}
				return d
			})
		})
	}
}
