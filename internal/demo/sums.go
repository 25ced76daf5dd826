package demo

import (
	"fmt"
	"strconv"
	"strings"
)

var goods = []string{"apples", "shells", "marbles", "stickers", "books", "cookies", "pencils", "eggs", "coins", "cards", "buttons", "stones"}

var boxes = []string{"boxes", "bags", "baskets", "jars", "rows"}

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
func (w *writer) sum() Document {
	h, g := two(w, persons)
	a, b := two(w, goods)
	w.bind = map[string]string{
		"h": h.name, "he": h.he, "his": h.his, "him": h.him, "He": title(h.he), "g": g.name,
		"x": a, "y": b, "box": pick(w, boxes), "color": pick(w, colors), "day": pick(w, days),
	}
	num := func(key string, n int) { w.bind[key] = strconv.Itoa(n) }
	switch w.intn(8) {
	case 0: // addition, two kinds
		m, n := w.between(2, 40), w.between(2, 40)
		num("m", m)
		num("n", n)
		num("r", m+n)
		return w.answer("{h} has {m} {x} and {n} {y}. How many things does {h} have [in all|altogether|in total]?",
			"{h} has {m} {x} and {n} {y}. That is {m} + {n} = {r} things [in all|altogether|in total].", m+n)
	case 1: // taking away
		m := w.between(10, 60)
		n := w.between(2, m-2)
		num("m", m)
		num("n", n)
		num("r", m-n)
		return w.answer("{h} had {m} {x}. {He} [gave {n} of them to {g}|lost {n} of them on {day}|sold {n} of them]. How many {x} are left?",
			"{h} had {m} {x} and {n} are gone. {m} - {n} = {r}, so {r} {x} are left.", m-n)
	case 2: // groups
		m, n := w.between(2, 9), w.between(2, 9)
		num("m", m)
		num("n", n)
		num("r", m*n)
		return w.answer("{h} has {m} {box} with {n} {x} in each. How many {x} are there?",
			"There are {m} {box} and each has {n} {x}. {m} * {n} = {r}, so there are {r} {x}.", m*n)
	case 3: // two steps
		m, n, k := w.between(2, 9), w.between(2, 9), w.between(2, 20)
		num("m", m)
		num("n", n)
		num("k", k)
		num("p", m*n)
		num("r", m*n+k)
		return w.answer("{h} fills {m} {box} with {n} {x} each. On {day}, {g} brings {k} more {x}. How many {x} do they have now?",
			"First, {h} has {m} * {n} = {p} {x}. Then {g} brings {k} more, which makes {p} + {k} = {r} {x}.", m*n+k)
	case 4: // two steps the other way
		m, n := w.between(5, 40), w.between(5, 40)
		k := w.between(2, m+n-2)
		num("m", m)
		num("n", n)
		num("k", k)
		num("p", m+n)
		num("r", m+n-k)
		return w.answer("{h} found {m} {x} on {day} and {n} more the next day. Then {he} gave {k} {x} to {g}. How many {x} does {h} have now?",
			"In two days {h} found {m} + {n} = {p} {x}. After giving {k} to {g}, {he} has {p} - {k} = {r} {x}.", m+n-k)
	case 5: // sharing
		n, r := w.between(2, 9), w.between(2, 9)
		num("m", n*r)
		num("n", n)
		num("r", r)
		return w.answer("{h} shares {m} {x} equally among {n} [friends|children|plates]. How many {x} are there for each?",
			"There are {m} {x} to share among {n}. {m} / {n} = {r}, so there are {r} {x} for each.", r)
	case 6: // in words
		m, n := w.between(1, 20), w.between(1, 20)
		w.bind["m"], w.bind["n"], w.bind["r"] = words(m), words(n), words(m+n)
		return w.answer("What is {m} plus {n}?", "{m} plus {n} is {r}.", m+n)
	}
	// counting on
	m, step := w.between(1, 20), w.between(2, 9)
	num("m", m)
	num("n", step)
	list := make([]string, 6)
	for i := range list {
		list[i] = strconv.Itoa(m + i*step)
	}
	w.bind["list"] = strings.Join(list, ", ")
	return w.answer("Start at {m} and count on in steps of {n}. Which number comes [after five steps|as the fifth after {m}]?",
		"Count on: {list}.", m+5*step)
}

var days = []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}

// hints open a worked answer. A name follows, or a word that starts a sentence.
const hints = "[|Let us see. |Think step by step. |This is easy. |Work it out. |Look at the numbers. ]"

func (w *writer) answer(question, worked string, result int) Document {
	a := w.expand(worked)
	return Document{
		Prompt: "Question: " + w.expand(question) + "\nAnswer:",
		Answer: fmt.Sprintf(" %s\nThe answer is %d.", title(w.expand(hints)+a), result),
	}
}
