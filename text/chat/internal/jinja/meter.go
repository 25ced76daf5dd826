package jinja

import (
	"errors"

	"talf/internal/limits"
)

// Bounds of one rendering. A template is charged for values before they are made and for
// work before it is done, and nothing is credited back, so the bounds hold no matter what
// it keeps. limits.TemplateSteps and limits.TemplateMade are the budgets; what the
// functions of this file charge is chosen so that a unit of work takes a few nanoseconds.
const (
	maxText       = limits.TemplateText // bytes of the rendered text, and of any other text
	maxItems      = 1 << 20             // items of one list or dict
	maxCalls      = 250                 // of nested macros, callers and recursive loops
	maxValueDepth = 500                 // of nested lists and dicts
	maxDigits     = 4300                // up to which Python converts an int from and to text
)

// What things cost, in units of work and in bytes.
const (
	nodeWork   = 32  // a node that is evaluated, or an item that is visited
	slotBytes  = 16  // a reference in a list
	boxBytes   = 16  // a number or the header of a text, which the reference may point to
	entryBytes = 160 // an entry of a dict with its share of the index
	frameBytes = 144 // a scope
	argsBytes  = 80  // the arguments of a call, without the values
	loopBytes  = 256 // the variable of a loop
	funcBytes  = 128 // a bound method, an iterator, an undefined value
)

// checkDepth bounds recursion over nested values.
func checkDepth(depth int) {
	if depth > maxValueDepth {
		throw("RecursionError", "maximum recursion depth exceeded")
	}
}

// step counts one node or item.
func (r *run) step() { r.work(nodeWork) }

// work charges n units of work that are about to be done. Small sums are paid together.
func (r *run) work(n int) {
	if r.due += n; r.due > dueWork {
		r.pay()
	}
}

// What a rendering may owe before it pays.
const (
	dueWork  = 1 << 11 // some microseconds
	dueBytes = 1 << 12
)

// pay charges the meter for what is due.
func (r *run) pay() {
	due := r.due
	r.due = 0
	if err := r.meter.Step(due); err != nil {
		r.stop(err)
	}
}

// scan charges for reading n bytes in a loop of a nanosecond a byte or less.
func (r *run) scan(n int) {
	if n >= 4 {
		r.work(n / 4)
	}
}

// charge charges n bytes that are about to be made.
func (r *run) charge(n int) {
	if r.owed += n; r.owed > dueBytes {
		r.payBytes()
	}
}

// payBytes charges the meter for the bytes that are owed.
func (r *run) payBytes() {
	owed := r.owed
	r.owed = 0
	if err := r.meter.Alloc(owed); err != nil {
		r.stop(err)
	}
}

// stop ends the rendering: a budget is used up, or the context has ended.
func (r *run) stop(err error) {
	if errors.Is(err, limits.ErrTooLarge) {
		throw("LimitError", "the template takes or makes %v", err)
	}
	panic(thrown{err})
}

// checkSize refuses a text of n bytes if it is too long.
func checkSize(n int) {
	if n < 0 || n > maxText {
		throw("LimitError", "the template makes a text of more than %d MiB", maxText>>20)
	}
}

// checkItems refuses a list of n items if it is too long.
func checkItems(n int) {
	if n < 0 || n > maxItems {
		throw("LimitError", "the template makes a list of more than %d items", maxItems)
	}
}
