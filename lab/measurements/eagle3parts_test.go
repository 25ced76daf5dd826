package measurements

import (
	"strings"
	"testing"

	"talf/lab/measurements/results"
	"talf/lab/measurements/tables"
)

// Every row but the first of its kind changes one thing of that one.
func TestAPartChangesOneThing(t *testing.T) {
	for i := range parts {
		p, b := &parts[i], &parts[parts[i].base()]
		changed := 0
		for _, differs := range []bool{p.network != b.network, p.loss != b.loss, p.labels != b.labels, p.vocab != b.vocab} {
			if differs {
				changed++
			}
		}
		if want := min(1, i-p.base()); changed != want {
			t.Errorf("%s: %s changes %d things, want %d", p.group, p.value, changed, want)
		}
	}
}

func TestCommandsOfParts(t *testing.T) {
	l := &lab{work: "w"}
	shown := shownPart(l)
	for i := range parts {
		c := typed("talf", tttArgs(l, parts[i].labels.name, parts[i].network, parts[i].loss, "", partDir(l, partName(i)), "1", 1, 1))
		if got, want := shown(c), parts[i].base() == i; got != want {
			t.Errorf("%s is shown: %v, want %v:\n%s", partName(i), got, want, c)
		}
	}
}

func TestTablesOfParts(t *testing.T) {
	var names []string
	for i := range parts {
		names = append(names, partName(i))
	}
	p := &results.Pool{}
	for _, half := range [][]string{names[:5], names[5:]} {
		r, log := writeAnswers(t, half)
		r.ByRank = nil
		if err := p.Add(r, log); err != nil {
			t.Fatal(err)
		}
	}
	body, err := partTables(p, 32)
	if err != nil {
		t.Fatal(err)
	}
	// The i-th head of a half has 1.5+i tokens per pass.
	for _, c := range [][3]string{
		{"steps: 7", "T=0", "1.50 [1.50, 1.50]"},
		{"steps: 3", "T=0", "3.50 [3.50, 3.50]"},
		{"taps: last, 12", "T=1", "4.50 [4.50, 4.50]"},
	} {
		if got, err := tables.Cell(body, c[0], c[1]); err != nil || got != c[2] {
			t.Errorf("%s, %s: %q (%v), want %q", c[0], c[1], got, err, c[2])
		}
	}
	for _, row := range []string{
		"| steps: 7 | 1.50 [1.50, 1.50] |  | 1.50 [1.50, 1.50] |  |",
		"| steps: 3 | 3.50 [3.50, 3.50] | **+2.00 [2.00, 2.00]** | 3.50 [3.50, 3.50] | **+2.00 [2.00, 2.00]** |",
		"| trees: k 4, depth 3 | 5.50 [5.50, 5.50] |  | 5.50 [5.50, 5.50] |  |",
		"| trees: k 1, depth 3 | 9.50 [9.50, 9.50] | **+4.00 [4.00, 4.00]** | 9.50 [9.50, 9.50] | **+4.00 [4.00, 4.00]** |",
	} {
		if !strings.Contains(body, row+"\n") {
			t.Errorf("no row %s in\n%s", row, body)
		}
	}
	delete(p.Tau, results.Drafted{Spec: tttMethods[0], Temperature: 1, Loss: "part4"})
	if _, err := partTables(p, 32); err == nil || !strings.Contains(err.Error(), "part4") {
		t.Errorf("%v, want an error about the head that was not measured", err)
	}
}
