package infer

import (
	"fmt"

	"talf/infer/prefix"
)

// An opener is what Target and Source have in common.
type opener interface {
	Match(prompt []int32) int
	Open(id SeqID, prompt []int32, keep int) error
}

// keeper returns what keeps an owner's prefixes in o, or nil if that is not necessary for the tenant "".
func keeper(o opener, can Abilities, tenant string) (TenantKeeper, error) {
	if can.Tenants == nil && tenant != "" {
		return nil, fmt.Errorf("infer: the request has a tenant, but %T does not keep prefixes by tenant", o)
	}
	return can.Tenants, nil
}

// owner returns whose prefixes a text of a tenant may start from.
func (e *Engine) owner(tenant string, tokens []int32) prefix.Owner {
	n := e.Target.Shape().Switch
	return prefix.Owner{Tenant: tenant, Long: n > 0 && len(tokens) > n}
}

// Kept returns how many of a tenant's tokens a kept prefix of the target has.
func (e *Engine) Kept(tenant string, tokens []int32) int {
	k, err := keeper(e.Target, e.Target.Abilities(), tenant)
	switch {
	case err != nil:
		return 0
	case k == nil:
		return e.Target.Match(tokens)
	}
	return k.MatchOf(e.owner(tenant, tokens), tokens)
}

// matchIn returns how many of the first n tokens o has.
func (s *Sequence) matchIn(o opener, can Abilities, n int) (int, error) {
	k, err := keeper(o, can, s.req.Tenant)
	if k == nil {
		return o.Match(s.tokens[:n]), err
	}
	return k.MatchOf(s.owner, s.tokens[:n]), nil
}

func (s *Sequence) openIn(o opener, can Abilities, keep int) error {
	k, err := keeper(o, can, s.req.Tenant)
	switch {
	case err != nil:
		return err
	case k == nil:
		return o.Open(s.id, s.tokens, keep)
	}
	return k.OpenOf(s.id, s.owner, s.tokens, keep)
}
