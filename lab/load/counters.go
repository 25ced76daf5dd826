package load

import (
	"bufio"
	"bytes"
	"context"
	"net/url"
	"strconv"
	"strings"
)

// Counters are what a server counts about drafting, under the names that vLLM introduced.
type Counters struct {
	Drafts   float64 `json:"drafts"`   // rounds with a draft
	Drafted  float64 `json:"drafted"`  // tokens
	Accepted float64 `json:"accepted"` // of these
	known    bool
}

// Tau returns the mean number of tokens per round, the model's own included, of rounds with a draft.
func (c *Counters) Tau() float64 {
	if c.Drafts == 0 {
		return 1
	}
	return 1 + c.Accepted/c.Drafts
}

// since returns what was counted after an earlier reading, or nil if the server does not count.
func (c Counters) since(before Counters) *Counters {
	if !c.known || !before.known {
		return nil
	}
	return &Counters{Drafts: c.Drafts - before.Drafts, Drafted: c.Drafted - before.Drafted, Accepted: c.Accepted - before.Accepted, known: true}
}

// counters reads the metrics of a server, which lie beside its API. A server without has none.
func (c *client) counters(ctx context.Context) Counters {
	u, err := url.Parse(c.URL)
	if err != nil {
		return Counters{}
	}
	u.Path = strings.TrimSuffix(u.Path, "/v1") + "/metrics"
	b, err := c.get(ctx, u.String())
	if err != nil {
		return Counters{}
	}
	return readCounters(b)
}

// readCounters reads the text format of Prometheus. Series of one name are summed.
func readCounters(text []byte) (c Counters) {
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		name, value, ok := sample(in.Text())
		if !ok {
			continue
		}
		_, name, _ = strings.Cut(name, ":") // of vllm:, sglang:, llamacpp:
		switch strings.TrimSuffix(name, "_total") {
		case "spec_decode_num_drafts":
			c.Drafts += value
		case "spec_decode_num_draft_tokens":
			c.Drafted += value
		case "spec_decode_num_accepted_tokens":
			c.Accepted += value
		default:
			continue
		}
		c.known = true
	}
	return c
}

// sample reads a line: name{labels} value [time].
func sample(line string) (name string, value float64, ok bool) {
	if strings.HasPrefix(line, "#") {
		return "", 0, false
	}
	rest := line
	if i := strings.IndexAny(line, "{ "); i >= 0 {
		name, rest = line[:i], line[i:]
	}
	if strings.HasPrefix(rest, "{") {
		rest = rest[strings.LastIndex(rest, "}")+1:]
	}
	fields := strings.Fields(rest)
	if name == "" || len(fields) == 0 {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	return name, value, err == nil
}
