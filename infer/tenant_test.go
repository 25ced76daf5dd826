package infer_test

import (
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/prefix"
	"talf/infer/source"
)

// A request starts from prefixes of its own tenant alone, in the target and in its head, and what it
// answers does not depend on that. What one of the two evicts, the other forgets.
func TestPrefixesBelongToTenants(t *testing.T) {
	n := newNets(t, 1, 3)
	target, src := infer.NewTarget(n.target, 8), source.NewHead(n.head, 8)
	prefix.Pair(target.Prefixes(), src.Prefixes())
	e := &infer.Engine{Target: target, Config: infer.Default()}
	prompt := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7}
	var want []int32
	for _, x := range []struct {
		tenant string
		cached int
	}{{"a", 0}, {"b", 0}, {"", 0}, {"a", 12}, {"b", 12}, {"", 12}} {
		d, _, err := draft.New("salf:paper")
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.Generate(t.Context(), infer.Request{
			Prompt: prompt, MaxTokens: 20, NoEOS: true, Tenant: x.tenant, Drafter: d, Source: src,
			Verifier: verifier(t, 0), Processor: drafttest.Plain{},
		})
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = slices.Clone(s.Tokens())
		}
		if s.Stats().Cached != x.cached || !slices.Equal(s.Tokens(), want) {
			t.Errorf("tenant %q: %d tokens of the prompt from a prefix, want %d; %v, want %v", x.tenant, s.Stats().Cached, x.cached, s.Tokens(), want)
		}
	}
	if !target.Prefixes().Evict() || src.MatchOf(prefix.Owner{Tenant: "a"}, prompt) != 0 || src.MatchOf(prefix.Owner{Tenant: "b"}, prompt) == 0 {
		t.Error("the head keeps what the target has evicted, or lost what it has not")
	}
	if !src.Prefixes().Evict() || target.MatchOf(prefix.Owner{Tenant: "b"}, prompt) != 0 || target.Match(prompt) == 0 {
		t.Error("the target keeps what the head has evicted, or lost what it has not")
	}

	// A source that cannot tell tenants apart is refused.
	_, err := e.Open(infer.Request{
		Prompt: prompt, MaxTokens: 20, Tenant: "a", Drafter: faulty{}, Source: untenanted{src},
		Verifier: verifier(t, 0), Processor: drafttest.Plain{},
	})
	if err == nil || !strings.Contains(err.Error(), "does not keep prefixes by tenant") {
		t.Errorf("a source that keeps no tenants: error %v", err)
	}
}

// An untenanted source keeps no prefixes by tenant.
type untenanted struct{ infer.Source }

func (untenanted) Abilities() infer.Abilities { return infer.Abilities{} }
