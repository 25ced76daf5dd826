package table_test

import (
	"bytes"
	"errors"
	"testing"

	"talf/internal/table"
)

func TestTablesForTerminalsAndDocuments(t *testing.T) {
	tables := []table.Table{
		{Caption: "All sets", Header: []string{"method", "τ"}, Cells: [][]string{{"salf:th=0.4", "2.1"}, {"ar", "1"}}},
		{Header: []string{"set"}, Cells: [][]string{{"a"}}},
	}
	for want, markdown := range map[string]bool{
		"All sets\n\nmethod       τ\nsalf:th=0.4  2.1\nar           1\n\nset\na\n":                            false,
		"All sets\n\n| method | τ |\n|---|---|\n| salf:th=0.4 | 2.1 |\n| ar | 1 |\n\n| set |\n|---|\n| a |\n": true,
	} {
		var b bytes.Buffer
		if err := table.Write(&b, tables, markdown); err != nil || b.String() != want {
			t.Errorf("Markdown %v: %v\n%s\nwant\n%s", markdown, err, &b, want)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrorsAreReturned(t *testing.T) {
	for _, markdown := range []bool{false, true} {
		if err := table.Write(full{}, []table.Table{{Header: []string{"a"}}}, markdown); err == nil {
			t.Errorf("Markdown %v: no error", markdown)
		}
	}
}
