package transcode

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"talf/internal/limits"
	"talf/internal/limits/costtest"
)

func TestEachKeepsOrderAndNumbersLines(t *testing.T) {
	var in, want strings.Builder
	failures := 0
	for n := 1; n <= 5*batchLines; n++ {
		switch {
		case n%5 == 0:
			fmt.Fprintln(&in, " ")
		case n%7 == 0:
			failures++
			fallthrough
		default:
			fmt.Fprintf(&in, "line %d\n", n)
			fmt.Fprintf(&want, "%d: line %d\n", n, n)
		}
	}
	for _, threads := range []int{0, 1, 3} {
		var out strings.Builder
		failed, err := Each(t.Context(), "input", strings.NewReader(in.String()), &out, threads, func(dst, line []byte, at int) ([]byte, bool, error) {
			return fmt.Appendf(dst, "%d: %s", at, bytes.TrimSpace(line)), at%7 == 0, nil
		})
		if err != nil || failed != failures || out.String() != want.String() {
			t.Errorf("%d threads: %d failed, want %d; %v; %d bytes, want %d", threads, failed, failures, err, out.Len(), want.Len())
		}
	}
}

// Answers before an invalid line are written, and nothing for the invalid line.
func TestEachEndsAtTheFirstMistake(t *testing.T) {
	const bad = batchLines + 3
	var out strings.Builder
	_, err := Each(t.Context(), "input", strings.NewReader(strings.Repeat("x\n", 3*batchLines)), &out, 2, func(dst, line []byte, at int) ([]byte, bool, error) {
		dst = append(dst, 'y')
		if at >= bad {
			return dst, false, lineError{errors.New("wrong")}
		}
		return dst, false, nil
	})
	if err == nil || err.Error() != fmt.Sprintf("input, line %d: wrong", bad) {
		t.Errorf("error %v", err)
	}
	if want := strings.Repeat("y\n", bad-1); out.String() != want {
		t.Errorf("%d bytes, want %d", out.Len(), len(want))
	}
}

// A client may write a line and wait for its answer before writing the next.
func TestEachAnswersWhoWaits(t *testing.T) {
	in, ask := io.Pipe()
	answer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := Each(t.Context(), "input", in, out, 2, func(dst, line []byte, _ int) ([]byte, bool, error) {
			return append(append(dst, "re: "...), bytes.TrimSpace(line)...), false, nil
		})
		ended <- err
	}()
	answers := bufio.NewReader(answer)
	for _, text := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(ask, text); err != nil {
			t.Fatal(err)
		}
		if got, err := answers.ReadString('\n'); err != nil || got != "re: "+text {
			t.Errorf("%q, %v", got, err)
		}
	}
	_ = ask.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A line that is too long is not held whole, and the error names it.
func TestEachRefusesLongLines(t *testing.T) {
	costtest.Check(t, "200 MB line", costtest.Bound{Yards: costtest.Default.Yards, Bytes: 100 << 20}, func(ctx context.Context) {
		in := io.MultiReader(strings.NewReader("x\n\nx\n"), &repeated{left: 200 << 20}, strings.NewReader("\n"))
		var out strings.Builder
		_, err := Each(ctx, "input", in, &out, 2, func(dst, line []byte, _ int) ([]byte, bool, error) { return append(dst, line[0]), false, nil })
		if !errors.Is(err, limits.ErrTooLarge) || !strings.Contains(err.Error(), "input, line 4: a line of more than 16777216 bytes") || out.String() != "x\nx\n" {
			t.Errorf("%v after %q", err, out.String())
		}
	})
}

// repeated is a reader of many equal bytes.
type repeated struct{ left int }

func (r *repeated) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), r.left)
	for i := range p[:n] {
		p[i] = 'a'
	}
	r.left -= n
	return n, nil
}
