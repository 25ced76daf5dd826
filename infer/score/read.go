package score

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"talf/internal/jsonl"
)

// maxLine is the largest number of bytes in a line.
const maxLine = 64 << 20

// Read reads inputs, one JSON object per line, from r, which errors call name. Blank lines are
// skipped.
func Read(name string, r io.Reader) ([]Input, error) {
	var all []Input
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for n := 1; s.Scan(); n++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		in := Input{Place: fmt.Sprintf("%s, line %d", name, n)}
		if err := in.parse(s.Bytes()); err != nil {
			return nil, fmt.Errorf("%s: %w", in.Place, err)
		}
		all = append(all, in)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return all, nil
}

func (in *Input) parse(line []byte) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return jsonl.Plain(err)
	}
	if _, more := d.Token(); !errors.Is(more, io.EOF) {
		return errors.New("text after the JSON object")
	}
	return in.Validate()
}
