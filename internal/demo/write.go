package demo

import (
	"encoding/json"
	"fmt"
)

// VocabSize is that of the embedded target.
const VocabSize = 1024

// TrainSeed is the seed of the text that the embedded target was trained on.
const TrainSeed = 2

// WriteJSONL writes documents to a file, one line {"text": …} each.
func WriteJSONL(path string, docs []Document) error {
	lines := make([]map[string]string, len(docs))
	for i, d := range docs {
		lines[i] = map[string]string{"text": d.Text()}
	}
	return WriteLines(path, lines)
}

// WriteLines writes values to a file, a line of JSON each.
func WriteLines[T any](path string, values []T) error {
	var out []byte
	for _, v := range values {
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("demo texts: %w", err)
		}
		out = append(append(out, b...), '\n')
	}
	if err := WriteFile(path, out); err != nil {
		return fmt.Errorf("demo texts: %w", err)
	}
	return nil
}
