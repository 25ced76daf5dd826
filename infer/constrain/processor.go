package constrain

import (
	"errors"
	"fmt"

	"talf/infer"
	"talf/model/sample"
	"talf/text/grammar"
)

// A Processor is an infer.Processor that allows what a grammar allows. It belongs to one sequence.
type Processor struct {
	auto   *grammar.Automaton
	s      *sample.Sampler
	prompt int
	ends   []int32
	encode func(text string) ([]int32, error)

	// The answer read last, with the state after each of its tokens: states[0] is the start. A
	// token that the grammar does not allow leads to nil.
	read   []int32
	states []*grammar.State
}

// Processor returns a processor of p for the answer to a prompt of the given number of tokens. With
// endless, no token ends the answer: it ends where the grammar allows nothing more.
func (c *Constraint) Processor(p sample.Params, prompt int, endless bool) (*Processor, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	start := c.Automaton.Start()
	x := &Processor{auto: c.Automaton, s: sample.New(p, prompt), prompt: prompt, ends: c.Ends, encode: c.Encode, states: []*grammar.State{start}}
	if endless {
		x.ends = nil
	}
	return x, x.check(start)
}

// State returns the state of the grammar after the answer that follows the prompt in context, nil
// if it has left the grammar.
func (c *Processor) State(context []int32) *grammar.State {
	answer := context[c.prompt:]
	n := 0
	for n < min(len(answer), len(c.read)) && answer[n] == c.read[n] {
		n++
	}
	c.read, c.states = c.read[:n], c.states[:n+1]
	for _, id := range answer[n:] {
		s := c.states[len(c.states)-1]
		if s != nil {
			s = c.auto.Next(s, id)
		}
		c.read, c.states = append(c.read, id), append(c.states, s)
	}
	return c.states[len(c.states)-1]
}

// restrict tells the sampler what may come after context. Where the grammar has ended or was left,
// everything may: no verdict reaches so far.
func (c *Processor) restrict(context []int32) {
	s := c.State(context)
	if s == nil {
		c.s.Free()
		return
	}
	mask, err := c.auto.Mask(s)
	end := s.Accepting() && len(c.ends) > 0
	if err != nil || !end && !mask.Any() {
		c.s.Free() // Ended reports it once the answer is here
		return
	}
	c.s.Restrict(mask, c.ends, end)
}

// Argmax returns the most likely token that the grammar allows, after bias and penalties.
func (c *Processor) Argmax(logits []float32, context []int32) int32 {
	c.restrict(context)
	return c.s.Argmax(logits, context)
}

// Dist sets dst to the distribution that the token after context is drawn from.
func (c *Processor) Dist(dst infer.Dist, logits []float32, context []int32) {
	c.restrict(context)
	c.s.Dist64(dst, logits, context)
}

// Plain is false: Argmax depends on the context.
func (c *Processor) Plain() bool { return false }

// Abilities: it says where an answer ends.
func (c *Processor) Abilities() infer.ProcessorAbilities { return infer.ProcessorAbilities{End: c} }

// Ended reports whether the answer in context is complete: the grammar allows nothing more. It
// fails if the answer is not, and no token of the vocabulary continues it.
func (c *Processor) Ended(context []int32) (bool, error) {
	s := c.State(context)
	switch {
	case s == nil:
		return false, fmt.Errorf("grammar: token %d does not continue the answer", context[len(context)-1])
	case s.Complete():
		return true, nil
	}
	return false, c.check(s)
}

// check fails if no token may come in a state.
func (c *Processor) check(s *grammar.State) error {
	mask, err := c.auto.Mask(s)
	if err == nil && !mask.Any() && !(s.Accepting() && len(c.ends) > 0) {
		err = errors.New("grammar: no token of the vocabulary continues the answer")
	}
	return err
}
