package infer

// promptRows returns how many rows of prompts a pass takes beside draft trees of so many nodes.
func (e *Engine) promptRows(trees int) int {
	c := &e.Config
	switch {
	case c.PassRows == 0:
		return int(^uint(0) >> 1)
	case trees == 0:
		return max(c.PassRows, c.PrefillChunk) // nobody waits for the next token
	}
	return max(c.PassRows-trees, (c.PassRows+7)/8)
}
