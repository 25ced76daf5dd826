package trace

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kids returns the children of every node, in order.
func (s *Step) kids() [][]int {
	k := make([][]int, len(s.Nodes))
	for i, n := range s.Nodes {
		if i > 0 {
			k[n.Parent] = append(k[n.Parent], i)
		}
	}
	return k
}

func (s *Step) accepted() []bool {
	a := make([]bool, len(s.Nodes))
	for _, n := range s.Path {
		a[n] = true
	}
	return a
}

// live returns the number of nodes that could be accepted.
func (s *Step) live() int {
	if s.Live > 0 {
		return s.Live
	}
	return len(s.Nodes)
}

// Title returns a line about the step; i counts from 1.
func (s *Step) Title(i int) string {
	t := fmt.Sprintf("round %d at %d: %d of %d drafted nodes accepted, %d tokens", i, s.Pos, len(s.Path)-1, s.live()-1, len(s.Path))
	if n := len(s.Nodes) - s.live(); n > 0 {
		t += fmt.Sprintf(", %d nodes only scored", n)
	}
	if s.Kept < len(s.Path) {
		t += fmt.Sprintf(", of which the output ends after %d", s.Kept)
	}
	return t
}

// label returns a token as text that fits on a line.
func label(t Token) string {
	const most = 24
	x := strconv.Quote(t.Text)
	if t.Text == "" {
		x = fmt.Sprintf("<%d>", t.ID)
	}
	if utf8.RuneCountInString(x) > most {
		x = string([]rune(x)[:most-1]) + "…"
	}
	return x
}

func (n *Node) odds() string {
	var parts []string
	for _, x := range []struct {
		name  string
		value *float64
	}{{"q", n.Q}, {"p", n.P}} {
		if x.value != nil {
			parts = append(parts, fmt.Sprintf("%s %.3f", x.name, *x.value))
		}
	}
	return strings.Join(parts, "  ")
}

// Text draws step i, counted from 1, for a terminal: ● is accepted, ○ is rejected, · is only
// scored, → is the target's own token.
func (s *Step) Text(w io.Writer, i int) error {
	b := new(strings.Builder)
	fmt.Fprintln(b, s.Title(i))
	kids, accepted := s.kids(), s.accepted()
	last := s.Path[len(s.Path)-1]
	var walk func(n int, above string)
	walk = func(n int, above string) {
		lines := len(kids[n])
		if n == last {
			lines++ // the target's own
		}
		branch := func(k int) (at, below string) {
			if k == lines-1 {
				return above + "└─", above + "  "
			}
			return above + "├─", above + "│ "
		}
		for k, c := range kids[n] {
			at, below := branch(k)
			mark := "○"
			switch {
			case accepted[c]:
				mark = "●"
			case c >= s.live():
				mark = "·"
			}
			fmt.Fprintf(b, "%s%s %s  %s\n", at, mark, label(s.Nodes[c].Token), s.Nodes[c].odds())
			walk(c, below)
		}
		if n == last {
			at, _ := branch(lines - 1)
			fmt.Fprintf(b, "%s→ %s\n", at, label(s.Next))
		}
	}
	fmt.Fprintf(b, "● %s\n", label(s.Nodes[0].Token))
	walk(0, "")
	_, err := io.WriteString(w, b.String())
	return err
}

// Sizes of a drawing, in pixels.
const (
	column = 150 // a level of depth
	row    = 30  // a leaf
	margin = 24
	radius = 6
)

// An SVG draws steps one below the other.
type SVG struct {
	w      io.Writer
	body   strings.Builder
	height int
	width  int
	steps  int
}

// NewSVG returns a drawing that Close writes to w.
func NewSVG(w io.Writer) *SVG { return &SVG{w: w, width: 4 * column} }

// A spot is where a node is drawn; parent is -1 for the root.
type spot struct {
	x, y, parent int
}

// Add draws step i, counted from 1, below the last. Nodes are laid out from left to right by
// depth; accepted ones are green and bold, the target's own token orange.
func (v *SVG) Add(s *Step, i int) {
	kids, accepted := s.kids(), s.accepted()
	last := s.Path[len(s.Path)-1]
	top := v.height + margin
	v.steps++
	fmt.Fprintf(&v.body, "<text class=\"title\" x=\"%d\" y=\"%d\">%s</text>\n", margin, top, escape(s.Title(i)))
	spots := make([]spot, len(s.Nodes)+1) // the last is the target's own
	next := top + row
	var place func(n, depth int) int
	place = func(n, depth int) int {
		below := kids[n]
		if n == last {
			below = append(below[:len(below):len(below)], len(s.Nodes))
		}
		first, end := 0, 0
		for j, c := range below {
			var y int
			if c == len(s.Nodes) {
				y, next = next, next+row
				spots[c] = spot{margin + (depth+1)*column, y, n}
				v.width = max(v.width, margin+(depth+2)*column)
			} else {
				y = place(c, depth+1)
				spots[c].parent = n
			}
			if end = y; j == 0 {
				first = y
			}
		}
		y := (first + end) / 2
		if len(below) == 0 {
			y, next = next, next+row
		}
		spots[n] = spot{margin + depth*column, y, -1}
		v.width = max(v.width, margin+(depth+1)*column)
		return y
	}
	place(0, 0)
	for n := 1; n < len(spots); n++ {
		at, from := spots[n], spots[spots[n].parent]
		class := "edge"
		if n < len(s.Nodes) && accepted[n] {
			class = "edge kept"
		}
		fmt.Fprintf(&v.body, "<path class=\"%s\" d=\"M%d %d C%d %d %d %d %d %d\"/>\n",
			class, from.x, from.y, from.x+column/2, from.y, at.x-column/2, at.y, at.x, at.y)
	}
	for n, at := range spots {
		class, token, odds := "node", s.Next, "the model's own token"
		switch {
		case n == len(s.Nodes):
			class = "node own"
		case accepted[n]:
			class, token, odds = "node kept", s.Nodes[n].Token, s.Nodes[n].odds()
		case n >= s.live():
			class, token, odds = "node aside", s.Nodes[n].Token, s.Nodes[n].odds()
		default:
			token, odds = s.Nodes[n].Token, s.Nodes[n].odds()
		}
		fmt.Fprintf(&v.body, "<g class=\"%s\"><title>token %d %s</title><circle cx=\"%d\" cy=\"%d\" r=\"%d\"/><text x=\"%d\" y=\"%d\">%s</text>",
			class, token.ID, escape(odds), at.x, at.y, radius, at.x+radius+4, at.y-3, escape(label(token)))
		if n > 0 && n < len(s.Nodes) {
			fmt.Fprintf(&v.body, "<text class=\"odds\" x=\"%d\" y=\"%d\">%s</text>", at.x+radius+4, at.y+9, escape(odds))
		}
		v.body.WriteString("</g>\n")
	}
	v.height = next
}

// Element returns the drawing as an element of a page, whose style sheet has the colours: of .edge,
// .node, .kept, .aside, .own, .title and .odds within .tree.
func (v *SVG) Element() string {
	return fmt.Sprintf("<svg class=\"tree\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n%s</svg>\n",
		v.width, v.height+margin, v.width, v.height+margin, v.body.String())
}

// Close writes the drawing.
func (v *SVG) Close() error {
	_, err := fmt.Fprintf(v.w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<style>
.title{font-weight:bold}
.edge{fill:none;stroke:#bbb}
.edge.kept{stroke:#2a7d2a;stroke-width:3}
.node circle{fill:#fff;stroke:#999}
.node.kept circle{fill:#2a7d2a;stroke:#2a7d2a}
.node.kept text{font-weight:bold}
.node.aside circle{stroke-dasharray:2 2}
.node.aside text{fill:#999}
.node.own circle{fill:#d9822b;stroke:#d9822b}
text.odds{font-size:9px;fill:#777}
</style>
<rect width="100%%" height="100%%" fill="#fff"/>
%s</svg>
`, v.width, v.height+margin, v.width, v.height+margin, v.body.String())
	return err
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

// escape escapes text for XML. Labels are quoted, so there are no control characters.
func escape(s string) string { return escaper.Replace(s) }
