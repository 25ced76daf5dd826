package costtest

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
)

// bench is what a yard's work needs. The work allocates nothing: when the collector runs is chance.
type bench struct {
	document []byte
	names    map[int]int
	list     []int
}

var workbench = sync.OnceValue(func() *bench {
	b := &bench{document: []byte("[" + strings.Repeat(`{"id": 12345, "name": "naïve", "values": [1.5e3, true, null]}, `, 12000) + "0]"), names: map[int]int{}}
	for i := range 1 << 16 {
		b.names[i*7919] = i
	}
	b.list = make([]int, len(b.names))
	return b
})

// work does a yard's work, of the kinds that reading an input takes: scanning, looking up, sorting.
func work() {
	b := workbench()
	for i := range b.list {
		b.list[i] = b.names[i*104729%len(b.list)*7919] * 40503 % 65536
	}
	slices.Sort(b.list)
	if !json.Valid(b.document) || b.list[0] != 0 {
		panic("costtest: the work was not done")
	}
}

// yard measures one.
func yard() time.Duration {
	start := cpu()
	work()
	return cpu() - start
}

// first is a yard as it was when the process first needed one.
var first = sync.OnceValue(func() time.Duration {
	work() // once in vain: it makes what it needs
	return min(yard(), yard(), yard())
})
