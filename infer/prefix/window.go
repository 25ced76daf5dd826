package prefix

import "talf/model"

// Mark makes a sequence of an owner, of which keep tokens are there and prompt is to come, keep the windows of its
// layers where later prompts may go on: where it parts from a sequence that could not be continued there, and
// at its end, since the next turn of a conversation may spell the answer otherwise.
func Mark(c *Cache[*model.Seq], of Owner, prompt []int32, keep int, s *model.Seq) {
	if c.limit.Entries < 1 {
		return
	}
	end := len(prompt) - 1 // the last token is never taken from a prefix
	if n := min(c.Shared(of, prompt), end); n > keep {
		s.KeepAt(n)
	}
	s.KeepAt(end)
}
