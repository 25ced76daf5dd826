package infer

import (
	"talf/infer/prefix"
	"talf/model"
	"talf/tree"
)

// held is how far a sequence has come in the target and its source.
type held struct {
	tokens []int32      // prompt and output; the last is the next root
	done   int          // tokens in the target's KV store
	seen   int          // tokens that the drafter has observed or will never see
	owner  prefix.Owner // of what it holds in the target and its source
	out    bool         // it holds nothing in the target and its source, and has to begin again
	closed bool
	chunk  tree.Tree // of the prompt
}

// prefilling reports whether tokens before the next root have to run: those of the prompt, and all
// of them after a preemption.
func (h *held) prefilling() bool { return h.done < len(h.tokens)-1 }

// Pending returns how many tokens have to run before the next round: those of the prompt that
// have not, and after a preemption those of the output too.
func (s *Sequence) Pending() int { return len(s.tokens) - 1 - s.done }

// Preempted reports whether the sequence holds nothing in the target and its source, so that the
// next step that it is part of begins to compute all of it again.
func (s *Sequence) Preempted() bool { return s.out }

// outgrown reports whether the sequence was opened as a short text, and its next root makes it a long one.
func (s *Sequence) outgrown() bool {
	return s.turn > 0 && len(s.tokens) > s.turn && !s.owner.Long && !s.out && s.reason == ""
}

// nextChunk builds the next part of the prompt as a chain. After a preemption, tokens that the drafter has
// observed never share a chunk with tokens that it has not.
func (s *Sequence) nextChunk(most int) Job {
	n := min(most, s.Pending())
	want := s.want
	switch {
	case s.done < s.seen:
		n, want = min(n, s.seen-s.done), model.WantNone
	case s.req.PromptLogProbs:
		n = min(n, loggedRows)
	}
	s.chunk.Reset(s.tokens[s.done], n)
	for i := 1; i < n; i++ {
		s.chunk.Add(i-1, s.tokens[s.done+i])
	}
	return Job{ID: s.id, Tree: &s.chunk, Want: want}
}

func (s *Sequence) keepChunk(e *Engine, rows Rows) {
	n := s.chunk.Len()
	s.path = s.path[:0]
	for i := range n {
		s.path = append(s.path, i)
	}
	if s.logChunk(rows); s.reason != "" {
		return
	}
	p := Proposal{Tree: &s.chunk, Pos: s.done, MaxNodes: n, MaxDepth: n - 1}
	v := Verdict{Path: s.path, Next: s.tokens[s.done+n]}
	s.keep(e, p, v, rows, s.tokens[:s.done+1])
	s.done += n
	s.seen = max(s.seen, s.done)
}
