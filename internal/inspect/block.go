package inspect

import (
	"fmt"
	"strings"

	"talf/model/arch"
)

// A Block is what a block head has beyond others.
type Block struct {
	Size       int    `json:"size"`   // rows
	Drafts     int    `json:"drafts"` // tokens that they predict
	Taps       []int  `json:"taps"`   // boundaries of the target's layers
	Mask       int32  `json:"mask_token_id"`
	Causal     bool   `json:"causal,omitempty"` // a row sees those before it, in the first layer at least
	Markov     string `json:"markov_head,omitempty"`
	Rank       int    `json:"markov_rank,omitempty"`
	Confidence bool   `json:"confidence_head,omitempty"`
	Linear     bool   `json:"linear_rows,omitempty"`
	Selector   int    `json:"selector_rank,omitempty"`
	Conv       int    `json:"conv_group_size,omitempty"`
}

// block describes a block head; nil for another.
func block(s *arch.Spec) *Block {
	b := &s.Block
	if !b.On {
		return nil
	}
	return &Block{
		Size: b.Size, Drafts: b.Drafts(), Taps: b.Taps, Mask: b.Mask, Causal: b.CausalIn(0),
		Linear: b.Linear, Markov: string(b.Markov), Rank: b.Rank, Confidence: b.Confidence, Selector: b.SelectorRank, Conv: b.Group,
	}
}

func (b *Block) print(p *page) {
	p.printf("reads         the target's hidden states %s\n", strings.Trim(fmt.Sprint(b.Taps), "[]"))
	parts := []string{fmt.Sprintf("%d rows, which predict %d tokens", b.Size, b.Drafts)}
	for _, o := range []struct {
		on   bool
		text string
	}{
		{b.Linear, "linear maps of the anchor and the state before it"},
		{b.Causal, "causal"},
		{b.Markov != "", fmt.Sprintf("Markov head %s of rank %d", b.Markov, b.Rank)},
		{b.Selector > 0, fmt.Sprintf("selector of rank %d", b.Selector)},
		{b.Conv > 0, "convolutions"},
		{b.Confidence, "confidence"},
	} {
		if o.on {
			parts = append(parts, o.text)
		}
	}
	p.printf("block         %s\n", strings.Join(parts, ", "))
}
