package prompts

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// A Split is a part of a set of prompts. Constants are tuned on one part and figures reported on the
// other, so that nothing is fitted to what it is measured on. The rule needs no list: the first bit
// of the SHA-256 of what the user first says, or of the text, without the white space around it,
// is 0 for Tune and 1 for Report. It does not depend on tokenizers, templates, files or order.
type Split string

// The parts.
const (
	All    Split = "all"
	Tune   Split = "tune"
	Report Split = "report"
)

// ParseSplit reads a part's name.
func ParseSplit(name string) (Split, error) {
	switch s := Split(name); s {
	case All, Tune, Report:
		return s, nil
	}
	return "", fmt.Errorf("split is %q, want tune, report or all", name)
}

// Has reports whether p is in the part.
func (s Split) Has(p *Prompt) bool {
	if s == All || s == "" {
		return true
	}
	text := ""
	if len(p.Turns) > 0 {
		text = strings.TrimSpace(p.Turns[0])
	}
	in := Tune
	if sum := sha256.Sum256([]byte(text)); sum[0]&0x80 != 0 {
		in = Report
	}
	return s == in
}
