package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"talf/internal/limits"
	"talf/internal/vfs"
	"talf/internal/vfs/vfstest"
)

type line struct {
	N int `json:"n"`
}

// collect returns a config for lines {"n":…} and the numbers that it reads.
func collect(h Header) (Config, *[]int) {
	var got []int
	return Config{Kind: "a list of numbers", Header: h, Start: `{"n":`, Line: func(b []byte) error {
		var l line
		if err := json.Unmarshal(b, &l); err != nil {
			return err
		}
		if l.N < 0 {
			return ErrDrop
		}
		got = append(got, l.N)
		return nil
	}}, &got
}

var headed = Header{Format: "numbers-1", Settings: "these"}

func TestALogContinuesWhereItStopped(t *testing.T) {
	for name, h := range map[string]Header{"with header": headed, "without": {}} {
		for _, tail := range []string{"", `{"n":`, `{"n":4`, "\x00\x00\x00", "{\"n\":\x00\x00", "\n\n"} {
			t.Run(name+"/"+tail, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "log")
				var want []int
				for run := range 3 {
					c, got := collect(h)
					c.Sync = run == 1
					l, err := Open(path, c)
					if err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(*got, want) {
						t.Fatalf("run %d: read %v, want %v", run, *got, want)
					}
					for n := range 2 {
						want = append(want, 10*run+n)
						if err := l.Append(line{10*run + n}); err != nil {
							t.Fatal(err)
						}
					}
					if _, err := l.f.Write([]byte(tail)); err != nil {
						t.Fatal(err)
					}
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

func TestADroppedLineTakesTheRestWithIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	write(t, path, "{\"n\":1}\n{\"n\":-2}\n{\"n\":3}\n")
	c, got := collect(Header{})
	l, err := Open(path, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Append(line{2}), l.Sync(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "{\"n\":1}\n{\"n\":2}\n" || !slices.Equal(*got, []int{1}) {
		t.Errorf("read %v, the file holds %q", *got, b)
	}
}

func TestWhatFollowsEnoughLinesIsCutOff(t *testing.T) {
	for _, rest := range []string{"", "{\"index\":2}\n", "\x00\x00\n{\"index\":3}\n", "not a line"} {
		file := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(file, []byte("{\"index\":0}\n{\"index\":1}\n"+rest), 0o666); err != nil {
			t.Fatal(err)
		}
		n := 0
		l, err := Open(file, Config{
			Start:  `{"index":`,
			Line:   func([]byte) error { n++; return nil },
			Enough: func() bool { return n == 2 },
		})
		if err != nil {
			t.Errorf("followed by %q: %v", rest, err)
			continue
		}
		if err := errors.Join(l.Append(7), l.Close()); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != "{\"index\":0}\n{\"index\":1}\n7\n" {
			t.Errorf("followed by %q: %q, %v", rest, b, err)
		}
	}
}

func TestOtherFilesAreRefusedAndLeftAlone(t *testing.T) {
	for _, c := range []struct {
		h        Header
		in, want string
	}{
		{headed, "precious", "line 1: this is not a list of numbers"},
		{headed, "precious\n", "line 1: this is not a list of numbers"},
		{headed, "{\"format\":\"others-1\"}\n", "line 1: this is not a list of numbers"},
		{headed, "{\"format\":\"numbers-1\",\"settings\":\"those\"}\n", "line 1: made by another model"},
		{headed, "{\"format\":\"numbers-1\",\"settings\":\"these\"}\n{\"n\":1}\n{\"n\":\"x\"}\n", "line 3: json"},
		{Header{}, "precious", "line 1: this is not a list of numbers"},
		{Header{}, "{\"n\":1}\nprecious", "line 2: this is not a list of numbers"},
		{Header{}, "{\"n\":1}\nprecious\n", "line 2: invalid character"},
		{Header{}, "{\"n\":1}\nprecious\n", "this is not a list of numbers"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		write(t, path, c.in)
		conf, _ := collect(c.h)
		if _, err := Open(path, conf); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: error %v, want one that names the file and says %q", c.in, err, c.want)
		}
		if b, _ := os.ReadFile(path); string(b) != c.in {
			t.Errorf("%q became %q", c.in, b)
		}
	}
}

// The header is read even where no line is wanted.
func TestEnoughDoesNotSkipTheHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const text = "{\"format\":\"numbers-1\",\"settings\":\"those\"}\n"
	write(t, path, text)
	c, _ := collect(headed)
	c.Enough = func() bool { return true }
	if _, err := Open(path, c); !errors.Is(err, ErrSettings) {
		t.Errorf("error %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != text {
		t.Errorf("it became %q", b)
	}
}

func TestSyncFlushesEveryLine(t *testing.T) {
	for _, sync := range []bool{false, true} {
		l, err := Open(filepath.Join(t.TempDir(), "log"), Config{Sync: sync})
		if err != nil {
			t.Fatal(err)
		}
		flushed := 0
		stop := vfstest.Fail(t, func(op *vfs.Op) error {
			if op.Kind == vfs.Sync {
				flushed++
			}
			return nil
		})
		for range 2 {
			if err := l.Append(line{1}); err != nil {
				t.Error(err)
			}
		}
		if want := map[bool]int{true: 2}[sync]; flushed != want {
			t.Errorf("sync %v: flushed %d times, want %d", sync, flushed, want)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if want := map[bool]int{true: 2, false: 1}[sync]; flushed != want {
			t.Errorf("sync %v: flushed %d times once closed, want %d", sync, flushed, want)
		}
		stop()
	}
}

func TestALogIsWrittenByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(path, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Config{}); err == nil || !strings.Contains(err.Error(), "another run is writing here") {
		t.Errorf("error %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(path, Config{}); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

// If a disk is full and then has room again, nothing may follow the torn line.
func TestNothingIsWrittenAfterATornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	c, _ := collect(headed)
	l, err := Open(path, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append(line{1}); err != nil {
		t.Fatal(err)
	}
	stop := vfstest.FullDisk(t, 3, false)
	full := l.Append(line{2})
	if !errors.Is(full, syscall.ENOSPC) {
		t.Fatalf("error %v", full)
	}
	stop()
	if err := l.Append(line{3}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a line follows a torn one: %v", err)
	}
	_ = l.Close()
	c, got := collect(headed)
	if l, err = Open(path, c); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if !slices.Equal(*got, []int{1}) {
		t.Errorf("read %v, want 1 alone", *got)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"format\":\"numbers-1\",\"settings\":\"these\"}\n{\"n\":1}\n{\"n\""))
	f.Add([]byte("{\"n\":1}\n\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, h := range []Header{headed, {}} {
			c, got := collect(h)
			whole, err := c.Read(bytes.NewReader(b))
			if err != nil {
				continue
			}
			if whole > int64(len(b)) || len(*got) > bytes.Count(b[:whole], []byte("\n")) {
				t.Fatalf("%d lines in %d bytes of %d", len(*got), whole, len(b))
			}
			// Whole lines read the same again, with nothing to repair.
			c, again := collect(h)
			if n, err := c.Read(bytes.NewReader(b[:whole])); err != nil || n != whole || !slices.Equal(*again, *got) {
				t.Fatalf("read again: %d of %d bytes, %v, %v", n, whole, *again, err)
			}
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLongLinesAreRefused(t *testing.T) {
	c, _ := collect(Header{})
	_, err := c.Read(strings.NewReader("{\"n\":1}\n{\"n\":2" + strings.Repeat(" ", limits.LineBytes) + "}\n"))
	if !errors.Is(err, limits.ErrTooLarge) || !strings.HasPrefix(err.Error(), "line 2: ") {
		t.Errorf("%v, want the line and ErrTooLarge", err)
	}
}
