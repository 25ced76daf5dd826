// Package chooser drafts with whichever of several drafters currently pays most.
package chooser

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"talf/infer"
	"talf/infer/draft/cost"
	"talf/infer/experts"
	"talf/tree"
)

// A Candidate is a method to choose from. Its children must be chosen without randomness: no
// verifier is lossless if some of the drawn children are left out.
type Candidate struct {
	Name string
	Asks bool // it asks a draft model
	New  func() infer.Drafter
}

// New returns a function that makes choosers among candidates. They share what they learn about
// them. Sampled answers are those at a temperature above 0: until they have gained by drafts, less is
// risked for them.
func New(all []Candidate, sampled bool) func() infer.Drafter {
	s := &shared{hope: 1}
	if sampled {
		s.hope = 0
	}
	for _, c := range all {
		s.known = append(s.known, &record{asks: c.Asks})
	}
	s.make = func() *chooser {
		a := &chooser{shared: s, request: request{chosen: -1}}
		for i, c := range all {
			a.all = append(a.all, newArm(s.known[i], c.Name, c.New()))
			if !c.Asks && a.text == nil {
				a.text = newText()
			}
		}
		return a
	}
	return func() infer.Drafter { return &drafter{shared: s} }
}

// A chooser drafts with the candidate that pays most, round by round.
//
// Time is counted in plain rounds: how long a pass without a draft would take now. A token is
// worth λ, the current time per token, at most a plain round. A tree is worth λ times the number
// of tokens that it is expected to add, and costs the measured extra time of its pass over a
// plain one. A candidate that asks no draft model grows its tree whether it is used or not, and the
// target's output then shows how often its children are right, by depth and rank: that a candidate
// has become better is learnt without a row. While nothing is used, trees are grown in fewer rounds.
// The tree is cut where the next node is not worth its row. What a candidate with a draft model adds
// and costs is known only from its own rounds, so it is tried now and then.
//
// All that a round costs more than a plain one is paid from the account: more rows, the draft
// model's passes, its reading of what has waited for it since it was asked last, and the drafters'
// own work, used or not. What the account cannot pay at worst is not done.
type chooser struct {
	shared *shared
	all    []*arm
	request
	text   *text // nil if all candidates ask a draft model
	traits infer.Traits
	root   tree.Tree
	busy   bool // in a call, or one has failed
}

// A request is what a chooser knows of one sequence.
type request struct {
	chosen int // -1: none
	account

	promptLen int
	priced    bool // the prompt has told what a row costs
	ran       int  // tokens in the target's passes over the prompt, and over what they read again; kept ones count once
	rounds    int
	left      int     // tokens that the request may still emit before it ends or all of it is read again
	round     int     // tokens of the last round
	backlog   int     // tokens that a draft model would read if it was asked in this round
	perToken  float64 // plain rounds that the target needed for a token of the prompt
	sleep
	plain    float64      // seconds of a plain round after the last one that was not slept through
	asked    bool         // in this round
	unlent   bool         // the chosen candidate is tried by an account that may not expect gains: nothing is lent to it
	looked   bool         // candidates without a draft model have grown their trees in it
	owed     bool         // they were to do so in one in which the chooser was not asked, and have not since
	steps    int          // passes of the draft model in this round
	drew     *tree.Tree   // the chosen candidate's tree of them, nil while it is not finished
	drewLive int          // of its nodes, those that may be accepted
	most     int          // of which it has at most so many
	idle     int          // rounds since a candidate was chosen
	unused   int          // rounds since one without a draft model was
	drafted  bool         // some candidate was
	earned   int          // rounds in which some candidate was since it was expected to pay, and not to try it or to measure
	others   int          // rows of other sequences in the last pass
	opened   experts.Read // by the last pass
	meter    cost.Meter
	spent    cost.Ratio // plain rounds per token
	off      cost.Ratio // what passes with drafts cost more than they usually do
}

// shared is what choosers among the same candidates know.
type shared struct {
	sync.Mutex
	pass   cost.Curve
	level  float64    // recent seconds of a pass that costs 1
	rest   cost.Ratio // seconds per token beside passes and drafting
	length cost.Ratio // tokens of recent requests
	drafts int        // rounds since the last plain one
	known  []*record
	make   func() *chooser
	idle   []*chooser // that wait for a sequence

	watch   cost.Ratio     // plain rounds that it takes to grow trees which are not used, per round
	harvest cost.Ratio     // plain rounds that drafters need beside that, per node of a tree that is used
	past    [pasts]float64 // tokens of the last requests
	ended   int            // requests

	hope    float64    // that requests gain by drafts, from 0 to 1, before any has told
	fortune cost.Ratio // requests that gained, of those with drafts
	row     float64    // plain rounds that a further row costs, by passes over prompts; 0: unknown
}

const (
	boldness = 0.5  // share of the funds that a round may risk on average
	utmost   = 0.75 // and at worst: the rest is left for better trees
	surest   = 0.9  // largest probability of a tree that counts against its risk

	newcomer   = 3    // rounds of a trial
	knownAt    = 5    // rounds after which a draft model may be chosen by what a chain would bring, though its method still measures
	firstLoss  = 0.4  // assumed cost of the first round with a draft model, in plain rounds
	spread     = 32   // rounds in which reading what has waited is to pay
	smallest   = 4    // nodes of a first trial, unless rows are dear
	narrowest  = 2    // and then
	quiet      = 32   // idle rounds after which candidates are asked less often
	plainAfter = 64   // rounds with drafts after which one goes without
	leastGain  = 0.01 // smallest gain, in plain rounds, for which a tree is drafted
	fewest     = 16   // smallest size to which trees are grown for evaluation

	// Weight that a sample keeps with each later one: over all requests, in one request.
	remembered = 0.998
	recent     = 0.97
	// Weight of other requests' samples, in samples of this one: of what a draft model adds, of
	// the time per token, of children.
	priorRounds   = 6
	priorTokens   = 16
	priorChildren = 4

	doubted   = 0.5  // standard deviations by which a draft model may do better in a request than is expected, for it to be tried
	leastAdds = 0.05 // tokens a round that it may add, however few it did

	// A draft model's best chain.
	longest   = 8 // nodes
	chainMore = 2 // nodes that a tree may have beside it
	trust     = 4 // tokens and plain rounds that what it is expected to bring and cost counts for, beside what it did
)

func (a *chooser) Start(prompt []int32) error {
	a.request = request{chosen: -1, promptLen: len(prompt), sleep: sleep{missed: a.missed[:0]}}
	if a.text != nil {
		a.text.start(prompt)
	}
	a.shared.Lock()
	a.account = account{ahead: a.shared.ahead(0)}
	a.least = a.ahead
	a.shared.length.Fade(0, 1, 0.95)
	a.shared.fortune.Fade(0, 0, idleFade)
	if a.shared.watch.Of > 0 {
		// Nothing is expected of the first rounds of a later request: what copies from the prompt shows when the output does, and
		// other candidates have yet to learn.
		a.idle, a.unused = settle, settle
	}
	for _, c := range a.all {
		// What seems too dear is tried again at last, and what has lost.
		c.reading.Fade(0, 0, readFade)
		c.draft.Fade(0, 0, readFade)
		c.step.Fade(0, 0, readFade)
		c.won.Fade(0, 0, idleFade)
	}
	a.shared.Unlock()
	for _, c := range a.all {
		c.reach, c.fresh, c.laterNode, c.here, c.mine = 0, false, -1, cells{}, trials{}
		c.net, c.used, c.wanted, c.earned = 0, false, false, 0
		if err := c.d.Start(prompt); err != nil {
			return err
		}
	}
	return nil
}

// Traits combines those of all candidates. Kept prefixes are used only if every candidate that
// harvests can do without their rows. A candidate that does not say where its nodes come from is
// an origin itself.
func (a *chooser) Traits() infer.Traits {
	if a.traits.Took != nil {
		return a.traits
	}
	t := infer.Traits{Keeps: true, Defers: true, Took: a.took, Rest: a.rest, Rested: a.rested, Origin: a.origin, Idle: a.shared, End: func() { _ = a.end() }}
	for _, c := range a.all {
		if c.traits.Harvest {
			t.Harvest, t.Keeps = true, t.Keeps && c.traits.Keeps
		}
		c.origins = c.origins[:0]
		for _, name := range c.named {
			i := slices.Index(t.Origins, name)
			if i < 0 {
				i = len(t.Origins)
				t.Origins = append(t.Origins, name)
			}
			c.origins = append(c.origins, i)
		}
	}
	t.Keeps = t.Keeps && t.Harvest
	if !slices.ContainsFunc(a.all, func(c *arm) bool { return c.asks && c.traits.Finish == nil }) {
		t.Finish = a.finish
	}
	a.traits = t
	return t
}

// end tells the candidates that the sequence has ended. An error of theirs has nobody to go to, but what they know is not whole.
func (a *chooser) end() error {
	a.shared.Lock()
	a.catchUp()
	a.shared.end(&a.account, a.drafted, a.earned)
	for _, c := range a.all {
		switch {
		case c.used:
			w := weight(c.earned)
			c.won.Fade(w*gains(c.net), w, fortuneFade)
			c.denied = 0
		case c.wanted:
			c.denied++
		}
	}
	a.shared.Unlock()
	var err error
	if slices.ContainsFunc(a.all, func(c *arm) bool { return c.traits.End != nil || c.traits.Keeps }) {
		err = a.wake() // what candidates keep for other sequences is whole
	}
	for _, c := range a.all {
		if c.traits.End != nil {
			c.traits.End()
		}
	}
	return err
}

// origin returns where the chosen candidate's node n comes from.
func (a *chooser) origin(n int) int {
	c := a.all[a.chosen]
	switch {
	case c.traits.Origin == nil:
		return c.origins[0]
	case c.asks:
		return c.origins[c.traits.Origin(n)]
	}
	return c.origins[c.from[n]]
}

func (a *chooser) Grow(p *infer.Proposal, rows []infer.Row, ch infer.Chance) ([]int, error) {
	if rows != nil {
		return a.further(p, rows, ch)
	}
	a.shared.Lock()
	defer a.shared.Unlock()
	a.catchUp()
	a.asked = true
	a.chosen, a.left, a.backlog, a.steps, a.loan, a.drew, a.unlent = -1, p.MaxDepth+1, p.Backlog, 0, 0, nil, false
	if a.meter.Level == 0 {
		a.meter.Level = a.shared.level
	}
	a.prefilled(p.Prefill, p.Prefilled)
	if a.rounds > 0 && !a.priced && !a.drafted { // it is known what a plain one takes, and nothing else was tried
		a.priced = true
		a.learnRow(a.opened)
	}
	a.ahead = min(a.shared.ahead(a.tokens), float64(a.tokens+max(a.left, p.Left)))
	a.looked = a.looks()
	if a.looked {
		if err := a.wake(); err != nil {
			return nil, err
		}
	}
	for _, c := range a.all {
		c.fresh = false
		if c.asks || !a.looked {
			continue
		}
		n := p.MaxNodes
		if c.reach > 0 {
			n = min(n, c.reach)
		}
		if err := c.draw(p, &c.full, n, p.MaxDepth, ch); err != nil {
			return nil, err
		}
		c.fresh, c.live = c.prop.Tree.Len() > 1, c.prop.LiveNodes()
		if c.prop.Tree != &c.full { // the drafter's own, which the next call changes
			copyTree(&c.full, c.prop.Tree)
		}
	}
	if a.meter.Level > 0 {
		a.choose()
	}
	if a.chosen < 0 && !a.looked {
		return nil, nil
	}
	if err := a.wake(); err != nil {
		return nil, err
	}
	var ask []int
	for i, c := range a.all {
		switch {
		case i == a.chosen && c.asks:
			var err error
			p.MaxNodes = min(p.MaxNodes, a.limit(c))
			if ask, err = c.d.Grow(p, nil, ch); err != nil {
				return nil, err
			}
			if len(ask) == 0 {
				a.finished(p)
			}
		case i == a.chosen && c.size == c.full.Len():
			c.label()
			p.Tree, p.Live, p.LogV = c.prop.Tree, c.prop.Live, c.logs(false)
		case !c.asks && a.looked:
			if i == a.chosen {
				c.label()
			}
			// This is not its tree: it begins a round without a draft.
			if err := c.draw(p, &c.tree, 1, 0, ch); err != nil {
				return nil, err
			}
			if i == a.chosen {
				c.cut()
				p.Tree, p.LogV = &c.tree, c.logs(true)
			}
		}
	}
	return ask, nil
}

// choose picks the round's candidate, or none.
func (a *chooser) choose() {
	s := a.shared
	if s.drafts >= plainAfter {
		return // the cost of a plain round must be kept up to date
	}
	worth := a.worth()
	funds := a.funds()
	best, hope := leastGain, leastGain
	explored := -1
	var probe *arm
	for i, c := range a.all {
		switch {
		case c.asks:
			tokens, extra := c.expects(a)
			entry := c.entry(a)
			due := entry - a.lends(c) // now
			c.gain = (tokens-1)*worth - extra - entry/max(1, min(spread, a.remaining()/tokens))
			if c.tried == 0 {
				c.gain = 0
			}
			// A request that cannot afford its usual trees gets smaller ones: one that begins with bad luck is to have something left.
			extra = max(min(extra, c.least(a)), min(extra, boldness*funds-due))
			// At best, it adds one token in every round in which it adds any.
			stake := extra * (1 - min(tokens-1, surest))
			if !c.known() || stake > boldness*(funds+a.lends(c)) || extra+due > utmost*funds {
				continue
			}
			if g := c.gain + c.doubt(tokens)*worth; g > hope && (s.bold() || extra+entry <= utmost*funds) {
				hope, explored = g, i
			}
		case c.fresh:
			a.size(c, worth, funds)
			if c.live == c.full.Len() && (probe == nil || c.live > probe.live) {
				probe = c
			}
		default:
			continue
		}
		if c.gain > best {
			best, a.chosen = c.gain, i
		}
	}
	// An unknown candidate is tried if the request can afford it.
	for i, c := range a.all {
		if !c.asks || c.known() || i == a.chosen {
			continue
		}
		if c.least(a)+c.entry(a)-a.lends(c) <= utmost*a.funds() {
			a.chosen = i
			return
		}
		c.wanted = true
	}
	if a.chosen >= 0 {
		a.earned++
		a.all[a.chosen].earned++
		return
	}
	if explored >= 0 {
		a.chosen, a.unlent = explored, !s.bold()
		return
	}
	if probe == nil {
		return
	}
	for n := 2; n <= 8; n *= 2 {
		if n <= probe.full.Len() && !a.told(n) && boldness*funds >= a.extra(n) {
			a.chosen, probe.size = slices.Index(a.all, probe), n
			return
		}
	}
}

// worth returns λ.
func (a *chooser) worth() float64 {
	return min(a.spent.Value(1, priorTokens), 1)
}

// size finds the part of c's tree that pays most and risks at most funds.
func (a *chooser) size(c *arm, worth, funds float64) {
	t := &c.full
	c.path = append(c.path[:0], 1)
	var sum float64
	for n := 1; n < t.Len(); n++ {
		v := c.path[t.Parent(n)] * c.chance(t, n)
		c.path = append(c.path, v)
		if n < c.live {
			sum += v
		}
	}
	row := a.shared.harvest.Value(0, 1)
	c.gain, c.size, c.reach = 0, 1, 0
	if c.live < t.Len() { // nodes that are only scored serve later rounds: all of them or none
		if more := a.extra(t.Len()) + row*float64(t.Len()-1); more <= utmost*funds {
			c.gain, c.size = sum*worth-more, t.Len()
		}
		return
	}
	c.order = c.order[:0]
	for n := 1; n < t.Len(); n++ {
		c.order = append(c.order, n)
	}
	// A child is never more likely than its parent, and sorts after it.
	slices.SortFunc(c.order, func(m, n int) int {
		return cmp.Or(cmp.Compare(c.path[n], c.path[m]), cmp.Compare(m, n))
	})
	// The likeliest node is lost with the rest of its branch.
	risk := 1 - min(c.path[c.order[0]], surest)
	best, wish := 0.0, 1 // if there were no risk
	sum = 0
	for i, n := range c.order {
		sum += c.path[n]
		more := a.extra(i+2) + row*float64(i+1)
		g := sum*worth - more + a.extra(i+2) - a.hoped(i+2)
		if g > best {
			best, wish = g, i+2
		}
		if g > c.gain && more*risk <= boldness*funds && more+a.risk(i+2)-a.extra(i+2) <= utmost*funds && (i < smallest || a.knows(i/2)) {
			c.gain, c.size = g, i+2
		}
	}
	// A part that would be cut off is not grown; the tree may double in size.
	c.reach = max(fewest, 2*wish)
}

func (a *chooser) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	round := p.Pos >= a.promptLen-1
	if round {
		a.observe(&p, v)
		if p.Tree.Len() == 1 && a.chosen < 0 && !a.looked {
			a.miss(p.Pos, p.Tree.Token(0), v.Next)
			a.seen = len(a.missed) - 1
			return nil
		}
	}
	if err := a.wake(); err != nil {
		return err
	}
	asked := p.MaxDepth
	for _, c := range a.all {
		if p.MaxDepth = asked; round && !c.asks && !a.looked {
			p.MaxDepth = 0 // it was not asked
		}
		if err := c.d.Observe(p, v, s); err != nil {
			return err
		}
	}
	return nil
}

func (a *chooser) observe(p *infer.Proposal, v infer.Verdict) {
	a.shared.Lock()
	defer a.shared.Unlock()
	a.catchUp()
	a.round = len(v.Path)
	a.tokens += a.round
	var buf [64]int32
	tokens := buf[:0]
	for _, n := range v.Path[1:] {
		tokens = append(tokens, p.Tree.Token(n))
	}
	tokens = append(tokens, v.Next)
	if a.chosen >= 0 && a.all[a.chosen].asks && a.drew != nil { // others may have added nodes to the round's tree
		a.all[a.chosen].follow(a.drew, a.drewLive, 0, tokens)
	}
	a.follow(tokens)
	for _, c := range a.all {
		if !c.fresh {
			continue
		}
		c.fresh = false
		if n := c.follow(&c.full, c.live, 0, tokens); n >= 0 && c.laterNode < 0 {
			copyTree(&c.later, &c.full)
			c.laterNode, c.laterLive = n, c.live
		}
	}
}

// took learns from the cost of the round, and whether it paid.
func (a *chooser) took(t infer.Timing) {
	a.shared.Lock()
	defer a.shared.Unlock()
	s := a.shared
	a.owed = a.text != nil && !a.asked && (a.owed || a.due())
	a.rounds++
	s.length.Have += float64(a.round)
	a.idle++
	a.unused++
	a.others = t.Rows - t.Nodes
	s.drafts++
	if t.Nodes == 1 {
		s.drafts = 0
	}
	a.opened = t.Experts
	x := a.charge(t)
	a.lent += min(a.loan, x.read)
	gained := float64(a.round) - 1 - x.sum()
	a.gained += gained
	extra := x.sum() - x.read // what other rounds are to expect
	a.spent.Fade(1+extra, float64(a.round), recent)
	for i, c := range a.all {
		if i != a.chosen {
			c.age(1)
			continue
		}
		a.idle, a.drafted = 0, true
		if !c.asks {
			a.unused = 0
			if a.text != nil {
				a.text.hint = firstHint
			}
		}
		if c.asks {
			c.net, c.used = c.net+gained, true
			a.tried(c, extra)
		}
		if c.traits.Took != nil {
			t.Verify = time.Duration(s.pass.CostOf(t.Rows, t.Experts) * a.meter.Level * float64(time.Second))
			c.traits.Took(t)
		}
	}
	if a.looked && (a.chosen < 0 || a.all[a.chosen].asks) && a.text != nil && a.text.run >= a.text.hint {
		a.text.hint *= 2 // what is copied does not pay yet
	}
	a.chosen, a.asked, a.looked, a.plain = -1, false, false, a.one()
	a.nap = a.naps()
}

// rest returns how many rounds the chooser sits out from now on.
func (a *chooser) rest() int { return a.nap }

// tried notes a round with c's draft model.
func (a *chooser) tried(c *arm, extra float64) {
	if c.tried == c.trial()-newcomer {
		c.asked, c.mine = trials{}, trials{} // it has finished measuring
	}
	if c.narrow {
		c.kept.Fade(float64(a.round-1), c.adds, recent)
		c.paid.Fade(extra, c.costs, recent)
	}
	c.asked.add(float64(a.round), extra, 1, remembered)
	c.mine.add(float64(a.round), extra, 1, recent)
	c.tried++
}
