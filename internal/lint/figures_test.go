package lint_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// figure is a number that a text states: with decimals, with thousands, or alone. Names such as
// EAGLE-3, q8 and f32 are none.
var figure = regexp.MustCompile(`\d+(?:,\d{3})*(?:\.\d+)*`)

// A summary is a document that sums up measurements in tables: every number of a row stands in the
// page that the row links to.
type summary struct {
	file   string
	heads  []string          // of its tables, whose third column has the results
	others map[string]string // every other number of the text, and what it is
}

var summaries = []summary{
	{"README.md", []string{"| what | model | result | table |", "| what | on what | how much faster | table |"}, map[string]string{
		"1.26": "Go's version", "2.0": "a licence", "95": "what an interval holds, in percent",
	}},
	{"docs/performance.md", []string{"| what | model | result | table |", "| what | model, text | result | table |"}, map[string]string{
		"1.26.8": "Go's version", "2026": "a year", "2": "processors", "24": "the machine's memory, in GiB",
		"110M": "a model's parameters", "9.9M": "a model's parameters", "2.0M": "a model's parameters", "5": "layers", "12": "layers", "10": "layers",
	}},
}

func TestSummariesStateWhatWasMeasured(t *testing.T) {
	link := regexp.MustCompile(`\]\(((?:docs/)?measurements/[a-z0-9-]+\.md)(?:#[^)]*)?\)`)
	for _, s := range summaries {
		rest := read(t, s.file)
		for _, head := range s.heads {
			_, after, found := strings.Cut(rest, head+"\n")
			if !found {
				t.Errorf("%s: no table %s", s.file, head)
				continue
			}
			table, _, _ := strings.Cut(after, "\n\n")
			rest = strings.Replace(rest, table, "", 1)
			for _, row := range strings.Split(table, "\n")[1:] {
				cells := strings.Split(strings.Trim(row, "|"), "|")
				m := link.FindStringSubmatch(row)
				if m == nil || len(cells) != 4 {
					t.Errorf("%s: want four cells, the last with a link to a page of measurements: %s", s.file, row)
					continue
				}
				page := read(t, filepath.Join(filepath.Dir(s.file), m[1]))
				stated, has := numbers(cells[2]), figure.FindAllString(page, -1)
				if len(stated) == 0 {
					t.Errorf("%s: no figure: %s", s.file, row)
				}
				for _, f := range append(stated, numbers(cells[0]+" "+cells[1])...) {
					if !slices.Contains(has, strings.TrimSuffix(f, "M")) {
						t.Errorf("%s: %s is not in %s: %s", s.file, f, m[1], row)
					}
				}
				if !regexp.MustCompile(`(?m)^    \S`).MatchString(page) {
					t.Errorf("%s: no command that makes its figures again", m[1])
				}
			}
		}
		seen := map[string]bool{}
		for _, f := range numbers(rest) {
			seen[f] = true
			if s.others[f] == "" {
				t.Errorf("%s: the number %s stands outside the table: state it there with a page of measurements, or explain it in this test", s.file, f)
			}
		}
		for f, what := range s.others {
			if !seen[f] {
				t.Errorf("%s: no number %s (%s)", s.file, f, what)
			}
		}
	}
}

// numbers are the figures of a Markdown text that are neither code nor parts of names and links.
func numbers(text string) []string {
	var prose strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "    ") {
			prose.WriteString(line)
		}
	}
	s := regexp.MustCompile("`[^`]*`").ReplaceAllString(prose.String(), " ")
	s = regexp.MustCompile(`\]\([^)]*\)|https?://\S+`).ReplaceAllString(s, " ")
	var out []string
	for _, word := range strings.Fields(s) {
		word = strings.Trim(word, ".,;:()[]*|%/+−\"")
		if figure.FindString(word) == word || strings.HasSuffix(word, "M") && figure.FindString(word)+"M" == word {
			if word != "" {
				out = append(out, word)
			}
		}
	}
	return out
}

func TestNumbersOfATextAreFound(t *testing.T) {
	got := numbers("It takes 3.5 ms (about 1,024 rows), 12% less; EAGLE-3, `q8` and f32, [5](x6.md).\n\n    talf 7\n\n**1. Label.** A 110M model.\n")
	if want := []string{"3.5", "1,024", "12", "5", "1", "110M"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
