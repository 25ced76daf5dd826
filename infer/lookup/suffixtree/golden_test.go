package suffixtree_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"talf/infer/lookup/suffixtree"
	"talf/internal/golden"
)

type recorded struct {
	Tokens, Parents []int32
	Probs           []float32
	Score           float32
	Match           int
}

// paths returns the nodes of a draft as their texts with their probabilities, in alphabetic order.
func paths(tokens, parents []int32, probs []float32) []string {
	text := make([]string, len(tokens))
	out := make([]string, len(tokens))
	for i, token := range tokens {
		if up := parents[i]; up >= 0 {
			text[i] = text[up]
		}
		text[i] += fmt.Sprint(token, " ")
		out[i] = fmt.Sprint(text[i], probs[i])
	}
	slices.Sort(out)
	return out
}

// Drafts are those of the published suffix tree, while sequences grow and are removed. It orders
// children of equal counts by their history, and equal probabilities by the heap of the C++
// library, so there only scores and probabilities are compared, which are the same for every order.
func TestDraftsAreThoseOfThePublishedTree(t *testing.T) {
	var all struct {
		Scripts []struct {
			Depth int
			Steps []struct {
				Seq            int
				Append         []int32
				Remove         bool
				Context        []int32
				Most           int
				Factor, Offset float32
				Prob           float32
				Tied           bool
				Tree, Chain    recorded
			}
		}
	}
	if err := json.Unmarshal(golden.Read(t, "methods/suffix/speculate.json"), &all); err != nil {
		t.Fatal(err)
	}
	whole, chains, drafts := 0, 0, 0
	for i, script := range all.Scripts {
		tree := suffixtree.New(script.Depth, 1<<20)
		var seqs []suffixtree.Seq
		for j, s := range script.Steps {
			switch {
			case s.Remove:
				if tree.Len() == 0 {
					seqs = append(seqs, tree.Open())
				}
				tree.Remove()
				continue
			case s.Append != nil:
				for len(seqs) <= s.Seq {
					seqs = append(seqs, tree.Open())
				}
				for _, token := range s.Append {
					tree.Append(seqs[s.Seq], token)
				}
				continue
			}
			for _, asTree := range []bool{true, false} {
				want := s.Chain
				if asTree {
					want = s.Tree
				}
				var got, scratch suffixtree.Draft
				tree.Speculate(&got, &scratch, s.Context, suffixtree.Limits{Most: s.Most, Factor: s.Factor, Offset: s.Offset, MinProb: s.Prob, Tree: asTree})
				drafts += min(1, len(want.Tokens))
				if !asTree && s.Tied {
					continue
				}
				a, b := slices.Clone(got.Probs), slices.Clone(want.Probs)
				slices.Sort(a)
				slices.Sort(b)
				if got.Score != want.Score || got.Match != want.Match || !slices.Equal(a, b) {
					t.Fatalf("script %d, step %d, tree %v: %d tokens, score %v, match %d; want %d, %v, %d",
						i, j, asTree, len(got.Tokens), got.Score, got.Match, len(want.Tokens), want.Score, want.Match)
				}
				switch {
				case !asTree:
					chains++
				case s.Most >= 1000: // everything that follows
					whole++
				default:
					continue
				}
				if x, y := paths(got.Tokens, got.Parents, got.Probs), paths(want.Tokens, want.Parents, want.Probs); !slices.Equal(x, y) {
					t.Fatalf("script %d, step %d, tree %v: %v, want %v", i, j, asTree, x, y)
				}
			}
		}
	}
	if whole < 50 || chains < 60 || drafts < 200 {
		t.Errorf("compared %d whole trees and %d chains; %d drafts have tokens", whole, chains, drafts)
	}
}
