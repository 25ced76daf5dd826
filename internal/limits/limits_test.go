package limits_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/limits"
)

func TestFilesAreReadUpToTheirLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := limits.ReadFile(path, 5); err != nil || string(b) != "12345" {
		t.Errorf("%q, %v", b, err)
	}
	_, err := limits.ReadFile(path, 4)
	if !errors.Is(err, limits.ErrTooLarge) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want the path and ErrTooLarge", err)
	}
	if _, err := limits.ReadFile(path+"x", 4); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want ErrNotExist", err)
	}
	if _, err := limits.ReadFile(t.TempDir(), 4); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%v, want a directory refused", err)
	}
}

func TestReadersFailBeyondTheirLimit(t *testing.T) {
	for most, want := range map[int64]error{4: limits.ErrTooLarge, 5: nil, 6: nil} {
		b, err := io.ReadAll(limits.Reader(strings.NewReader("12345"), most, "the page"))
		if !errors.Is(err, want) || len(b) != int(min(most, 5)) {
			t.Errorf("limit %d: %q, %v", most, b, err)
		}
	}
}

func TestLinesAreReadUpToTheirLimit(t *testing.T) {
	long := strings.Repeat("x", 100)
	r := bufio.NewReaderSize(strings.NewReader("a\n"+long+"\nend"), 16)
	for _, want := range []string{"a\n", long + "\n", "end"} {
		line, err := limits.ReadLine(r, 101)
		if string(line) != want || err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("%q, %v, want %q", line, err, want)
		}
	}
	if _, err := limits.ReadLine(bufio.NewReader(strings.NewReader(long)), 99); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
}

func TestAMeterStopsWork(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	m := limits.NewMeter(ctx, limits.Budget{Steps: 1 << 20, Bytes: 100})
	if err := errors.Join(m.Alloc(60), m.Alloc(40)); err != nil {
		t.Fatal(err)
	}
	if err := m.Alloc(1); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge for bytes", err)
	}
	m.Free(40)
	if err := m.Alloc(40); err != nil {
		t.Error(err)
	}
	if err := m.Step(1 << 20); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge for steps", err)
	}
	m = limits.NewMeter(ctx, limits.Budget{Steps: 1 << 40})
	cancel()
	var err error
	for i := 0; i < 1<<20 && err == nil; i++ {
		err = m.Step(1)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's end", err)
	}
	if err := (*limits.Meter)(nil).Alloc(1 << 30); err != nil {
		t.Errorf("a nil meter: %v", err)
	}
}

func TestEveryLimitHasAReason(t *testing.T) {
	for _, l := range limits.Table() {
		if l.Of == "" || l.What == "" || l.Value <= 0 || l.Unit == "" || l.Why == "" {
			t.Errorf("%+v is incomplete", l)
		}
	}
}

func TestUnpackingIsBoundedByWhatIsPacked(t *testing.T) {
	const packed, times = 1000, 64
	for n, refused := range map[int64]bool{limits.UnpackFloor + times*packed: false, limits.UnpackFloor + times*packed + 1: true} {
		in := &limits.Counter{R: io.LimitReader(zeros{}, packed)}
		if _, err := io.Copy(io.Discard, in); err != nil || in.N != packed {
			t.Fatalf("%d bytes counted, %v", in.N, err)
		}
		got, err := io.Copy(io.Discard, limits.Unpacked(io.LimitReader(zeros{}, n), in, times, "zeros"))
		if refused != errors.Is(err, limits.ErrTooLarge) || refused && !strings.HasPrefix(err.Error(), "zeros: more than ") || !refused && got != n {
			t.Errorf("%d bytes of %d: %d read, %v", n, packed, got, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
