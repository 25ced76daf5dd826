package lookahead

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"talf/infer"
	"talf/infer/verify"
	"talf/internal/golden"
	"talf/tree"
)

// A recordedRun is a run of the authors' code: methods/lookahead.
type recordedRun struct {
	Name   string
	Config struct {
		N      int `json:"LEVEL"`
		W      int `json:"WINDOW_SIZE"`
		G      int `json:"GUESS_SET_SIZE"`
		Prompt int `json:"POOL_FROM_PROMPT"`
	}
	Prompt, Text []int32
	Steps        []recordedStep
}

type recordedStep struct {
	Root      int32
	Position  int
	Fill      int
	Window    [][]int32
	Guesses   [][]int32
	First     int32
	GuessOut  []int32 `json:"guess_out"`
	New       []int32
	Pool      map[string][][]int32 `json:"pool_before"`
	Committed []int32
}

// picks draws the recorded tokens from the prompt.
type picks struct {
	infer.Chance
	prompt, want []int32
}

func (c *picks) Draw(_ int, d infer.Dist) int32 {
	if len(d) != len(c.prompt) {
		panic("not a draw from the prompt")
	}
	x := c.want[0]
	c.want = c.want[1:]
	return int32(slices.Index(c.prompt, x))
}

// answers are the recorded choices of the target, by node.
type answers struct {
	infer.Scores
	next map[int]int32
}

func (a answers) Argmax(n int) int32 {
	x, ok := a.next[n]
	if !ok {
		panic(fmt.Sprintf("node %d was not recorded", n))
	}
	return x
}

func (a answers) Rank(dst []int32, n, _ int) []int32 { return append(dst, a.Argmax(n)) }

// follow replays a run and returns the number of steps that agree: pool, window, guesses, what is
// emitted.
func (r *recordedRun) follow(c Config) (steps int, err error) {
	d := New(c)
	if err := d.Start(r.Prompt); err != nil {
		return 0, err
	}
	known := map[string][][]int32{}
	chance := &picks{prompt: r.Prompt, want: slices.Clone(r.Steps[0].Window[0])}
	var greedy verify.Greedy
	text := slices.Clone(r.Prompt)
	for i := range r.Steps {
		s := &r.Steps[i]
		p := infer.Proposal{Tree: tree.New(s.Root, 300), Pos: s.Position, MaxNodes: 300, MaxDepth: 100}
		if _, err := d.Grow(&p, nil, chance); err != nil {
			return i, err
		}
		for first, grams := range s.Pool {
			known[first] = grams
		}
		if err := d.pool.same(known); err != nil {
			return i, err
		}
		a, err := d.place(&p, s)
		if err != nil {
			return i, err
		}
		v, err := greedy.Verify(p, a, nil)
		if err != nil {
			return i, err
		}
		var out []int32
		for _, n := range v.Path[1:] {
			out = append(out, p.Tree.Token(n))
		}
		out = append(out, v.Next)
		if out = out[:min(len(out), len(r.Text)-len(text))]; !slices.Equal(out, s.Committed) {
			return i, fmt.Errorf("emits %v, want %v", out, s.Committed)
		}
		text = append(text, out...)
		if err := d.Observe(p, v, a); err != nil {
			return i, err
		}
	}
	if !slices.Equal(text, r.Text) {
		return len(r.Steps), fmt.Errorf("the text is %v, want %v", text, r.Text)
	}
	return len(r.Steps), nil
}

// place compares the drafted tree with the recorded step and says which node has which of the
// target's choices.
func (d *Drafter) place(p *infer.Proposal, s *recordedStep) (answers, error) {
	a := answers{next: map[int]int32{0: s.First}}
	if d.levels != s.Fill+1 {
		return a, fmt.Errorf("%d levels, want %d", d.levels, s.Fill+1)
	}
	live := 1
	for g, gram := range s.Guesses {
		n := 0
		for k, token := range gram {
			c := p.Tree.Child(n, token)
			if c < 0 || c >= p.Live {
				if k == len(gram)-1 && !d.cfg.Bonus {
					break // it may be accepted as the target's own
				}
				return a, fmt.Errorf("the guess %v is missing", gram)
			}
			n = c
			live = max(live, n+1)
			a.next[n] = s.GuessOut[g*len(gram)+k]
		}
	}
	if live != p.Live {
		return a, fmt.Errorf("%d live nodes, want %d: %v of %v", p.Live, live, p.Tree.Tokens(), s.Guesses)
	}
	columns := len(s.Window[0]) + 1
	if d.columns() != columns {
		return a, fmt.Errorf("%d columns, want %d", d.columns(), columns)
	}
	trunk := 0
	for i := range columns {
		if i > 0 {
			if trunk = d.node[0][i]; p.Tree.Token(trunk) != s.Window[0][i-1] || p.Tree.Parent(trunk) != max(0, d.node[0][i-1]) {
				return a, fmt.Errorf("column %d of level 0 is token %d below node %d, want token %d", i, p.Tree.Token(trunk), p.Tree.Parent(trunk), s.Window[0][i-1])
			}
		}
		above := trunk
		for l := 1; l <= s.Fill; l++ {
			n := d.node[l][i]
			if n < p.Live || p.Tree.Token(n) != s.Window[l][i] || p.Tree.Parent(n) != above {
				return a, fmt.Errorf("column %d of level %d is node %d, want token %d below %d", i, l, n, s.Window[l][i], above)
			}
			above = n
		}
		switch {
		case s.Fill > 0:
			a.next[above] = s.New[i]
		case i > 0:
			a.next[above] = s.New[i-1]
		}
	}
	return a, nil
}

// same compares a pool with the recorded one.
func (q *pool) same(want map[string][][]int32) error {
	if len(q.slots) != len(want) {
		return fmt.Errorf("%d first tokens in the pool, want %d", len(q.slots), len(want))
	}
	for key, grams := range want {
		first, err := strconv.Atoi(key)
		if err != nil {
			return err
		}
		s, ok := q.slots[int32(first)]
		if !ok || int(q.n[s]) != len(grams) {
			return fmt.Errorf("%d n-grams of token %d in the pool, want %v", q.count(int32(first)), first, grams)
		}
		for i, g := range grams {
			if !slices.Equal(q.gram(s, i), g) {
				return fmt.Errorf("n-gram %d of token %d is %v, want %v", i, first, q.gram(s, i), g)
			}
		}
	}
	return nil
}

// Every recorded step agrees: window, pool, guesses and what is emitted.
func TestStepsAreTheAuthors(t *testing.T) {
	var all struct{ Runs []recordedRun }
	if err := json.Unmarshal(golden.Read(t, "methods/lookahead/trace.json"), &all); err != nil {
		t.Fatal(err)
	}
	steps := 0
	caught := map[string]bool{}
	for _, r := range all.Runs {
		c := Config{W: r.Config.W, N: r.Config.N, G: r.Config.G, Prompt: r.Config.Prompt == 1}
		n, err := r.follow(c)
		if err != nil {
			t.Errorf("%s, step %d: %v", r.Name, n, err)
		}
		steps += n
		for name, change := range map[string]func(c *Config){
			"with the bonus token":      func(c *Config) { c.Bonus = true },
			"columns move":              func(c *Config) { c.Slide = true },
			"the prompt's n-grams":      func(c *Config) { c.Prompt = !c.Prompt },
			"one n-gram fewer per pool": func(c *Config) { c.G-- },
		} {
			other := c
			change(&other)
			_, err := r.follow(other)
			caught[name] = caught[name] || err != nil
		}
	}
	if steps != 107 {
		t.Errorf("%d steps agree, want 107", steps)
	}
	for name, ok := range caught {
		if !ok {
			t.Errorf("%s: every step agrees", name)
		}
	}
}
