package suffixtree

// raise adds one to the count of n, and puts it before all siblings with no more.
func (t *Tree) raise(n int32) {
	x := t.at(n)
	g := t.groups[x.group]
	before := g.head
	if above := t.at(g.head).prev; above != 0 && t.at(above).count == x.count+1 {
		before = t.groups[t.at(above).group].head
	} else if g.head == g.tail {
		x.count++
		return
	}
	t.leave(n)
	if before == n {
		before = x.next
	}
	t.unlink(n)
	x.count++
	t.insert(n, before)
	t.enter(n)
}

// lower takes one from the count of n, and puts it behind all siblings with more.
func (t *Tree) lower(n int32) {
	x := t.at(n)
	g := t.groups[x.group]
	before := t.at(g.tail).next
	if g.head == g.tail && (before == 0 || t.at(before).count < x.count-1) {
		x.count--
		return
	}
	t.leave(n)
	t.unlink(n)
	x.count--
	t.insert(n, before)
	t.enter(n)
}

// insert links n into its parent's children before another child, 0 for the end.
func (t *Tree) insert(n, before int32) {
	x := t.at(n)
	p := t.at(x.parent)
	x.next = before
	if before != 0 {
		y := t.at(before)
		x.prev, y.prev = y.prev, n
	} else {
		x.prev, p.last = p.last, n
	}
	if x.prev != 0 {
		t.at(x.prev).next = n
	} else {
		p.first = n
	}
}

// unlink takes n from its parent's children.
func (t *Tree) unlink(n int32) {
	x := t.at(n)
	if x.prev != 0 {
		t.at(x.prev).next = x.next
	} else {
		t.at(x.parent).first = x.next
	}
	if x.next != 0 {
		t.at(x.next).prev = x.prev
	} else {
		t.at(x.parent).last = x.prev
	}
}

// enter puts n into the group of a neighbour of equal count, or into one of its own.
func (t *Tree) enter(n int32) {
	x := t.at(n)
	switch {
	case x.prev != 0 && t.at(x.prev).count == x.count:
		x.group = t.at(x.prev).group
		if g := &t.groups[x.group]; g.tail == x.prev {
			g.tail = n
		}
	case x.next != 0 && t.at(x.next).count == x.count:
		x.group = t.at(x.next).group
		if g := &t.groups[x.group]; g.head == x.next {
			g.head = n
		}
	case t.spare != 0:
		x.group = t.spare
		t.spare = t.groups[x.group].head
		t.groups[x.group] = group{n, n}
	default:
		x.group = int32(len(t.groups))
		t.groups = append(t.groups, group{n, n})
	}
}

// leave takes n from its group, while it is still linked.
func (t *Tree) leave(n int32) {
	x := t.at(n)
	g := &t.groups[x.group]
	switch {
	case g.head == g.tail:
		*g = group{head: t.spare}
		t.spare = x.group
	case g.head == n:
		g.head = x.next
	case g.tail == n:
		g.tail = x.prev
	}
}
