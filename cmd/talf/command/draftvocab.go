package command

import (
	"talf/data"
	"talf/train"
	"talf/train/mix"
)

// inspectVocab measures the vocabulary that train would use with the same --draft-vocab
// and the default of --held-out.
func inspectVocab(path, text string) (*mix.Coverage, error) {
	set, err := data.Open(path)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	return mix.Cover(set, text, train.Default().Held)
}

func printCoverage(a *app, c *mix.Coverage) {
	for _, part := range []struct {
		name string
		data.Coverage
	}{{"learnt", c.Train}, {"held out", c.Held}} {
		a.printf("vocab         %d tokens are %.2f%% of the %d to learn, %s", c.Size, 100*part.Share(), part.Tokens, part.name)
		for l, x := range part.Levels {
			a.printf("; labels of level %d: %.2f%%", l, 100*x)
		}
		a.printf("\n")
	}
}
