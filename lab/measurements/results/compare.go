package results

import (
	"errors"
	"fmt"
	"strings"

	"talf/lab/measurements/tables"
)

// Compare writes a table of ratios times scale, a row for each name and for each of the pairs, whose
// difference it is. of returns what a name has in a column.
func Compare(what string, names []string, pairs [][2]string, columns []string, of func(loss string, i int) (Shares, error), decimals int, scale float64) (string, error) {
	text := func(i Interval) string {
		return Signed(fmt.Sprintf("%.*f [%.*f, %.*f]", decimals, scale*i.Value, decimals, scale*i.Low, decimals, scale*i.High))
	}
	var rows [][]string
	for _, name := range names {
		row := []string{"`" + name + "`"}
		for i := range columns {
			s, err := of(name, i)
			if err != nil {
				return "", err
			}
			row = append(row, text(s.Pooled()))
		}
		rows = append(rows, row)
	}
	more, err := differ(pairs, columns, of, func(p, q Shares) string { return text(p.Minus(q)) })
	return tables.Markdown(append([]string{what}, columns...), append(rows, more...)), err
}

// EachSeed writes a table of the seeds' own differences in τ.
func EachSeed(pairs [][2]string, columns []string, of func(loss string, i int) (Shares, error)) (string, error) {
	rows, err := differ(pairs, columns, of, func(p, q Shares) string {
		var each []string
		for _, v := range p.BySeed(q) {
			each = append(each, Signed(fmt.Sprintf("%.2f", v)))
		}
		return strings.Join(each, " / ")
	})
	return tables.Markdown(append([]string{"τ, seed by seed"}, columns...), rows), err
}

// differ returns a row for each pair.
func differ(pairs [][2]string, columns []string, of func(loss string, i int) (Shares, error), text func(p, q Shares) string) ([][]string, error) {
	var rows [][]string
	for _, d := range pairs {
		row := []string{d[0] + " − " + d[1]}
		for i := range columns {
			p, err := of(d[0], i)
			q, err2 := of(d[1], i)
			if err := errors.Join(err, err2); err != nil {
				return nil, err
			}
			row = append(row, text(p, q))
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Found returns what was measured of k.
func Found[K comparable, V any](m map[K]V, k K) (V, error) {
	v, ok := m[k]
	if !ok {
		return v, fmt.Errorf("nothing was measured of %v", k)
	}
	return v, nil
}
