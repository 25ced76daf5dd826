package kvpool

import "slices"

// A Layout divides the layers of a model into groups of equal size. A block has the keys and values of
// BlockLen positions in the layers of one group, so that layers with a window can give back what no later
// token sees while others keep all positions, and one pool serves both.
type Layout struct {
	Layers  int   // of a group; the last groups of a window may have fewer
	Windows []int // of each group; 0: its layers see all positions. Those come first
}

// A Place is where the keys and values of a layer are: layer Layer of group Group.
type Place struct{ Group, Layer int }

// slack is the number of positions by which a sequence may be cut back although it keeps only its
// window: a draft head is a round behind its target, and the end of an answer is often spelt otherwise
// in the next prompt.
const slack = blockLen

// Arrange returns the layout of layers with these windows, and each layer's place. Groups are as large
// as they can be while at most one in 16 of their layers, of each window, is not there.
func Arrange(windows []int) (Layout, []Place) {
	count := map[int]int{}
	for _, w := range windows {
		count[w]++
	}
	kinds := make([]int, 0, len(count))
	most := 1
	for w, n := range count {
		kinds, most = append(kinds, w), max(most, n)
	}
	slices.Sort(kinds)
	wasteful := func(size int) bool {
		for _, n := range count {
			if (n+size-1)/size*size*16 > n*17 {
				return true
			}
		}
		return false
	}
	l := Layout{Layers: most}
	for wasteful(l.Layers) {
		l.Layers--
	}
	first := map[int]int{} // group of each window
	for _, w := range kinds {
		first[w] = len(l.Windows)
		for range (count[w] + l.Layers - 1) / l.Layers {
			l.Windows = append(l.Windows, w)
		}
	}
	places, seen := make([]Place, len(windows)), map[int]int{}
	for i, w := range windows {
		places[i] = Place{first[w] + seen[w]/l.Layers, seen[w] % l.Layers}
		seen[w]++
	}
	return l, places
}

// Full returns the number of groups that keep all positions.
func (l *Layout) Full() int {
	n := 0
	for _, w := range l.Windows {
		if w == 0 {
			n++
		}
	}
	return n
}

// Windowed reports whether some groups have a window.
func (l *Layout) Windowed() bool { return l.Full() < len(l.Windows) }

// first returns the first position that a sequence of n tokens keeps in a group with window w: later
// tokens, and those after it is cut back by Slack, see none before.
func first(n, w int) int { return max(0, n+1-w-slack) }

// windowBlocks is the most blocks of a group with window w that a sequence keeps.
func windowBlocks(w int) int { return Blocks(w+slack) + 1 }

// Blocks returns the blocks of n positions in one group.
func Blocks(n int) int { return (n + blockLen - 1) / blockLen }

// Keeps returns the most blocks that a sequence of n positions keeps, and with places, that of those at
// which it can be resumed, too.
func (l *Layout) Keeps(n int, places bool) int {
	sum := 0
	for _, w := range l.Windows {
		sum += l.keeps(n, w, places)
	}
	return sum
}

func (l *Layout) keeps(n, w int, places bool) int {
	switch {
	case w == 0:
		return Blocks(n)
	case places:
		return min(Blocks(n), (1+mostPlaces)*windowBlocks(w))
	}
	return min(Blocks(n), windowBlocks(w))
}

// Window returns the most positions that groups with a window keep of a sequence with places.
func (l *Layout) Window() int {
	return (1 + mostPlaces) * windowBlocks(slices.Max(l.Windows)) * blockLen
}

// mostPlaces is the number of places at which a sequence keeps its windows, besides its end.
const mostPlaces = 3

// Takes returns the most blocks that a sequence of from positions takes to have to positions, of
// which at most pass run before it gives blocks back.
func (l *Layout) Takes(from, to, pass int) int {
	sum := 0
	for _, w := range l.Windows {
		more := Blocks(to) - Blocks(from)
		if w > 0 {
			more = min(more, l.keeps(to, w, true)+Blocks(pass)-l.keeps(from, w, false))
		}
		sum += max(0, more)
	}
	return sum
}

// Fits returns the most positions of a sequence that keeps at most n blocks, if no pass has more than
// pass of them.
func (l *Layout) Fits(n, pass int) int {
	most := 0
	for step := 1 << 30; step > 0; step /= 2 {
		if p := most + step; p <= blockLen*Unbounded && l.Takes(0, p, pass) <= n {
			most = p
		}
	}
	return most
}
