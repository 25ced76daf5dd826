package heads

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// A RankLine is the accuracy and calibration of a head conditioned on its own token of one rank.
type RankLine struct {
	Head     string  `json:"head"`
	Rank     int     `json:"rank"`
	Items    int     `json:"items"`
	Accuracy float64 `json:"accuracy"`
	ECE      float64 `json:"ece"`     // confidence: the head's probability of the target's choice
	ECEMax   float64 `json:"ece_max"` // confidence: the head's largest probability
	// ECEMass and ECEMaxMass are the same over bins of equal numbers of items.
	ECEMass    float64 `json:"ece_equal_mass"`
	ECEMaxMass float64 `json:"ece_max_equal_mass"`
	// ByText are the items of each text that has any, in the order of the texts. Figures of several
	// heads are pooled, and compared, over equal texts.
	ByText []TextHits `json:"by_text"`
}

// TextHits counts the items of a text, and the correct ones.
type TextHits struct {
	Items   int `json:"items"`
	Correct int `json:"correct"`
}

// RankLines sums up the items that ByRank returned for texts, rank by rank.
func RankLines(head string, ranks [][]Item, texts []Text) ([]RankLine, error) {
	lengths := lengthsOf(texts)
	var out []RankLine
	for rank, items := range ranks {
		if err := checkItems(items, lengths, rank); err != nil {
			return nil, err
		}
		c := countItems(items, placesOf(items, eceBins), eceBins)
		line := RankLine{
			Head: head, Rank: rank + 1, Items: len(items), Accuracy: c.Accuracy(),
			ECE: c.Error(ChoiceWidth), ECEMax: c.Error(MaxWidth), ECEMass: c.Error(ChoiceCount), ECEMaxMass: c.Error(MaxCount),
		}
		for _, n := range lengths {
			t := TextHits{Items: n}
			for i := range items[:n] {
				if items[i].Correct {
					t.Correct++
				}
			}
			items = items[n:]
			line.ByText = append(line.ByText, t)
		}
		out = append(out, line)
	}
	return out, nil
}

// lengthsOf are the items of a rank in each text that has any.
func lengthsOf(texts []Text) (out []int) {
	for i := range texts {
		if n := texts[i].items(); n > 0 {
			out = append(out, n)
		}
	}
	return out
}

// checkItems reports items of a rank, counted from 0, that are not those of texts with so many each.
func checkItems(items []Item, lengths []int, rank int) error {
	want := 0
	for _, n := range lengths {
		want += n
	}
	if len(items) != want {
		return fmt.Errorf("%d items of rank %d, want %d for these texts", len(items), rank+1, want)
	}
	return nil
}

// eceBins is the number of bins of the expected calibration error.
const eceBins = 10

// The binnings: by confidence, the probability of the target's choice or the head's largest, and by
// what is equal, the width of the bins or the number of their items.
const (
	ChoiceWidth = iota
	MaxWidth
	ChoiceCount
	MaxCount
	binnings
)

// places are the bins of items in every binning.
type places [binnings][]int

// placesOf puts items into so many bins. Bins of equal numbers hold runs of the items sorted by
// confidence, equal ones in their order; the first ones are one item longer if need be.
func placesOf(items []Item, bins int) (p places) {
	for k := range p {
		p[k] = make([]int, len(items))
	}
	for i := range items {
		p[ChoiceWidth][i], p[MaxWidth][i] = binOf(items[i].Conf, bins), binOf(items[i].MaxProb, bins)
	}
	for k, of := range map[int]func(*Item) float64{ChoiceCount: confOf, MaxCount: maxProbOf} {
		order := make([]int, len(items))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(of(&items[a]), of(&items[b])) })
		at := 0
		for b := range bins {
			n := len(items) / bins
			if b < len(items)%bins {
				n++
			}
			for _, i := range order[at : at+n] {
				p[k][i] = b
			}
			at += n
		}
	}
	return p
}

// of are the places of items from at to end.
func (p *places) of(at, end int) (out places) {
	for k := range p {
		out[k] = p[k][at:end]
	}
	return out
}

func confOf(it *Item) float64    { return it.Conf }
func maxProbOf(it *Item) float64 { return it.MaxProb }

// Counts are what accuracy and calibration need of some items.
type Counts struct {
	items, hits int
	bins        [binnings][]bin
}

// A bin holds items of similar confidence.
type bin struct {
	n             int
	correct, conf float64
}

func newCounts(bins int) (c Counts) {
	for k := range c.bins {
		c.bins[k] = make([]bin, bins)
	}
	return c
}

func countItems(items []Item, p places, bins int) Counts {
	c := newCounts(bins)
	for i := range items {
		it := &items[i]
		c.items++
		correct := 0.0
		if it.Correct {
			c.hits++
			correct = 1
		}
		for k := range c.bins {
			conf := it.Conf
			if k == MaxWidth || k == MaxCount {
				conf = it.MaxProb
			}
			c.bins[k][p[k][i]].add(1, correct, conf)
		}
	}
	return c
}

// NewCounts returns the counts of no items.
func NewCounts() Counts { return newCounts(eceBins) }

// CountTexts counts the items of a rank, from 0, that ByRank returned for texts, in each text that has any. Which bin
// of equally many an item belongs to, the items of all texts decide.
func CountTexts(rank int, items []Item, texts []Text) (out []Counts, err error) {
	lengths := lengthsOf(texts)
	if err := checkItems(items, lengths, rank); err != nil {
		return nil, err
	}
	at, where := 0, placesOf(items, eceBins)
	for _, n := range lengths {
		out = append(out, countItems(items[at:at+n], where.of(at, at+n), eceBins))
		at += n
	}
	return out, nil
}

// Add adds o as if it had been counted k times.
func (c *Counts) Add(o *Counts, k int) {
	c.items, c.hits = c.items+k*o.items, c.hits+k*o.hits
	for b := range c.bins {
		for i := range c.bins[b] {
			x := &o.bins[b][i]
			c.bins[b][i].add(k*x.n, float64(k)*x.correct, float64(k)*x.conf)
		}
	}
}

func (b *bin) add(n int, correct, conf float64) {
	b.n, b.correct, b.conf = b.n+n, b.correct+correct, b.conf+conf
}

// Accuracy is the share of correct items.
func (c *Counts) Accuracy() float64 { return float64(c.hits) / float64(max(c.items, 1)) }

// Error is the expected calibration error in a binning: Σ |B|/n · |mean correct − mean confidence|
// (Guo et al. 2017).
func (c *Counts) Error(binning int) (e float64) {
	for _, b := range c.bins[binning] {
		if b.n > 0 {
			e += math.Abs(b.correct-b.conf) / float64(c.items)
		}
	}
	return e
}

// binOf returns the bin of a confidence among m of equal width, bin i being (i/m, (i+1)/m].
func binOf(conf float64, m int) int {
	return min(max(int(math.Ceil(conf*float64(m)))-1, 0), m-1)
}
