package draft

import (
	"talf/infer"
	"talf/infer/draft/search"
)

// StateOf returns the parameters of the next tree of a drafter of dynatree, as far as history moves
// them.
func StateOf(d infer.Drafter) search.DynaTreeState { return d.(*dynatree).state() }
