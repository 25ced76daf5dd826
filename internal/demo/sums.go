package demo

import (
	"fmt"
	"strconv"
	"strings"
)

// Goods are what sums count.
var Goods = []string{"apples", "shells", "marbles", "stickers", "books", "cookies", "pencils", "eggs", "coins", "cards", "buttons", "stones"}

// Boxes are what goods are in.
var Boxes = []string{"boxes", "bags", "baskets", "jars", "rows"}

// words spells 0 to 144.
func words(n int) string {
	small := strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
	tens := strings.Fields("twenty thirty forty fifty sixty seventy eighty ninety")
	switch {
	case n < 20:
		return small[n]
	case n < 100 && n%10 == 0:
		return tens[n/10-2]
	case n < 100:
		return tens[n/10-2] + "-" + small[n%10]
	case n == 100:
		return "one hundred"
	}
	return "one hundred " + words(n-100)
}

// sum writes one worked example; the prompt stops before the answer.
func (w *Writer) sum() Document {
	h, g := Two(w, Persons)
	a, b := Two(w, Goods)
	w.Bind = map[string]string{
		"h": h.Name, "he": h.He, "his": h.His, "him": h.Him, "He": Title(h.He), "g": g.Name,
		"x": a, "y": b, "box": Pick(w, Boxes), "color": Pick(w, Colors), "day": Pick(w, Days),
	}
	num := func(key string, n int) { w.Bind[key] = strconv.Itoa(n) }
	switch w.Intn(8) {
	case 0: // addition, two kinds
		m, n := w.Between(2, 40), w.Between(2, 40)
		num("m", m)
		num("n", n)
		num("r", m+n)
		return w.answer("{h} has {m} {x} and {n} {y}. How many things does {h} have [in all|altogether|in total]?",
			"{h} has {m} {x} and {n} {y}. That is {m} + {n} = {r} things [in all|altogether|in total].", m+n)
	case 1: // taking away
		m := w.Between(10, 60)
		n := w.Between(2, m-2)
		num("m", m)
		num("n", n)
		num("r", m-n)
		return w.answer("{h} had {m} {x}. {He} [gave {n} of them to {g}|lost {n} of them on {day}|sold {n} of them]. How many {x} are left?",
			"{h} had {m} {x} and {n} are gone. {m} - {n} = {r}, so {r} {x} are left.", m-n)
	case 2: // groups
		m, n := w.Between(2, 9), w.Between(2, 9)
		num("m", m)
		num("n", n)
		num("r", m*n)
		return w.answer("{h} has {m} {box} with {n} {x} in each. How many {x} are there?",
			"There are {m} {box} and each has {n} {x}. {m} * {n} = {r}, so there are {r} {x}.", m*n)
	case 3: // two steps
		m, n, k := w.Between(2, 9), w.Between(2, 9), w.Between(2, 20)
		num("m", m)
		num("n", n)
		num("k", k)
		num("p", m*n)
		num("r", m*n+k)
		return w.answer("{h} fills {m} {box} with {n} {x} each. On {day}, {g} brings {k} more {x}. How many {x} do they have now?",
			"First, {h} has {m} * {n} = {p} {x}. Then {g} brings {k} more, which makes {p} + {k} = {r} {x}.", m*n+k)
	case 4: // two steps the other way
		m, n := w.Between(5, 40), w.Between(5, 40)
		k := w.Between(2, m+n-2)
		num("m", m)
		num("n", n)
		num("k", k)
		num("p", m+n)
		num("r", m+n-k)
		return w.answer("{h} found {m} {x} on {day} and {n} more the next day. Then {he} gave {k} {x} to {g}. How many {x} does {h} have now?",
			"In two days {h} found {m} + {n} = {p} {x}. After giving {k} to {g}, {he} has {p} - {k} = {r} {x}.", m+n-k)
	case 5: // sharing
		n, r := w.Between(2, 9), w.Between(2, 9)
		num("m", n*r)
		num("n", n)
		num("r", r)
		return w.answer("{h} shares {m} {x} equally among {n} [friends|children|plates]. How many {x} are there for each?",
			"There are {m} {x} to share among {n}. {m} / {n} = {r}, so there are {r} {x} for each.", r)
	case 6: // in words
		m, n := w.Between(1, 20), w.Between(1, 20)
		w.Bind["m"], w.Bind["n"], w.Bind["r"] = words(m), words(n), words(m+n)
		return w.answer("What is {m} plus {n}?", "{m} plus {n} is {r}.", m+n)
	}
	// counting on
	m, step := w.Between(1, 20), w.Between(2, 9)
	num("m", m)
	num("n", step)
	list := make([]string, 6)
	for i := range list {
		list[i] = strconv.Itoa(m + i*step)
	}
	w.Bind["list"] = strings.Join(list, ", ")
	return w.answer("Start at {m} and count on in steps of {n}. Which number comes [after five steps|as the fifth after {m}]?",
		"Count on: {list}.", m+5*step)
}

// Days are those of a week.
var Days = []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}

// hints open a worked answer. A name follows, or a word that starts a sentence.
const hints = "[|Let us see. |Think step by step. |This is easy. |Work it out. |Look at the numbers. ]"

func (w *Writer) answer(question, worked string, result int) Document {
	a := w.Expand(worked)
	return Document{
		Prompt: "Question: " + w.Expand(question) + "\nAnswer:",
		Answer: fmt.Sprintf(" %s\nThe answer is %d.", Title(w.Expand(hints)+a), result),
	}
}
