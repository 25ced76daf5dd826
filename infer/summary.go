package infer

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A Summary is Stats in the form that people read and files of answers store.
type Summary struct {
	Tau             float64   `json:"tau"` // tokens per target pass
	Tokens          int       `json:"tokens"`
	Passes          int       `json:"passes"`
	Prompt          int       `json:"prompt_tokens"`
	Cached          int       `json:"cached_tokens"`
	Drafted         int       `json:"drafted_tokens"`
	TokensPerSecond float64   `json:"tokens_per_second"` // after the prompt
	FirstToken      float64   `json:"first_token_seconds"`
	DraftShare      float64   `json:"draft_share"` // of decoding time
	VerifyShare     float64   `json:"verify_share"`
	OverheadShare   float64   `json:"overhead_share"`
	Emitted         []int     `json:"emitted"`  // [n]: passes that emitted n tokens
	ByDepth         []float64 `json:"by_depth"` // [d-1]: share of passes that kept a node of depth d
}

// Summary sums up s.
func (s *Stats) Summary() Summary {
	x := Summary{
		Tau: s.Tau(), Tokens: s.Tokens, Passes: s.Passes, Prompt: s.Prompt, Cached: s.Cached, Drafted: s.Drafted,
		FirstToken: s.TTFT.Seconds(), Emitted: s.Emitted,
	}
	if t := s.Decode.Seconds(); t > 0 {
		x.TokensPerSecond = float64(s.Tokens) / t
		x.DraftShare, x.VerifyShare, x.OverheadShare = s.Draft.Seconds()/t, s.Verify.Seconds()/t, s.Overhead.Seconds()/t
	}
	for d := 1; d < len(s.Depth) && s.Depth[d].Kept > 0; d++ {
		x.ByDepth = append(x.ByDepth, float64(s.Depth[d].Kept)/float64(s.Passes))
	}
	return x
}

// Print writes x as a few lines of text.
func (x *Summary) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "τ %.2f: %d tokens in %d passes; %.1f tokens/s; first token after %s\n",
		x.Tau, x.Tokens, x.Passes, x.TokensPerSecond, time.Duration(x.FirstToken*float64(time.Second)).Round(time.Millisecond))
	fmt.Fprintf(&b, "time: draft %.0f%%, verify %.0f%%, overhead %.0f%%; %d prompt tokens, %d of them cached; %d drafted\n",
		100*x.DraftShare, 100*x.VerifyShare, 100*x.OverheadShare, x.Prompt, x.Cached, x.Drafted)
	b.WriteString("tokens a pass × passes:")
	for n, c := range x.Emitted {
		if n > 0 && c > 0 {
			fmt.Fprintf(&b, " %d×%d", n, c)
		}
	}
	b.WriteByte('\n')
	if len(x.ByDepth) > 0 {
		b.WriteString("accepted at depth 1, 2, …:")
		for _, share := range x.ByDepth {
			fmt.Fprintf(&b, " %.2f", share)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
