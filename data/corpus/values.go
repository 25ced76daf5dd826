package corpus

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// A valueReader splits a stream into JSON values and holds only one of them at a time:
// the elements of an array, or consecutive values. It only finds where a value ends; an
// error inside concerns only that value.
type valueReader struct {
	r    *bufio.Reader
	max  int // maximum bytes kept of a value
	line int
	off  int64 // bytes read
	open []byte
}

// maxNesting is the maximum nesting depth of a value, as in encoding/json.
const maxNesting = 10_000

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func (v *valueReader) byte() (byte, error) {
	c, err := v.r.ReadByte()
	if err != nil {
		return 0, err
	}
	v.off++
	if c == '\n' {
		v.line++
	}
	return c, nil
}

func (v *valueReader) unread(c byte) {
	_ = v.r.UnreadByte() // a byte was just read
	v.off--
	if c == '\n' {
		v.line--
	}
}

// skip returns the next byte that is not white space.
func (v *valueReader) skip() (byte, error) {
	for {
		c, err := v.byte()
		if err != nil || !isSpace(c) {
			return c, err
		}
	}
}

func (v *valueReader) wrong(format string, args ...any) error {
	return fmt.Errorf("line %d, byte %d: %s", v.line, v.off, fmt.Sprintf(format, args...))
}

// value reads the value that begins with c into buf, at most max+1 bytes of it, so that
// the caller can detect a longer one. n is the full length.
func (v *valueReader) value(buf []byte, c byte) (raw []byte, n int64, err error) {
	raw, start := buf[:0], v.off-1
	line := v.line
	v.open = v.open[:0]
	inString := false
	for {
		if len(raw) <= v.max {
			raw = append(raw, c)
		}
		switch {
		case inString && c == '\\':
			if c, err = v.byte(); err == nil {
				if len(raw) <= v.max {
					raw = append(raw, c)
				}
			}
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if len(v.open) == maxNesting {
				return raw, 0, v.wrong("a value nested more than %d times", maxNesting)
			}
			v.open = append(v.open, c+2) // the closing bracket, in ASCII
		case c == '}' || c == ']':
			if n := len(v.open); n == 0 || v.open[n-1] != c {
				return raw, 0, v.wrong("%q closes nothing", c)
			}
			v.open = v.open[:len(v.open)-1]
		}
		if err == nil && !inString && len(v.open) == 0 && (c == '"' || c == '}' || c == ']') {
			return raw, v.off - start, nil
		}
		if err == nil {
			c, err = v.byte()
		}
		if err == nil && !inString && len(v.open) == 0 && (isSpace(c) || c == ',' || c == ']' || c == '}') {
			v.unread(c) // a number or name ends where something else begins
			return raw, v.off - start, nil
		}
		if errors.Is(err, io.EOF) {
			if !inString && len(v.open) == 0 {
				return raw, v.off - start, nil
			}
			return raw, 0, fmt.Errorf("the file ends at byte %d inside a value that begins at line %d, byte %d", v.off, line, start)
		}
		if err != nil {
			return raw, 0, err
		}
	}
}

// elements calls each for every element of the array that begins with the next byte,
// with its number from 1, the line on which it starts, and the results of value.
func (v *valueReader) elements(each func(i, line int, raw []byte, n int64) error) error {
	if c, err := v.skip(); err != nil || c != '[' {
		return errors.Join(err, v.wrong("no array begins here"))
	}
	var buf []byte
	for i := 1; ; i++ {
		c, err := v.skip()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the file ends at byte %d inside the array, after %d elements", v.off, i-1)
		}
		if err != nil {
			return err
		}
		if c == ']' && i == 1 {
			break
		}
		if c == ',' || c == ']' || c == '}' {
			return v.wrong("%q where element %d of the array should be", c, i)
		}
		line := v.line
		raw, n, err := v.value(buf, c)
		if err != nil {
			return err
		}
		buf = raw
		if err := each(i, line, raw, n); err != nil {
			return err
		}
		c, err = v.skip()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the file ends at byte %d inside the array, after %d elements", v.off, i)
		}
		if err != nil {
			return err
		}
		if c == ']' {
			break
		}
		if c != ',' {
			return v.wrong("%q after element %d of the array, want a comma or ]", c, i)
		}
	}
	switch c, err := v.skip(); {
	case err == nil:
		return v.wrong("%q after the end of the array", c)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// all calls each for consecutive values with nothing or white space between them.
func (v *valueReader) all(each func(i, line int, raw []byte, n int64) error) error {
	var buf []byte
	for i := 1; ; i++ {
		c, err := v.skip()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if c == ',' || c == ']' || c == '}' {
			return v.wrong("%q where value %d should begin", c, i)
		}
		line := v.line
		raw, n, err := v.value(buf, c)
		if err != nil {
			return err
		}
		buf = raw
		if err := each(i, line, raw, n); err != nil {
			return err
		}
	}
}
