package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"talf/text/grammar"
	"talf/text/grammar/grammartest"
	"talf/text/grammar/schema"
)

// Formats and patterns with lengths, as pydantic writes them for HttpUrl and addresses, allow texts up to the last character.
func TestFormatsAreCounted(t *testing.T) {
	long := func(n int) string { return "https://example.com/" + strings.Repeat("a", n-20) }
	host := strings.Repeat(strings.Repeat("h", 63)+".", 3)
	mail := func(n int) string { return "a@" + host + strings.Repeat("z", n-2-len(host)) }
	for _, x := range []struct {
		schema  string
		yes, no []string
	}{
		{`{"type":"string","format":"uri","minLength":1,"maxLength":2083}`, []string{"http://a.b", long(2083)}, []string{"", long(2084), strings.Repeat("a", 2083)}},
		{`{"type":"string","format":"email","maxLength":254}`, []string{"a@b.c", mail(254)}, []string{mail(255), mail(254)[:194]}},
		{`{"type":"string","pattern":"^(ab|é)*$","minLength":3000,"maxLength":3001}`, []string{strings.Repeat("ab", 1500), strings.Repeat("é", 3001)}, []string{strings.Repeat("ab", 1499), strings.Repeat("é", 3002), strings.Repeat("é", 2999)}},
		{`{"type":"string","pattern":"^(\\n\"|x)*$","minLength":2000}`, []string{strings.Repeat("\n\"", 1000), strings.Repeat("x", 4000)}, []string{strings.Repeat("x", 1999), strings.Repeat("\n\"", 999)}},
	} {
		b := grammar.NewBuilder()
		e, err := schema.Config{}.Compile(b, []byte(x.schema))
		if err != nil {
			t.Errorf("%s: %v", x.schema, err)
			continue
		}
		g, err := b.Compile(e)
		if err != nil {
			t.Fatal(err)
		}
		a, err := grammar.NewAutomaton(g, grammartest.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range append(x.yes, x.no...) {
			spelled := `"` + strings.NewReplacer("\n", `\n`, `"`, `\"`).Replace(text) + `"`
			s := a.Read(a.Start(), []byte(spelled))
			if got := s != nil && s.Accepting(); got != (i < len(x.yes)) {
				t.Errorf("%s: %.40q of %d bytes is allowed: %v", x.schema, text, len(text), got)
			}
		}
	}
}

// Every format may have up to a million characters, and has to have up to two hundred.
func TestLengthsOfFormats(t *testing.T) {
	for _, f := range []string{
		"byte", "date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "iri", "iri-reference", "json-pointer", "password",
		"relative-json-pointer", "time", "uri", "uri-reference", "uri-template", "uuid",
	} {
		for _, bound := range []string{`"maxLength":1000000`, `"minLength":200`} {
			if _, err := (schema.Config{}).Compile(grammar.NewBuilder(), fmt.Appendf(nil, `{"type":"string","format":%q,%s}`, f, bound)); err != nil {
				t.Errorf("%s, %s: %v", f, bound, err)
			}
		}
	}
}
