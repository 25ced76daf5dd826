package tokenizer

import (
	"runtime"
	"testing"
)

// A burst of texts leaves no more working memory behind than texts can be encoded at the same time.
func TestWorkingMemoryOfABurstIsNotKept(t *testing.T) {
	var p pool
	var all []*scratch
	for range 3 * runtime.GOMAXPROCS(0) {
		all = append(all, p.get())
	}
	for _, sc := range all {
		p.put(sc)
	}
	if len(p.free) != runtime.GOMAXPROCS(0) {
		t.Errorf("memory of %d texts is kept, want %d", len(p.free), runtime.GOMAXPROCS(0))
	}
	if sc := p.get(); sc != all[runtime.GOMAXPROCS(0)-1] {
		t.Error("memory is not used again")
	}
}
