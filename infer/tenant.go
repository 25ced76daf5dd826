package infer

import "fmt"

// A TenantKeeper is a Target or a Source whose kept prefixes belong to tenants: a request starts
// only from what requests of its own tenant have left, so that its times tell nothing about
// others. Match and Open are those of the tenant "".
type TenantKeeper interface {
	MatchOf(tenant string, prompt []int32) int
	OpenOf(id SeqID, tenant string, prompt []int32, keep int) error
}

// keeper returns what keeps a tenant's prefixes, or nil for the tenant "", who needs none.
func keeper(of any, tenant string) (TenantKeeper, error) {
	if tenant == "" {
		return nil, nil
	}
	if k, ok := of.(TenantKeeper); ok {
		return k, nil
	}
	return nil, fmt.Errorf("infer: the request has a tenant, but %T does not keep prefixes by tenant", of)
}

// An opener is what Target and Source have in common.
type opener interface {
	Match(prompt []int32) int
	Open(id SeqID, prompt []int32, keep int) error
}

// matchIn returns how many of the first n tokens o has.
func (s *Sequence) matchIn(o opener, n int) (int, error) {
	k, err := keeper(o, s.req.Tenant)
	if k == nil {
		return o.Match(s.tokens[:n]), err
	}
	return k.MatchOf(s.req.Tenant, s.tokens[:n]), nil
}

func (s *Sequence) openIn(o opener, keep int) error {
	k, err := keeper(o, s.req.Tenant)
	switch {
	case err != nil:
		return err
	case k == nil:
		return o.Open(s.id, s.tokens, keep)
	}
	return k.OpenOf(s.id, s.req.Tenant, s.tokens, keep)
}
