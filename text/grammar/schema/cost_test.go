package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"talf/internal/limits/costtest"
)

// repeat writes n parts with a comma between them; each %[1]d in a part is its number.
func repeat(part string, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, part, i)
	}
	return b.String()
}

// hostile are schemas that ask for as much work as their size allows.
var hostile = map[string]string{
	"anchors":      `{"$defs":{` + repeat(`"%[1]d":{"$anchor":"a%[1]d"}`, 10_000) + `},"prefixItems":[` + repeat(`{"$ref":"#a9999","title":"%[1]d"}`, 10_000) + `]}`,
	"pointers":     `{"$defs":{` + repeat(`"%[1]d":{}`, 30_000) + `},"prefixItems":[` + repeat(`{"$ref":"#/$defs/29999","title":"%[1]d"}`, 8_000) + `]}`,
	"list":         `{"$defs":{"x":{"prefixItems":[` + repeat(`{"title":"%[1]d"}`, 20_000) + `]}},"prefixItems":[` + repeat(`{"$ref":"#/$defs/x/prefixItems/19999","title":"%[1]d"}`, 8_000) + `]}`,
	"properties":   `{"properties":{` + repeat(`"%[1]d":{}`, 60_000) + `}}`,
	"required":     `{"required":[` + repeat(`"r%[1]d"`, 60_000) + `]}`,
	"required all": `{"properties":{` + repeat(`"%[1]d":{}`, 30_000) + `},"required":[` + repeat(`"%[1]d"`, 30_000) + `]}`,
	"enums":        `{"enum":[` + repeat(`%[1]d`, 60_000) + `],"allOf":[{"enum":[` + repeat(`-%[1]d`, 60_000) + `]}]}`,
	"texts":        `{"enum":[` + repeat(`"x%[1]d"`, 60_000) + `],"minLength":2,"pattern":"x"}`,
	"words":        `{"enum":[` + repeat(`"x%[1]d"`, 2_000) + `]}`,
	"branches":     `{"allOf":[{"properties":{` + repeat(`"p%[1]d":{}`, 1_000) + `}}],"anyOf":[` + repeat(`{"minProperties":1,"title":"%[1]d"}`, 1_000) + `]}`,
	"alternatives": `{"allOf":[{"properties":{` + repeat(`"p%[1]d":{}`, 30_000) + `}}],"anyOf":[` + repeat(`{"title":"%[1]d"}`, 10_000) + `]}`,
	"many needed":  `{"allOf":[{"required":[` + repeat(`"r%[1]d"`, 30_000) + `]}],"anyOf":[` + repeat(`{"title":"%[1]d"}`, 10_000) + `]}`,
	"oneOf":        `{"oneOf":[` + repeat(`{"const":%[1]d}`, 3_000) + `]}`,
	"anyOf":        `{"allOf":[` + repeat(`{"anyOf":[{"title":"a%[1]d"},{"title":"b%[1]d"}]}`, 40) + `]}`,
	"patterns":     `{"prefixItems":[` + repeat(`{"pattern":"^[a-f]*a[a-f]{%[1]d}$","maxLength":9999}`, 13) + `]}`,
	"many":         `{"prefixItems":[` + repeat(`{"pattern":"^x%[1]d[a-f]*a[a-f]{8}$","maxLength":3000}`, 2_000) + `]}`,
	"names":        `{"prefixItems":[` + repeat(`{"patternProperties":{"a.{9}%[1]d":{},"b.{9}":{},"c.{9}":{},"d.{3}":{},"e.{2}":{},"f.{2}":{}}}`, 100) + `]}`,
	"counts":       `{"properties":{` + repeat(`"%[1]d":{}`, 2_000) + `},"maxProperties":1500}`,
	"deep":         strings.Repeat(`{"items":`, 400) + `{}` + strings.Repeat(`}`, 400),
	"deep list":    `{"const":` + strings.Repeat(`[`, 400) + strings.Repeat(`]`, 400) + `}`,
	"digits":       `{"minimum":-` + strings.Repeat("9", 500_000) + `,"maximum":` + strings.Repeat("9", 500_000) + `}`,
	"steps":        `{"allOf":[` + repeat(`{"multipleOf":1%[1]d7}`, 70) + `]}`,
	"many steps":   `{"enum":[` + repeat(`1%[1]d`, 30_000) + `],"multipleOf":997}`,
	"numbers":      `{"prefixItems":[` + repeat(`{"minimum":-12345678.%[1]d,"maximum":987654321.%[1]d}`, 3_000) + `]}`,
	"constants":    `{"enum":[` + repeat(`{"a":%[1]d}`, 30_000) + `],"properties":{"a":{"enum":[` + repeat(`%[1]d`, 10_000) + `]}}}`,
	"ids":          `{"const":1e` + strings.Repeat("9", 100_000) + `}`,
	"nested URIs":  strings.Repeat(`{"$id":"`+strings.Repeat("n", 2_000)+`/","not":`, 490) + `{}` + strings.Repeat(`}`, 490),
	"long URI":     `{"$id":"http://x/` + strings.Repeat("n", 400_000) + `/","$defs":{"a":{"$id":"a"}},"prefixItems":[` + repeat(`{"$ref":"a","title":"%[1]d"}`, 10_000) + `]}`,
	"long name":    `{"` + strings.Repeat("n", 400_000) + `":[` + repeat(`%[1]d`, 80_000) + `]}`,
	"long rules":   `{"properties":{"` + strings.Repeat("n", 400_000) + `":{"prefixItems":[` + repeat(`{"title":"%[1]d"}`, 20_000) + `]}}}`,
}

// They are refused, or compiled, at a bounded cost: a server compiles what anybody sends.
func TestHostileSchemasAreCheap(t *testing.T) {
	if costtest.RaceDetector {
		t.Skip("the bounds on processor time are those of a build without the race detector")
	}
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			costtest.Check(t, name, costtest.Default, func(context.Context) {
				_, err := compile(text)
				t.Logf("%d bytes: %.200v", len(text), err)
			})
		})
	}
}
