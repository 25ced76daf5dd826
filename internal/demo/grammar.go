package demo

import (
	"math"
	"math/rand/v2"
	"strings"
)

// writer expands templates. In a template [a|b|c] is a choice (choices nest), {x} a bound
// word and {2-9} a number. bits adds up the information of the choices made, an upper bound on the text's entropy:
// different choices may write the same text.
type writer struct {
	rng  *rand.Rand
	bind map[string]string
	bits float64
}

func (w *writer) intn(n int) int {
	w.bits += math.Log2(float64(n))
	return w.rng.IntN(n)
}

// between draws a number from [lo, hi].
func (w *writer) between(lo, hi int) int { return lo + w.intn(hi-lo+1) }

func pick[T any](w *writer, list []T) T { return list[w.intn(len(list))] }

// two draws two different entries.
func two[T any](w *writer, list []T) (a, b T) {
	i := w.intn(len(list))
	j := w.intn(len(list) - 1)
	if j >= i {
		j++
	}
	return list[i], list[j]
}

func (w *writer) expand(t string) string {
	var b strings.Builder
	w.into(&b, t)
	return b.String()
}

func (w *writer) into(b *strings.Builder, t string) {
	for {
		i := strings.IndexAny(t, "[{")
		if i < 0 {
			b.WriteString(t)
			return
		}
		b.WriteString(t[:i])
		if t[i] == '{' {
			end := i + strings.IndexByte(t[i:], '}')
			word, ok := w.bind[t[i+1:end]]
			if !ok {
				if word, ok = w.number(t[i+1 : end]); !ok {
					list, ok := lists[t[i+1:end]]
					if !ok {
						panic("demo: no binding for " + t[i:end+1])
					}
					word = pick(w, list)
				}
			}
			b.WriteString(word)
			t = t[end+1:]
			continue
		}
		options, end := alternatives(t[i:])
		w.into(b, pick(w, options))
		t = t[i+end:]
	}
}

// alternatives splits the choice that t starts with and returns its length.
func alternatives(t string) (options []string, end int) {
	depth, start := 0, 1
	for i := range len(t) {
		switch t[i] {
		case '[':
			depth++
		case '|':
			if depth == 1 {
				options = append(options, t[start:i])
				start = i + 1
			}
		case ']':
			if depth--; depth == 0 {
				return append(options, t[start:i]), i + 1
			}
		}
	}
	panic("demo: no end of the choice " + t)
}

// check expands every alternative once, so that a broken template is found without drawing it by
// chance.
func (w *writer) check(t string) {
	for {
		i := strings.IndexAny(t, "[{")
		if i < 0 {
			return
		}
		if t[i] == '{' {
			end := i + strings.IndexByte(t[i:], '}')
			w.expand(t[i : end+1])
			t = t[end+1:]
			continue
		}
		options, end := alternatives(t[i:])
		for _, o := range options {
			w.check(o)
		}
		t = t[i+end:]
	}
}
