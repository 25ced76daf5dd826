// Package tables writes tables into pages of docs/measurements and reads them there.
package tables

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A page holds what was measured between two comments that name it, after a header: a sentence that
// says how, and the commands.
const (
	blockBegin = "<!-- measured: %s -->\n"
	blockEnd   = "<!-- end of %s -->\n"
)

// A Header says how a table was measured.
type Header struct {
	Machine string
	Date    string
	Commit  string  // the last that changed the code
	Load    float64 // processes that ran or waited before it began, over a minute
	Took    time.Duration
	Code    []string // paths of the repository whose code the figures depend on
	Digest  string   // of that code
}

func (h *Header) String() string {
	return Wrap(fmt.Sprintf("Measured by `make measurements`, %s, commit %s, on %s; load average %.1f before it began; took %s. Code: `%s`, `%s`.\n\n",
		h.Date, h.Commit, h.Machine, h.Load, h.Took, strings.Join(h.Code, " "), h.Digest))
}

var headerForm = regexp.MustCompile("^Measured by `make measurements`, ([^,]+), commit ([0-9a-f]+), on ([^;]+); load average ([0-9.]+) before it began; took ([^.]+)\\. Code: `([^`]+)`, `([0-9a-f]+)`\\.$")

func ParseHeader(block string) (*Header, error) {
	paragraph, _, _ := strings.Cut(block, "\n\n")
	m := headerForm.FindStringSubmatch(strings.Join(strings.Fields(paragraph), " ")) // lines end anywhere
	if m == nil {
		return nil, errors.New("want the header that make measurements writes")
	}
	took, err := time.ParseDuration(m[5])
	if err != nil {
		return nil, err
	}
	load, err := strconv.ParseFloat(m[4], 64)
	if err != nil {
		return nil, err
	}
	return &Header{Date: m[1], Commit: m[2], Machine: m[3], Load: load, Took: took, Code: strings.Fields(m[6]), Digest: m[7]}, nil
}

// Block returns what a page holds of a name.
func Block(page, name string) (string, error) {
	begin, end := fmt.Sprintf(blockBegin, name), fmt.Sprintf(blockEnd, name)
	_, rest, found := strings.Cut(page, begin)
	if !found {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(begin))
	}
	body, _, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(end))
	}
	return body, nil
}

func ReplaceBlock(page, name, body string) (string, error) {
	old, err := Block(page, name)
	if err != nil {
		return "", err
	}
	begin := fmt.Sprintf(blockBegin, name)
	return strings.Replace(page, begin+old, begin+broken(body), 1), nil
}

// broken breaks lines of prose that are longer than internal/lint allows, between words that stand in no
// code span.
func broken(body string) string {
	const most = 120
	var out strings.Builder
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ") || utf8.RuneCountInString(line) <= most {
			out.WriteString(line)
			continue
		}
		n, code := 0, ""
		for _, word := range strings.Fields(line) {
			if code += word; strings.Count(code, "`")%2 == 1 {
				code += " "
				continue
			}
			switch length := utf8.RuneCountInString(code); {
			case n == 0:
				n = length
			case n+1+length > most:
				out.WriteByte('\n')
				n = length
			default:
				out.WriteByte(' ')
				n += 1 + length
			}
			out.WriteString(code)
			code = ""
		}
		out.WriteString(code + "\n")
	}
	return out.String()
}

var blockName = regexp.MustCompile(`(?m)^<!-- measured: ([a-z0-9-]+) -->$`)

// Blocks are the names that a page has blocks of.
func Blocks(page string) []string {
	var out []string
	for _, m := range blockName.FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	return out
}

// Cell returns the text of a table's cell in a block: that of the one row whose first cells, joined by
// ", ", are row, in the column of that title.
func Cell(body, row, column string) (string, error) {
	at := -1
	var found []string
	for line := range strings.Lines(body) {
		cells := cells(line)
		switch {
		case cells == nil: // a table ends
			at = -1
		case at < 0: // its head
			if at = slices.Index(cells, column); at < 0 {
				at = len(cells) // not in this table
			}
		case at < len(cells) && strings.HasPrefix(strings.Join(cells, ", ")+", ", row+", "):
			found = append(found, cells[at])
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d cells of a row %q in a column %q, want 1", len(found), row, column)
	}
	return found[0], nil
}

// cells splits a line of a Markdown table; nil is not one.
func cells(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|") || len(line) < 2 {
		return nil
	}
	out := strings.Split(line[1:len(line)-1], "|")
	for i := range out {
		out[i] = strings.Trim(strings.TrimSpace(out[i]), "`")
	}
	return out
}

// Wrap breaks paragraphs into lines of at most 120 characters.
func Wrap(text string) string {
	const most = 120
	var b strings.Builder
	for line := range strings.Lines(text) {
		n := 0
		for i, word := range strings.Fields(line) {
			switch {
			case i == 0:
			case n+1+utf8.RuneCountInString(word) > most:
				b.WriteByte('\n')
				n = 0
			default:
				b.WriteByte(' ')
				n++
			}
			b.WriteString(word)
			n += utf8.RuneCountInString(word)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Markdown writes a table.
func Markdown(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(head)
	b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
	for _, r := range rows {
		line(r)
	}
	return b.String()
}
