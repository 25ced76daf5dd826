package infer

import (
	"fmt"

	"talf/infer/prefix"
)

// A TenantKeeper is a Target or a Source whose kept prefixes belong to owners: a request starts
// only from what requests of its own tenant have left, so that its times tell nothing about
// others, and beyond Shape.Switch only from what is beyond it, too. Match and Open are those of the owner without
// a name.
type TenantKeeper interface {
	MatchOf(of prefix.Owner, prompt []int32) int
	OpenOf(id SeqID, of prefix.Owner, prompt []int32, keep int) error
}

// keeper returns what keeps an owner's prefixes, or nil if that is not necessary for the tenant "".
func keeper(o any, tenant string) (TenantKeeper, error) {
	if k, ok := o.(TenantKeeper); ok || tenant == "" {
		return k, nil
	}
	return nil, fmt.Errorf("infer: the request has a tenant, but %T does not keep prefixes by tenant", o)
}

// An opener is what Target and Source have in common.
type opener interface {
	Match(prompt []int32) int
	Open(id SeqID, prompt []int32, keep int) error
}

// owner returns whose prefixes a text of a tenant may start from.
func (e *Engine) owner(tenant string, tokens []int32) prefix.Owner {
	n := e.Target.Shape().Switch
	return prefix.Owner{Tenant: tenant, Long: n > 0 && len(tokens) > n}
}

// Kept returns how many of a tenant's tokens a kept prefix of the target has.
func (e *Engine) Kept(tenant string, tokens []int32) int {
	k, err := keeper(e.Target, tenant)
	switch {
	case err != nil:
		return 0
	case k == nil:
		return e.Target.Match(tokens)
	}
	return k.MatchOf(e.owner(tenant, tokens), tokens)
}

// matchIn returns how many of the first n tokens o has.
func (s *Sequence) matchIn(o opener, n int) (int, error) {
	k, err := keeper(o, s.req.Tenant)
	if k == nil {
		return o.Match(s.tokens[:n]), err
	}
	return k.MatchOf(s.owner, s.tokens[:n]), nil
}

func (s *Sequence) openIn(o opener, keep int) error {
	k, err := keeper(o, s.req.Tenant)
	switch {
	case err != nil:
		return err
	case k == nil:
		return o.Open(s.id, s.tokens, keep)
	}
	return k.OpenOf(s.id, s.owner, s.tokens, keep)
}
