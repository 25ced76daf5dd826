package checkpoints

import (
	"fmt"

	"talf/model/arch"
)

// A Grade is the consequence of a problem.
type Grade string

// The grades. A head with a problem of the first two grades is not written unless
// forced.
const (
	Refuses  Grade = "refuses"  // the reader stops with an error
	Misreads Grade = "misreads" // it loads the head but drafts different tokens from talf
	Note     Grade = "note"     // it works, but users should know
)

// A Problem is something that users should know about how a reader loads a head.
type Problem struct {
	Grade  Grade  `json:"grade"`
	Reader string `json:"reader"`
	What   string `json:"what"`
}

// String describes the problem in a sentence.
func (p Problem) String() string {
	switch p.Grade {
	case Refuses:
		return p.Reader + " would refuse it: " + p.What
	case Misreads:
		return p.Reader + " would load it and draft something else: " + p.What
	}
	return p.What
}

func refuse(format string, args ...any) Problem {
	return Problem{Grade: Refuses, What: fmt.Sprintf(format, args...)}
}

func misread(format string, args ...any) Problem {
	return Problem{Grade: Misreads, What: fmt.Sprintf(format, args...)}
}

func note(format string, args ...any) Problem {
	return Problem{Grade: Note, What: fmt.Sprintf(format, args...)}
}

// hasEmbed reports whether the exported head will have an embedding.
func (d *Draft) hasEmbed(c *ExportConfig) bool {
	_, ok := d.Tensor(d.Spec.Weight(arch.Embed, 0))
	return ok || c.Embed != nil
}
