package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Where there is no terminal, progress is printed once a stage takes longer than plainFirst, and from
// then on after every plainEvery.
const (
	plainFirst = 2 * time.Second
	plainEvery = 10 * time.Second
)

// A Progress shows how far a stage is: a bar with rate and remaining time on a terminal,
// otherwise a line every few seconds. It is not safe for concurrent use.
type Progress struct {
	w     io.Writer
	what  string
	unit  string
	bar   *progressbar.ProgressBar
	begun time.Time
	base  int64 // done before this run: not part of the rate
	first bool
	next  time.Time // when a line is due
	off   bool
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool {
	if s, ok := w.(*stream); ok {
		w = s.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// NewProgress begins a stage called what that counts in unit ("rows"). If off, it shows nothing.
func NewProgress(w io.Writer, what, unit string, off bool) *Progress {
	now := time.Now()
	p := &Progress{w: w, what: what, unit: unit, begun: now, next: now.Add(plainFirst), first: true, off: off}
	if !p.off && IsTerminal(w) {
		p.bar = progressbar.NewOptions64(-1,
			progressbar.OptionSetWriter(w),
			progressbar.OptionSetDescription(what),
			progressbar.OptionSetItsString(unit),
			progressbar.OptionShowIts(),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetWidth(30),
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

// Set shows that done of total units are done; a total of 0 means unknown. note is added to the
// line ("loss 2.31").
func (p *Progress) Set(done, total int64, note string) {
	if p.off {
		return
	}
	if p.first {
		p.first, p.base = false, done
	}
	if p.bar != nil {
		if total > 0 && p.bar.GetMax64() != total {
			p.bar.ChangeMax64(total)
		}
		if note != "" {
			p.bar.Describe(p.what + " (" + note + ")")
		}
		_ = p.bar.Set64(done)
		return
	}
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(plainEvery)
	_, _ = fmt.Fprintln(p.w, p.line(done, total, note, now))
}

// line returns what Set prints if there is no terminal.
func (p *Progress) line(done, total int64, note string, now time.Time) string {
	s := fmt.Sprintf("%s: %d", p.what, done)
	if total > 0 {
		s += fmt.Sprintf("/%d", total)
	}
	s += " " + p.unit
	if d := now.Sub(p.begun).Seconds(); d > 0 && done > p.base {
		rate := float64(done-p.base) / d
		s += fmt.Sprintf(", %.3g %s/s", rate, p.unit)
		if total > done {
			left := time.Duration(float64(total-done) / rate * float64(time.Second))
			s += ", " + left.Round(time.Second).String() + " left"
		}
	}
	if note != "" {
		s += ", " + note
	}
	return s
}

// End removes the bar.
func (p *Progress) End() {
	if p.bar != nil {
		_ = p.bar.Finish()
		_ = p.bar.Clear()
	}
}

// Phases returns what shows phases of work, each with a Progress of its own, which ends when the phase is over, another
// begins or ctx ends.
func Phases(w io.Writer, unit string, quiet bool) func(ctx context.Context, phase string, done, total int64, over bool) {
	var bar *Progress
	var shown string
	return func(ctx context.Context, phase string, done, total int64, over bool) {
		over = over || ctx.Err() != nil
		if bar != nil && (over || phase != shown) {
			bar.End()
			bar = nil
		}
		if over {
			return
		}
		if bar == nil {
			bar, shown = NewProgress(w, phase, unit, quiet), phase
		}
		bar.Set(done, total, "")
	}
}
