package draft_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"talf/infer/draft"
	"talf/internal/golden"
)

// A restQuery is a recorded search of REST's code: methods/rest. Chance decides among equally
// frequent continuations, so it was run six times.
type restQuery struct {
	Context       []int32
	Choices, Span int
	Nodes         int `json:"trie_nodes"`
	Counts        [][2]json.RawMessage
	Threshold     int
	Above         int
	Sizes         []int `json:"drafted_sizes"`
	Always, Ever  [][]int32
	Sums          []int `json:"sum_distinct"`
}

// Of every recorded search, the drafted continuations are among the most frequent, as many as the
// limit leaves; where no two are equally frequent at the limit they are those of the recording.
func TestRetrievalIsTheAuthors(t *testing.T) {
	var all struct {
		Runs []struct {
			Vocab     int
			Documents [][]int32
			Queries   []restQuery
		}
	}
	if err := json.Unmarshal(golden.Read(t, "methods/rest/queries.json"), &all); err != nil {
		t.Fatal(err)
	}
	same, queries := 0, 0
	caught := map[string]bool{"a span of one": false, "no limit of distinct tokens": false, "shorter matches fill up": false}
	for _, run := range all.Runs {
		// Continuations run on into the next document, as if all were one.
		file := storeFile(t, run.Vocab, slices.Concat(run.Documents...))
		for i := range run.Queries {
			q := &run.Queries[i]
			queries++
			follow := func(params string) (string, bool) {
				mk := open(t, fmt.Sprintf("rest:%s,N=%d%s", file, q.Choices+1, params), draft.Env{})
				tr := grow(t, mk.New(), q.Context, 200, 100)
				var got [][]int32
				for n := 1; n < tr.Len(); n++ {
					var path []int32
					for _, m := range tr.AppendPath(nil, n)[1:] {
						path = append(path, tr.Token(m))
					}
					got = append(got, path)
				}
				return q.check(got)
			}
			why, exact := follow("")
			if why != "" {
				t.Errorf("after %v, %d choices: %s", q.Context, q.Choices, why)
			}
			if exact {
				same++
			}
			for name, params := range map[string]string{"a span of one": ",min=1", "no limit of distinct tokens": ",thin=off", "shorter matches fill up": ",fill=on"} {
				why, _ := follow(params)
				caught[name] = caught[name] || why != ""
			}
		}
	}
	if queries != 28 || same < 16 {
		t.Errorf("%d of %d searches have no ties and agree, want at least 16 of 28", same, queries)
	}
	for name, ok := range caught {
		if !ok {
			t.Errorf("%s: every search agrees", name)
		}
	}
}

// check says what is wrong with drafted continuations, and whether they can be compared with the
// recording's to the last one.
func (q *restQuery) check(got [][]int32) (why string, exact bool) {
	if q.Span == 0 {
		if len(got) > 0 {
			return fmt.Sprintf("drafts %v, and no span occurs", got), false
		}
		return "", true
	}
	frequent := func(path []int32) bool {
		for _, raw := range q.Counts {
			var known []int32
			var n int
			if json.Unmarshal(raw[0], &known) != nil || json.Unmarshal(raw[1], &n) != nil {
				return false
			}
			if slices.Equal(known, path) {
				return n >= q.Threshold
			}
		}
		return false
	}
	sum := 0
	for _, path := range got {
		if !frequent(path) {
			return fmt.Sprintf("%v is not among the %d most frequent", path, q.Choices), false
		}
		distinct := map[int32]bool{}
		for _, x := range path {
			distinct[x] = true
		}
		sum += len(distinct)
	}
	if sum > q.Choices {
		return fmt.Sprintf("%d distinct tokens in all, want at most %d", sum, q.Choices), false
	}
	// With ties, trees of the recording differ in size, because what chance keeps of a
	// continuation need not begin it.
	if len(got) < len(q.Always) || len(got) > slices.Max(q.Sizes) {
		return fmt.Sprintf("%d nodes, want %d to %d", len(got), len(q.Always), slices.Max(q.Sizes)), false
	}
	if len(q.Always) != len(q.Ever) {
		return "", false
	}
	for _, want := range q.Always {
		if !slices.ContainsFunc(got, func(p []int32) bool { return slices.Equal(p, want) }) {
			return fmt.Sprintf("%v is missing", want), false
		}
	}
	return "", len(got) == len(q.Always)
}
