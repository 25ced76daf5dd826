package demo

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Writer expands templates. In a template [a|b|c] is a choice (choices nest), {x} a bound
// word and {2-9} a number. bits adds up the information of the choices made, an upper bound on the text's entropy:
// different choices may write the same text.
type Writer struct {
	rng  *rand.Rand
	Bind map[string]string
	bits float64
}

// NewWriter returns a writer that binds no word.
func NewWriter(seed uint64) *Writer { return &Writer{rng: NewRand(seed)} }

// Intn draws a number below n.
func (w *Writer) Intn(n int) int {
	w.bits += math.Log2(float64(n))
	return w.rng.IntN(n)
}

// Between draws a number from [lo, hi].
func (w *Writer) Between(lo, hi int) int { return lo + w.Intn(hi-lo+1) }

// Pick draws an entry.
func Pick[T any](w *Writer, list []T) T { return list[w.Intn(len(list))] }

// Two draws two different entries.
func Two[T any](w *Writer, list []T) (a, b T) {
	i := w.Intn(len(list))
	j := w.Intn(len(list) - 1)
	if j >= i {
		j++
	}
	return list[i], list[j]
}

// Expand returns a text that a template stands for.
func (w *Writer) Expand(t string) string {
	var b strings.Builder
	w.into(&b, t)
	return b.String()
}

func (w *Writer) into(b *strings.Builder, t string) {
	for {
		i := strings.IndexAny(t, "[{")
		if i < 0 {
			b.WriteString(t)
			return
		}
		b.WriteString(t[:i])
		if t[i] == '{' {
			end := i + strings.IndexByte(t[i:], '}')
			word, ok := w.Bind[t[i+1:end]]
			if !ok {
				if word, ok = w.number(t[i+1 : end]); !ok {
					list, ok := lists[t[i+1:end]]
					if !ok {
						panic("demo: no binding for " + t[i:end+1])
					}
					word = Pick(w, list)
				}
			}
			b.WriteString(word)
			t = t[end+1:]
			continue
		}
		options, end := alternatives(t[i:])
		w.into(b, Pick(w, options))
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

// Check expands every alternative once, so that a broken template is found without drawing it by
// chance.
func (w *Writer) Check(t string) {
	for {
		i := strings.IndexAny(t, "[{")
		if i < 0 {
			return
		}
		if t[i] == '{' {
			end := i + strings.IndexByte(t[i:], '}')
			w.Expand(t[i : end+1])
			t = t[end+1:]
			continue
		}
		options, end := alternatives(t[i:])
		for _, o := range options {
			w.Check(o)
		}
		t = t[i+end:]
	}
}

// number draws from a range that a template writes as {2-9}.
func (w *Writer) number(key string) (string, bool) {
	low, high, found := strings.Cut(key, "-")
	lo, err := strconv.Atoi(low)
	if !found || err != nil {
		return "", false
	}
	hi, err := strconv.Atoi(high)
	if err != nil || hi < lo {
		return "", false
	}
	return strconv.Itoa(w.Between(lo, hi)), true
}
