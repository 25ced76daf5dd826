package infer

// unusable reports whether no verdict can be reached because numbers of the target's pass are not
// finite. If the tree has drafts, they may be the reason: attention weighs a node that a row does
// not see by zero, and zero times infinity is not a number. Plain decoding would not have run
// them, so the round begins again with the root alone. Otherwise the sequence ends, as it does in
// plain decoding.
func (s *Sequence) unusable(rows Rows) bool {
	err := rows.Err()
	switch {
	case err == nil:
		return false
	case s.prop.Tree.Len() > 1:
		s.alone = err
	default:
		s.fail(err)
	}
	return true
}
