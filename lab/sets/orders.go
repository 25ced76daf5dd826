package sets

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"talf/internal/demo"
	"talf/internal/durable"
)

// An Order is a text in which somebody orders something, and the same as JSON: what a model is trained
// on that answers in a schema.
type Order struct {
	Prompt string `json:"prompt"`
	Answer string `json:"text"`
}

// OrderSchema is the JSON Schema of the answers.
func OrderSchema() []byte {
	type object = map[string]any
	items := object{
		"type": "object", "required": []string{"count", "name"}, "additionalProperties": false,
		"properties": ordered{
			{"count", object{"type": "integer", "minimum": 1, "maximum": 999}},
			{"color", object{"enum": demo.Colors}},
			{"name", object{"type": "string", "minLength": 1, "maxLength": 40}},
		},
	}
	b, err := json.MarshalIndent(object{
		"type": "object", "required": []string{"customer", "day", "items", "delivery"}, "additionalProperties": false,
		"properties": ordered{
			{"customer", object{"type": "string", "minLength": 1, "maxLength": 40}},
			{"day", object{"enum": demo.Days}},
			{"items", object{"type": "array", "items": items, "minItems": 1, "maxItems": 4}},
			{"delivery", object{"type": "boolean"}},
			{"address", object{"type": "string", "maxLength": 80}},
			{"note", object{"type": "string", "maxLength": 120}},
		},
	}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("sets: the schema of orders: %v", err)) // it is made of strings and numbers
	}
	return append(b, '\n')
}

// ordered is a JSON object whose properties stay in their order.
type ordered []property

type property struct {
	name  string
	value any
}

func (o ordered) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, p := range o {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(p.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(p.value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// orderTexts say {items}, the day and, some of them, where to and what else.
var orderTexts = []string{
	"[{h} would like|{h} wants to order|{h} asks for|{h} needs] {items} [for|by|on] {day}.",
	"[Please send|Can you get|I would like to order] {items} for {h}, [for|by|on] {day}.",
	"\"[I am|This is|My name is] {h}. [I need|I would like|Please keep] {items} until {day}.\"",
	"On {day}, {h} [buys|picks up|takes] {items}.",
}

var orderAddresses = []string{
	"the [old|big|white] house {spot}", "{2-98} {Color} Street", "the {place} school", "{2-98} {Animal} Lane, near the {place}", "the shop of {g}",
}

var orderNotes = []string{
	"Ring the bell [twice|three times] and wait.", "It is a [present|surprise] for {g}.", "{g} pays for [it|half of it|all].", "Beware of the {adj} {animal}.",
	"Put everything {spot}.", "Only if the {noun} is {adj}.", "{g} will be at home [before noon|after five|all day].",
}

// order draws an order.
func order(w *demo.Writer) Order {
	bindSet(w)
	w.Bind["Color"], w.Bind["spot"] = demo.Title(demo.Pick(w, demo.Colors)), demo.Pick(w, demo.Spots)
	answer := ordered{{"customer", w.Bind["h"]}, {"day", w.Bind["day"]}}
	var items []ordered
	var said []string
	goods := slices.Concat(demo.Goods, wordsOfSets["foods"])
	for range 1 + w.Intn(3) {
		name := demo.Pick(w, goods)
		count := w.Between(2, 9)
		if w.Intn(3) == 0 {
			count = w.Between(10, 240)
		}
		item, text := ordered{{"count", count}}, fmt.Sprint(count)
		if w.Intn(2) == 0 {
			color := demo.Pick(w, demo.Colors)
			item, text = append(item, property{"color", color}), text+" "+color
		}
		items, said = append(items, append(item, property{"name", name})), append(said, text+" "+name)
	}
	last := len(said) - 1
	w.Bind["items"] = said[last]
	if last > 0 {
		w.Bind["items"] = strings.Join(said[:last], ", ") + " and " + said[last]
	}
	text := w.Expand(demo.Pick(w, orderTexts))
	answer = append(answer, property{"items", items})
	if w.Intn(2) == 0 {
		where := w.Expand(demo.Pick(w, orderAddresses))
		text += w.Expand(" [Bring it to|It goes to|The address is] ") + where + "."
		answer = append(answer, property{"delivery", true}, property{"address", where})
	} else {
		answer = append(answer, property{"delivery", false})
	}
	if w.Intn(2) == 0 {
		note := w.Expand(demo.Pick(w, orderNotes))
		text += " " + note
		answer = append(answer, property{"note", note})
	}
	b, err := answer.MarshalJSON()
	if err != nil {
		panic(fmt.Sprintf("sets: an order: %v", err)) // it is made of strings and numbers
	}
	return Order{"Order: " + text + "\nJSON:\n", string(b)}
}

// Orders draws n different orders, to train on or to measure on. None is among both, whatever the seeds.
func Orders(seed uint64, n int, training bool) []Order {
	w := demo.NewWriter(seed)
	from := demo.ForTesting
	if training {
		from = demo.ForTraining
	}
	out := make([]Order, 0, n)
	seen := map[string]bool{}
	for len(out) < n {
		if o := order(w); !seen[o.Prompt] && demo.Stream(o.Prompt) == from {
			seen[o.Prompt] = true
			out = append(out, o)
		}
	}
	return out
}

// trainingOrders are what WriteOrders writes to train on.
const trainingOrders = 12000

// WriteOrders writes training.jsonl, lines {"prompt": …, "text": …}, test.jsonl, lines {"text": …} of
// prompts to measure on, and schema.json to dir.
func WriteOrders(dir string) error {
	if err := durable.MakeDirs(dir); err != nil {
		return fmt.Errorf("demo orders: %w", err)
	}
	if err := demo.WriteFile(filepath.Join(dir, "schema.json"), OrderSchema()); err != nil {
		return err
	}
	var prompts []string
	for _, o := range Orders(SetSeed, SetPrompts, false) {
		prompts = append(prompts, o.Prompt)
	}
	if err := demo.WriteJSONL(filepath.Join(dir, "test.jsonl"), Continued(prompts)); err != nil {
		return err
	}
	return demo.WriteLines(filepath.Join(dir, "training.jsonl"), Orders(SetSeed, trainingOrders, true))
}
