package score

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"talf/internal/ijson"
	"talf/internal/limits"
)

// Read reads inputs, one JSON object per line, from r, which errors call name. Blank lines are
// skipped.
func Read(name string, r io.Reader) ([]Input, error) {
	var all []Input
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := limits.ReadLine(lines, limits.LineBytes)
		switch {
		case errors.Is(err, limits.ErrTooLarge):
			return nil, fmt.Errorf("%s, line %d: %w", name, n, err)
		case err != nil && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			in := Input{Place: fmt.Sprintf("%s, line %d", name, n)}
			if err := in.parse(line); err != nil {
				return nil, fmt.Errorf("%s: %w", in.Place, err)
			}
			all = append(all, in)
		}
		if err != nil {
			return all, nil
		}
	}
}

func (in *Input) parse(line []byte) error {
	if err := ijson.UnmarshalKnown(line, in); err != nil {
		return err
	}
	return in.Validate()
}
