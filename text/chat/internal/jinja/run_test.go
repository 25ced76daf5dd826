package jinja

import (
	"context"
	"errors"
	"math/big"
	"strings"
	"testing"
)

// panicNode is a fault of the evaluator.
type panicNode struct{ value any }

func (n panicNode) exec(*run, *frame) signal { panic(n.value) }

func TestFaultsBecomeErrors(t *testing.T) {
	for want, value := range map[string]any{
		"runtime.boundsError: ":   nil, // see below
		"big.ErrNaN: ":            big.ErrNaN{},
		"string: negative repeat": "negative repeat",
		"*errors.errorString: x":  errors.New("x"),
		"int: 7":                  7,
	} {
		var body stmt = panicNode{value}
		if value == nil {
			body = faultNode{}
		}
		_, err := (&Template{body: []stmt{body}}).Render(context.Background(), NewDict(), Options{})
		var e *Error
		if !errors.As(err, &e) || e.Kind != "InternalError" || !strings.HasPrefix(e.Message, want) {
			t.Errorf("error %v, want an InternalError that says %s", err, want)
		}
	}
}

// faultNode reads beyond the end of a slice.
type faultNode struct{}

func (faultNode) exec(r *run, _ *frame) signal { return signal(r.out[len(r.out)]) }

// Words that end in sigma, and the letters that change their number, are lowered as
// Unicode says, wherever they stand.
func TestLowerCaseOfSigma(t *testing.T) {
	r := &run{}
	for s, want := range map[string]string{
		"ΑΣ": "ας", "ΑΣΑ": "ασα", "Σ": "σ", "ΣΣ": "σς", "Α Σ": "α σ", "ΑΣ.": "ας.", "ΑΣ.Α": "ασ.α", "Α.Σ": "α.ς",
		"ΑΣ\u0301": "ας\u0301", "A'Σ'": "a'ς'", "İ": "i\u0307", "1Σ": "1σ", "ǅΣ": "ǆς", "日Σ": "日σ",
	} {
		if got := r.lower(s); got != want {
			t.Errorf("%q becomes %q, want %q", s, got, want)
		}
	}
}

// Texts are found where the standard library finds them, on both sides of the length from
// which the rolling hash is used.
func TestIndexFindsWhatIsThere(t *testing.T) {
	r := &run{}
	for _, n := range []int{1, 2, 3, 62, 63, 64, 65, 200, 5000} {
		part := strings.Repeat("ab", n)[:n]
		for _, s := range []string{
			"", part, part + part, "x" + part, part + "x", strings.Repeat("a", 70000) + part + strings.Repeat("b", 70000),
			strings.Repeat("ab", 40000), part[:n-1], strings.Repeat("é", 3000) + part + "é" + part,
		} {
			if got, want := r.index(s, part), strings.Index(s, part); got != want {
				t.Errorf("index of %d bytes in %d: %d, want %d", n, len(s), got, want)
			}
			if got, want := r.lastIndex(s, part), strings.LastIndex(s, part); got != want {
				t.Errorf("last index of %d bytes in %d: %d, want %d", n, len(s), got, want)
			}
			if got, want := r.replace(s, part, "Z", 2), strings.Replace(s, part, "Z", 2); got != want {
				t.Errorf("replacing %d bytes in %d: another text", n, len(s))
			}
		}
	}
}
