package papers_test

import (
	"slices"
	"strings"
	"testing"

	"talf/infer/bench"
	"talf/infer/bench/benchtest"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
	"talf/lab/papers"
)

func TestExhibitsAreSelectedByNameAndByPublication(t *testing.T) {
	got, err := papers.Select([]string{"traversal", "salf:t4"})
	var names []string
	for _, x := range got {
		names = append(names, x.Name)
	}
	if want := "traversal:t2 traversal:t3 traversal:t4 traversal:fig3 salf:t4"; err != nil || strings.Join(names, " ") != want {
		t.Errorf("%q, %v, want %q", names, err, want)
	}
	if got, err := papers.Select([]string{"all"}); err != nil || len(got) != len(papers.Exhibits().Lines) {
		t.Errorf("all are %d, %v", len(got), err)
	}
}

func TestPapersNameMethodsThatExist(t *testing.T) {
	var names []string
	for _, p := range papers.Exhibits().Lines {
		if slices.Contains(names, p.Name) || p.Doc == "" || len(p.Variants) == 0 || p.Tables == nil {
			t.Errorf("%q: named twice, or without what it needs", p.Name)
		}
		names = append(names, p.Name)
		for _, v := range p.Variants {
			m, _, err := draft.Find(v.Spec)
			if err != nil {
				t.Errorf("%s, %s: %v", p.Name, v.Label, err)
				continue
			}
			if m.Source != (v.Ask != papers.AskNone) && !m.May {
				t.Errorf("%s, %s: %s asks a draft model: %v, the variant says %q", p.Name, v.Label, v.Spec, m.Source, v.Ask)
			}
			if _, err := verify.Find(v.Verify); v.Verify != "" && err != nil {
				t.Errorf("%s, %s: %v", p.Name, v.Label, err)
			}
		}
	}
	// What is cold stands beside the same that is warm.
	for _, p := range papers.Exhibits().Lines {
		for _, v := range p.Variants {
			warm := func(o papers.Variant) bool { return !o.Cold && o.Spec == v.Spec && o.Ask == v.Ask }
			if v.Cold && (!slices.ContainsFunc(p.Variants, warm) || v.Label != v.Spec+", cold") {
				t.Errorf("%s, %s: a cold variant without a warm one, or under another name", p.Name, v.Label)
			}
		}
	}
	if _, err := papers.Select([]string{"goose:t9"}); err == nil || !strings.Contains(err.Error(), "goose:t1") {
		t.Errorf("error %v, want one that lists the names", err)
	}
}

// All papers share one run: tables are complete, and every variant that was not left out has
// figures.
func TestPapersShareOneRun(t *testing.T) {
	e, target := benchtest.Engine()
	src := func(agree float64) *drafttest.Source { return &drafttest.Source{Target: target, Agree: agree} }
	kit := &papers.Kit{
		Sources: []bench.Source{
			{Name: "my-eagle", Source: src(0.5)},
			{Name: "talf-2", Source: src(0.9)},
			{Name: "small", LM: true, Source: src(0.7)},
			{Name: "tiny", LM: true, Source: src(0.4)},
		},
		MaxTokens: 8, Temperatures: []float64{0, 1},
	}
	c := bench.Default()
	c.Temperatures = nil
	c.Sets = []bench.Set{{Name: "a", Prompts: benchtest.Prompts(2, 20)}, {Name: "b", Prompts: benchtest.Prompts(2, 20)}}
	c.MaxTokens = kit.MaxTokens
	all := papers.Exhibits().Lines
	without := papers.Add(&c, all, kit)
	for _, w := range without {
		if !strings.Contains(w, "HASS") && !strings.Contains(w, "datastore") {
			t.Errorf("left out: %s", w)
		}
	}
	var names []string
	for _, m := range c.Methods {
		if slices.Contains(names, m.Name()) {
			t.Errorf("%s runs twice", m.Name())
		}
		names = append(names, m.Name())
	}
	r, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"traversal:t2": "small", "traversal:t3": "tiny"} {
		x, err := papers.Exhibits().Find(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range papers.SourcesOf(x.View(r, kit)) {
			if s != want {
				t.Errorf("%s asks %s, want %s", name, s, want)
			}
		}
	}
	drawn := 0
	for i := range all {
		v := all[i].View(r, kit)
		tables := v.Layout()
		if len(tables) == 0 {
			t.Errorf("%s: no table", all[i].Name)
		}
		for _, table := range tables {
			if len(table.Cells) == 0 {
				t.Errorf("%s: an empty table", all[i].Name)
			}
			for _, cells := range table.Cells {
				if len(cells) != len(table.Header) {
					t.Errorf("%s: %d cells below a header of %d: %q", all[i].Name, len(cells), len(table.Header), cells)
				}
				if strings.Contains(strings.Join(cells, " "), "NaN") {
					t.Errorf("%s: %q", all[i].Name, cells)
				}
			}
		}
		for _, f := range v.Draw() {
			drawn++
			if len(f.Series) == 0 {
				t.Errorf("%s: an empty figure", all[i].Name)
			}
			for _, s := range f.Series {
				if len(s.Y) == 0 || f.Groups == nil && len(s.X) != len(s.Y) || f.Groups != nil && len(s.Y) != len(f.Groups) {
					t.Errorf("%s: the series %+v of %+v", all[i].Name, s, f.Groups)
				}
			}
		}
	}
	if drawn == 0 {
		t.Error("nothing was drawn")
	}
	p, err := papers.Exhibits().Find("salf:t1")
	if err != nil {
		t.Fatal(err)
	}
	one := p.View(r, kit).Layout()[0]
	if got := one.Cells[0][0] + " " + one.Cells[1][0]; got != "EAGLE-2 (my-eagle) SALF & TALF (talf-2)" {
		t.Errorf("the rows are %q", got)
	}
	if !strings.HasSuffix(one.Cells[0][3], "%)") || strings.Contains(one.Cells[1][3], "%") {
		t.Errorf("the means are %q and %q, want the first one's distance from the last", one.Cells[0][3], one.Cells[1][3])
	}
}
