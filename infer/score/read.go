package score

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"talf/internal/ijson"
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
	if err := ijson.UnmarshalKnown(line, in); err != nil {
		return err
	}
	return in.Validate()
}
