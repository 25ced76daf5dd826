// Package sets writes the prompts that measurements use, and the orders that a model learns to answer in JSON.
package sets

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"talf/internal/demo"
	"talf/internal/durable"
)

// A Set draws prompts of one kind for the larger target of package gsm10m, which continues
// "Question: …\nAnswer:" and the beginnings of stories.
type Set struct {
	Name, Doc string
	training  int // prompts of training.jsonl
	draw      func(w *demo.Writer) string
}

// Sets returns the sets of prompts that measurements use, in the order of their tables.
func Sets() []Set {
	return []Set{
		{"problems", "word problems, to be answered step by step", 2600, func(w *demo.Writer) string { return question(w, problems) }},
		{"stories", "beginnings of stories, to be continued", 900, func(w *demo.Writer) string { return w.Story().Prompt }},
		{"chat", "requests of all kinds", 500, func(w *demo.Writer) string { return question(w, requests) }},
		{"code", "functions to complete", 300, func(w *demo.Writer) string { return question(w, functions) }},
		{"passages", "a story each, to be summed up", 200, func(w *demo.Writer) string {
			ask := demo.Pick(w, []string{"Sum up this story in one sentence.", "What is this story about?", "Tell this story in a few words.", "Who is in this story, and what happens?"})
			return asked(ask + "\n" + w.Story().Text())
		}},
		{"questions", "short questions about facts", 300, func(w *demo.Writer) string { return question(w, facts) }},
	}
}

// Training writes n different prompts to train draft models on.
func (s Set) Training(seed uint64, n int) []string { return s.distinct(seed, n, demo.ForTraining) }

// Testing writes n different prompts to measure on. None is among those of Training, whatever the
// seeds.
func (s Set) Testing(seed uint64, n int) []string { return s.distinct(seed, n, demo.ForTesting) }

func (s Set) distinct(seed uint64, n, from int) []string {
	w := demo.NewWriter(seed)
	out := make([]string, 0, n)
	seen := map[string]bool{}
	for tries := 0; len(out) < n; tries++ {
		if tries > 1000*(n+1) {
			panic(fmt.Sprintf("sets: %s has no %d different prompts", s.Name, n))
		}
		if p := s.draw(w); !seen[p] && demo.Stream(p) == from {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

func asked(question string) string { return "Question: " + question + "\nAnswer:" }

// question expands one of templates with words that stay the same within it.
func question(w *demo.Writer, templates []string) string {
	bindSet(w)
	return asked(w.Expand(demo.Pick(w, templates)))
}

func bindSet(w *demo.Writer) {
	h, g := demo.Two(w, demo.Persons)
	k := h
	for k == h || k == g {
		k = demo.Pick(w, demo.Persons)
	}
	w.Bind = map[string]string{
		"h": h.Name, "he": h.He, "him": h.Him, "his": h.His, "He": demo.Title(h.He), "His": demo.Title(h.His), "g": g.Name, "k": k.Name,
		"open": "[", "close": "]", "a": "{", "z": "}",
	}
	for _, name := range slices.Sorted(maps.Keys(wordsOfSets)) {
		w.Bind[name] = demo.Pick(w, wordsOfSets[name])
	}
	w.Bind["Animal"] = demo.Title(w.Bind["animal"])
}

// requests are what people ask of assistants, without right answers.
var requests = []string{
	"Write a [short|funny|polite] [letter|note|message] to {g}, who [forgot your birthday|is moving to another town|has won a {thing}|is sick at home].",
	"[Plan|Describe] a day at the [zoo|beach|market|library] for {2-6} children and ${20-90}.",
	"Give {h} [three|four|five] [ideas|tips] for [a birthday party|learning to cook|a rainy day|saving money|keeping a room tidy].",
	"Explain to a child why [the sky is blue|leaves fall in autumn|we sleep|ice floats|the moon changes its shape|bread rises].",
	"Make a list of things to take along [to the beach|on a long train ride|into the mountains|to {g}'s party].",
	"Write a poem of four lines about a {color} {thing} and a {animal}.",
	"Which is better for {h}, a [cat|dog|bird] or a [fish|hamster|rabbit]? {He} lives in a [small flat|house with a garden] and is away {3-10} hours a day.",
	"How do you make {food} for {2-8} people? List what is needed and the steps.",
	"Tell me about a [teacher|doctor|king|sailor] who loses a {color} {thing} in the {place}.",
	"{h} wants to ask {his} [boss|teacher|neighbor] for [a day off|help|more time]. What should {he} say?",
	"Put these words into [the order of the alphabet|one sentence]: {thing}, {animal}, {place}, {goods}, {food}.",
	"Compare [summer and winter|a bike and a car|a book and a movie|the city and the country]. Name [two|three] differences.",
	"Pretend that you are a {animal} in a {place}. What do you see in the morning?",
	"Write a [sign|slogan|short speech] for a shop that sells {goods} and {foods}.",
	"What would happen if [it never rained|nobody needed sleep|animals could talk|everyone had a {color} {thing}]?",
	"{h} has {2-9} {goods} and wants to trade them for a {thing}. What should {he} say to {g}?",
	"Name [three|five] games that {2-8} children can play with {goods}.",
	"Write down a talk between a {animal} and a {color} {thing}.",
}

// functions are beginnings of programs. {a} and {z} stand for braces, {open} and {close} for
// square brackets.
var functions = []string{
	"Complete the function.\ndef [add|sum_of|total](numbers):\n    \"\"\"Return the sum of the numbers[ that are larger than {2-20}| that are even| without the first].\"\"\"\n    result = ",
	"Complete the function.\ndef count_{thing}s(words):\n    \"\"\"Count how often \"{thing}\" is in the list of words. count_{thing}s({open}\"{thing}\", \"{animal}\"{close}) is 1.\"\"\"\n",
	"Complete the function.\ndef [largest|smallest|longest](items):\n    \"\"\"Return the [largest|smallest|longest] of the items, or {0-9} if there are none.\"\"\"\n    [best|result] = ",
	"Complete the function.\ndef is_{color}(name):\n    \"\"\"True if the name begins with \"{color}\" and has more than {2-12} letters.\"\"\"\n    return ",
	"What does this program print?\nx = {2-40}\ny = x * {2-9}\nwhile y > {2-30}:\n    y = y - {2-9}\nprint(x, y)",
	"What does this program print?\nfor i in range({2-9}):\n    if i % {2-4} == 0:\n        print(i * {2-20})",
	"Complete the function.\ndef price(number_of_{goods}):\n    \"\"\"One of the {goods} costs ${2-9}. From {10-30} on, each is ${1-3} less.\"\"\"\n    if ",
	"Complete the function.\nfunc average(values {open}{close}float64) float64 {a}\n\t// the mean of the values, or {0-9} of none\n\ttotal := 0.0\n",
	"Complete the function.\nfunc find(list {open}{close}string, word string) int {a}\n\t// the place of the word in the list, or -{1-9}\n\tfor i, x := range list {a}\n",
	"Complete the query.\nSELECT name, price FROM {goods} WHERE price > {2-90} AND color = '{color}' ORDER BY ",
	"Write a function that takes a list of {goods} and returns [those that cost more than ${2-20}|how many are {color}|the names in order].",
	"Find the mistake.\ndef half(n):\n    \"\"\"Return half of n. half({10-40}) is {2-20}.\"\"\"\n    return n * {2-4}\n",
	"Complete the function.\ndef {animal}_years(years):\n    \"\"\"A year of a {animal} counts as {2-12} years, the first two as {5-20} each.\"\"\"\n    if years <= ",
	"Write a test for a function that [adds two numbers|turns a word around|counts {goods}|sorts a list of {2-9} {goods}].",
	"What is the value of {open}n * {2-9} for n in range({2-9}) if n > {1-4}{close}?",
	"Complete the class.\nclass {Animal}:\n    def __init__(self, name, age={1-12}):\n        self.name = name\n        self.",
}

// facts are short questions.
var facts = []string{
	"[Who|What] is {h}'s [favorite {animal}|best friend|teacher]?",
	"[What|Which] [color|shape] is a [lemon|carrot|stop sign|ruby|leaf in spring|{thing}]?",
	"How many [days|weeks|months] are there in {2-9} [weeks|years]?",
	"[When|Where] do [birds|frogs|bears|bees|owls] [sleep|build their homes|spend the winter|find food]?",
	"What is {2-99} [plus|times|minus] {2-40}?",
	"How [tall|heavy|old|fast] [is|was] the [oldest|largest|smallest] {animal} in the {place}?",
	"Which [month|day] comes [after|before] [March|June|Sunday|August|Friday|Tuesday]?",
	"How many [legs|eyes|wings] do {2-12} [spiders|dogs|ducks|bees] have?",
	"What [do|did] [sailors|farmers|bakers|nurses] use a {thing} for?",
	"Who [found|painted|built|lost] the {color} {thing} in the {place}?",
	"How many [cents|nickels|dimes] are in ${2-30}?",
	"Where can {h} buy {goods} and {foods} on a {day}?",
	"Why is the {thing} of the [king|baker|captain|teacher] {color}?",
	"How many [inches|minutes|ounces] are there in {2-20} [feet|hours|pounds]?",
	"What is the [capital|largest river|highest mountain] of [France|Egypt|Japan|Brazil|Canada|Kenya]?",
	"When was the {adj} {noun} of the {place} [made|opened|first seen]?",
	"Is a {animal} [larger|faster|older] than a {noun}?",
}

// The prompts of the measurements.
const (
	SetSeed = 7
	// SetPrompts are measured of each set.
	SetPrompts = 80
)

// WriteSets writes the prompts to measure on to dir, a file NAME.jsonl for each set, and those to
// train draft models on to training.jsonl: lines {"text": …}, to be continued as they stand.
func WriteSets(dir string) error {
	if err := durable.MakeDirs(dir); err != nil {
		return fmt.Errorf("demo prompts: %w", err)
	}
	var training []demo.Document
	for _, s := range Sets() {
		if err := demo.WriteJSONL(filepath.Join(dir, s.Name+".jsonl"), Continued(s.Testing(SetSeed, SetPrompts))); err != nil {
			return err
		}
		training = append(training, Continued(s.Training(SetSeed, s.training))...)
	}
	// Mixed, so that any part of the file has all kinds.
	rng := demo.NewRand(SetSeed)
	rng.Shuffle(len(training), func(i, j int) { training[i], training[j] = training[j], training[i] })
	return demo.WriteJSONL(filepath.Join(dir, "training.jsonl"), training)
}

// Continued are documents that are prompts alone, to be continued as they stand.
func Continued(prompts []string) []demo.Document {
	out := make([]demo.Document, len(prompts))
	for i, p := range prompts {
		out[i].Prompt = p
	}
	return out
}
