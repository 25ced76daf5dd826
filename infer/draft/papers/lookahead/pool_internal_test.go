package lookahead

import "testing"

// A full pool gives up the first tokens that were new longest ago, whatever was used since, and stays
// as large as it is.
func TestAFullPoolForgetsTheOldestFirstTokens(t *testing.T) {
	var q pool
	q.init(2, 2)
	const more = 100
	for i := range int32(poolKeys) {
		q.put(i, []int32{i, 1})
	}
	q.put(0, []int32{7, 7})
	size := len(q.grams)
	for i := range int32(more) {
		q.put(poolKeys+i, []int32{i, 2})
	}
	for i := range int32(poolKeys + more) {
		want := 1
		if i < more {
			want = 0
		}
		if got := q.count(i); got != want {
			t.Fatalf("token %d begins %d n-grams, want %d", i, got, want)
		}
	}
	if len(q.grams) != size || len(q.slots) != poolKeys {
		t.Errorf("%d first tokens in %d places, want %d in %d", len(q.slots), len(q.grams), poolKeys, size)
	}
	if got := q.newest(poolKeys, 0); got[0] != 0 || got[1] != 2 {
		t.Errorf("the place of a forgotten token holds %v", got)
	}
	q.clear()
	if q.count(poolKeys) != 0 {
		t.Error("a cleared pool holds n-grams")
	}
}
