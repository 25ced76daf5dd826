package gg

import (
	"runtime"
	"testing"
	"weak"
)

// A run builds a graph for each of its stages. The memory of those that it has left, and of the
// data that their operations read, is collected.
func TestAGraphThatIsNoLongerUsedIsCollected(t *testing.T) {
	build := func() weak.Pointer[Graph] {
		m := newMaker(t)
		loss, _ := m.layer(5)
		m.compile(loss)
		m.run()
		return weak.Make(m.g)
	}
	g := build()
	for range 10 {
		if runtime.GC(); g.Value() == nil {
			return
		}
	}
	t.Error("the graph is still in memory")
}
