package sets

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Answers say what their prompts say, with the properties of the schema in its order.
func TestOrdersSayWhatTheirTextsSay(t *testing.T) {
	var schema struct {
		Properties json.RawMessage
		Required   []string
	}
	if err := json.Unmarshal(OrderSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	names := keys(t, schema.Properties)
	training := map[string]bool{}
	for _, o := range Orders(3, 400, true) {
		training[o.Prompt] = true
	}
	optional := 0
	for _, o := range Orders(4, 400, false) {
		if training[o.Prompt] {
			t.Errorf("a prompt of the test was trained on: %q", o.Prompt)
		}
		if strings.ContainsAny(o.Prompt, "[]{}|") {
			t.Errorf("a template was not expanded: %q", o.Prompt)
		}
		at := -1
		has := keys(t, json.RawMessage(o.Answer))
		for _, k := range has {
			next := slices.Index(names, k)
			if next <= at {
				t.Errorf("%q is not in the order of the schema: %s", k, o.Answer)
			}
			at = next
		}
		for _, k := range schema.Required {
			if !slices.Contains(has, k) {
				t.Errorf("no %q: %s", k, o.Answer)
			}
		}
		var a struct {
			Customer, Day, Address, Note string
			Delivery                     bool
			Items                        []struct {
				Count       json.Number
				Color, Name string
			}
		}
		if err := json.Unmarshal([]byte(o.Answer), &a); err != nil {
			t.Fatal(err)
		}
		said := []string{a.Customer, a.Day, a.Address, a.Note}
		for _, i := range a.Items {
			said = append(said, strings.ReplaceAll(i.Count.String()+" "+i.Color+" "+i.Name, "  ", " "))
		}
		for _, s := range said {
			if !strings.Contains(o.Prompt, s) {
				t.Errorf("%q is not in %q", s, o.Prompt)
			}
		}
		if a.Delivery != (a.Address != "") || len(a.Items) == 0 {
			t.Errorf("an order without items, or delivered nowhere: %s", o.Answer)
		}
		if a.Note != "" {
			optional++
		}
	}
	if optional < 100 || optional > 300 {
		t.Errorf("%d of 400 orders have a note", optional)
	}
}

// keys are the names of an object's properties, in their order.
func keys(t *testing.T, object json.RawMessage) (out []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(object)))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		out = append(out, k.(string))
	}
	return out
}
