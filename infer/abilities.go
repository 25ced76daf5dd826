package infer

import (
	"talf/compute"
	"talf/infer/prefix"
)

// Abilities are what a target or a source can do beyond its interface. A nil field is an ability
// that it lacks.
//
// They are fields rather than interfaces to assert, so that what wraps another hands each one on by
// a decision: wrapped, passed through or withheld. The engine asks for them once for every sequence.
type Abilities struct {
	Tenants TenantKeeper
	Release KVReleaser
	Draws   bool // the passes of a target may draw tokens, if their jobs ask for some
	AtOnce  bool // a source's first pass of a round says all of it: a later one computes what depends on the tokens asked for, if anything
}

// A TenantKeeper keeps prefixes that belong to owners: a request starts only from what requests of
// its own tenant have left, so that its times tell nothing about others, and beyond Shape.Switch only
// from what is beyond it, too. Match and Open are those of the owner without a name.
type TenantKeeper interface {
	MatchOf(of prefix.Owner, prompt []int32) int
	OpenOf(id SeqID, of prefix.Owner, prompt []int32, keep int) error
}

// A KVReleaser has a pool of keys and values that can give memory that nobody uses back to the
// system. Kept prefixes stay. ReleaseKV is called between passes.
type KVReleaser interface{ ReleaseKV() }

// ProcessorAbilities are what a processor can do beyond its interface, as Abilities are.
type ProcessorAbilities struct {
	Quantile Quantiler
	End      Ender
}

// A Quantiler finds a token at less cost than all of the distribution.
type Quantiler interface {
	// Quantile is the token at quantile u of Dist, by ascending id, and may overwrite logits.
	Quantile(logits []float32, context []int32, u float64) int32
	// Wish returns what gives the same token, bit for bit, if a pass is asked for it, whatever the context. ok says
	// whether there is such a thing; that does not depend on u.
	Wish(u float64) (d compute.Draw, ok bool)
}

// An Ender can tell where an output ends, because nothing may follow it.
type Ender interface {
	// Ended reports whether the output is complete with the last token of context, which is the
	// prompt and the output so far. It is called for every token of the output but those that end it
	// by themselves. An error ends the sequence.
	Ended(context []int32) (bool, error)
}
