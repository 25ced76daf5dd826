package kern

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Shape says how a product cuts rows that one kernel does not hold: into groups that take turns on
// chunks of the weights, which stay in the first level of the cache. What is fastest depends on the
// processor. Bits do not depend on it: an output's sum is one chain, however it is cut.
type Shape struct {
	Rows  int // of a group, at most
	Chunk int // k of f32 weights, or blocks of Q8Block k of others
}

// Shapes are those of a table's products; one that is zero cannot be chosen.
type Shapes struct {
	F32 Shape
	Q8  [2]Shape // by planes of activations, from 0
	Q4  [2]Shape // the same for q4, q4k and q6k
}

// each calls fn for each product with its name.
func (s *Shapes) each(fn func(name string, s *Shape)) {
	fn("f32", &s.F32)
	fn("q8x1", &s.Q8[0])
	fn("q8x2", &s.Q8[1])
	fn("q4x1", &s.Q4[0])
	fn("q4x2", &s.Q4[1])
}

// String returns the text that ParseShapes reads, for example "f32=14/256,q8x1=7/16,q8x2=7/16"; products
// without a shape are left out.
func (s Shapes) String() string {
	var all []string
	s.each(func(name string, s *Shape) {
		if *s != (Shape{}) {
			all = append(all, fmt.Sprintf("%s=%d/%d", name, s.Rows, s.Chunk))
		}
	})
	return strings.Join(all, ",")
}

// ParseShapes reads a list of <product>=<rows>/<chunk>.
func ParseShapes(text string) (s Shapes, err error) {
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		rows, chunk, _ := strings.Cut(value, "/")
		r, err1 := strconv.Atoi(rows)
		c, err2 := strconv.Atoi(chunk)
		ok := false
		s.each(func(n string, s *Shape) {
			if n == name {
				*s, ok = Shape{r, c}, err1 == nil && err2 == nil
			}
		})
		if !ok {
			return Shapes{}, fmt.Errorf("kern: shape %q: want, for example, f32=14/128,q8x1=12/8,q8x2=12/8", part)
		}
	}
	return s, nil
}

// mostChunk is the largest chunk that With accepts.
const mostChunk = 1 << 16

// With returns f with those of the shapes that are not zero. It refuses shapes for which f has no kernels.
func (f *Funcs) With(s Shapes) (*Funcs, error) {
	g := *f
	most := Shapes{
		F32: Shape{Rows: f.MaxRows},
		Q8:  [2]Shape{{Rows: f.MaxRowsQ8}, {Rows: f.MaxRowsQ8}},
		Q4:  [2]Shape{{Rows: f.MaxRowsQ4}, {Rows: f.MaxRowsQ4}},
	}
	var err error
	set := func(name string, to *Shape, by Shape, most, step int) {
		switch {
		case by == (Shape{}):
		case *to == (Shape{}):
			err = fmt.Errorf("kern: class %v cannot choose a shape for %s", f.Class, name)
		case by.Rows < 1 || by.Rows > most || by.Chunk < 1 || by.Chunk > mostChunk || by.Chunk%step != 0:
			err = fmt.Errorf("kern: shape %s=%d/%d: class %v wants 1 to %d rows, and chunks of up to %d in multiples of %d",
				name, by.Rows, by.Chunk, f.Class, most, mostChunk, step)
		default:
			*to = by
		}
	}
	set("f32", &g.Shapes.F32, s.F32, most.F32.Rows, 4) // what the kernels unroll, partK
	for i := range s.Q8 {
		set(fmt.Sprintf("q8x%d", i+1), &g.Shapes.Q8[i], s.Q8[i], most.Q8[i].Rows, 1)
		set(fmt.Sprintf("q4x%d", i+1), &g.Shapes.Q4[i], s.Q4[i], most.Q4[i].Rows, 1)
	}
	if err != nil {
		return nil, err
	}
	if g.cut != nil {
		g.cut(&g)
	}
	return &g, nil
}

// tuned are the tables with the shapes that are fastest here, by class.
var tuned = func() (all [len(names)]func() *Funcs) {
	for c := range all {
		all[c] = sync.OnceValue(func() *Funcs {
			f := table(Class(c))
			if f.cut == nil {
				return f
			}
			return f.tune(mostTuning)
		})
	}
	return all
}()

// Tuned is For with the shapes that are fastest on this machine. The first call for a class measures them, which
// takes some ten milliseconds; later ones return the same table.
func Tuned(c Class) (*Funcs, error) {
	if _, err := For(c); err != nil {
		return nil, err
	}
	return tuned[c](), nil
}

const (
	mostTuning = 30 * time.Millisecond // longest that measuring goes on, once every shape has been tried
	tuneRounds = 12                    // how often each is tried
	better     = 0.97                  // of the time of the shape that the table has: what another needs at most
)

// Shapes that are tried beside that of the table. Groups of at most 6 rows of a plane keep their outputs in registers;
// whole is a chunk that most panels fit.
const whole = 1 << 10

var (
	triedF32 = []Shape{{14, 256}}
	triedQ8  = []Shape{{8, 12}, {7, 12}, {7, 16}, {6, whole}}
	triedQ4  = []Shape{{8, whole}, {6, whole}}
)

// tune measures products of 16 and of 48 rows in each shape, with weights in the second level of the
// cache, and returns f with the fastest. Shapes take turns and count with their shortest time, so that what
// else the machine does disturbs little.
func (f *Funcs) tune(most time.Duration) *Funcs {
	const k, panels = 1024, 2
	rows := [...]int{16, 48}
	r := rand.New(rand.NewPCG(1, 1))
	x, c := make([]float32, rows[1]*k), make([]float32, rows[1]*Panel)
	for i := range x {
		x[i] = r.Float32() - 0.5
	}
	w := make([]float32, panels*k*Panel)
	for i := range w {
		w[i] = x[i%len(x)]
	}
	q := make([]byte, panels*Q8PanelLen(k))
	PackQ8(q, w, panels*Panel, k, k)
	const blocks, step = k / Q8Block, k / Q8Block * Q4BlockLen
	q4 := make([]byte, panels*step)
	for i := range q4 { // every float16 with such bytes is a small number
		q4[i] = byte(i) & 0x3f
	}
	var a [2][]uint32
	for i := range a {
		a[i] = make([]uint32, rows[1]*Q8ALen(k))
		for r := range rows[1] {
			f.QuantA(a[i][r*Q8ALen(k):], x[r*k:][:k], i+1)
		}
	}
	type trial struct {
		shape Shape
		to    *Shape // in the result
		run   func(rows, panel int)
		best  [len(rows)]time.Duration
	}
	var trials []trial
	result := f.Shapes
	try := func(to *Shape, s Shapes, by Shape, run func(f *Funcs, rows, panel int)) {
		if g, err := f.With(s); err == nil { // a class with fewer rows has fewer shapes
			trials = append(trials, trial{shape: by, to: to, run: func(rows, panel int) { run(g, rows, panel) }})
		}
	}
	if f.Shapes.F32 != (Shape{}) {
		for _, by := range append([]Shape{f.Shapes.F32}, triedF32...) {
			try(&result.F32, Shapes{F32: by}, by, func(f *Funcs, rows, p int) {
				f.Gemm(c, Panel, x, k, 1, w[p*k*Panel:], Panel, rows, k, false)
			})
		}
	}
	for i := range result.Q8 {
		if f.Shapes.Q8[i] == (Shape{}) {
			continue
		}
		for _, by := range append([]Shape{f.Shapes.Q8[i]}, triedQ8...) {
			var s Shapes
			s.Q8[i] = by
			try(&result.Q8[i], s, by, func(f *Funcs, rows, p int) {
				f.GemmQ8(c, Panel, a[i], Q8ALen(k), q[p*Q8PanelLen(k):], rows, Q8Blocks(k), i+1, false)
			})
		}
	}
	for i := range result.Q4 {
		if f.Shapes.Q4[i] == (Shape{}) {
			continue
		}
		for _, by := range append([]Shape{f.Shapes.Q4[i]}, triedQ4...) {
			var s Shapes
			s.Q4[i] = by
			try(&result.Q4[i], s, by, func(f *Funcs, rows, p int) {
				f.GemmQ4(c, Panel, a[i], Q8ALen(k), q4[p*step:], rows, blocks, i+1, false)
			})
		}
	}
	began := time.Now()
	for round := 0; round < tuneRounds && (round < 2 || time.Since(began) < most); round++ {
		for i := range trials {
			t := &trials[i]
			for j, n := range rows {
				for p := range panels {
					since := time.Now()
					t.run(n, p)
					if d := time.Since(since); t.best[j] == 0 || d < t.best[j] {
						t.best[j] = d
					}
				}
			}
		}
	}
	// A group of 16 rows is a tree, one of 48 a large tree or a prompt: both count by their ratio to the table's shape.
	for i := range trials {
		if i > 0 && trials[i].to == trials[i-1].to {
			continue
		}
		least := better
		for _, t := range trials[i:] {
			if t.to != trials[i].to {
				break
			}
			ratio := 0.0
			for j := range rows {
				ratio += float64(t.best[j]) / float64(max(1, trials[i].best[j])) / float64(len(rows))
			}
			if ratio < least {
				least, *t.to = ratio, t.shape
			}
		}
	}
	g, err := f.With(result)
	if err != nil {
		panic("kern: " + err.Error()) // each was tried
	}
	return g
}
