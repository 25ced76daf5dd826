package draft

// Constants that theory and publications do not give. They were fitted on recordings of 30 prompts, five of each of six sets, of the target and
// the draft models in internal/demo/gsm10m, by coordinate descent on the speed that replaying them had (23 November 2026); no figure is
// reported on these prompts. docs/methods.md lists them with the others.

// fitted are the constants of fuse.
var fitted = fuseConstants{th: 0.3, shrink: 12, memory: 400, rate: 0.02, agree: 0.4, dissent: 0.4}

type fuseConstants struct {
	th      float64 // stop asking the draft model when the probability that no child covers sums to less
	shrink  float64 // trials that a source's own estimate counts as
	memory  float64 // trials after which old ones fade
	rate    float64 // by which the mixing weights and biases learn
	agree   float64 // log odds that are added at first where several sources agree
	dissent float64 // and subtracted for every source that knows the place but proposes something else
}
