package infer

import "slices"

// A KVReleaser is a Target or a Source whose pool of keys and values can give memory that nobody
// uses back to the system. Kept prefixes stay. ReleaseKV is called between passes.
type KVReleaser interface{ ReleaseKV() }

// A Releaser gives back the memory that it keeps for later sequences: what it does for them then takes longer
// once, and is the same.
type Releaser interface{ Release() }

// ReleaseKV gives back the memory that the pools of the target and of the sources hold for later
// passes, as far as they are KVReleasers; the next pass takes it again. So does it with what drafters keep for later
// sequences. It is for a server that has nothing to do, and may be called whenever Cancel may.
func (e *Engine) ReleaseKV() {
	if r, ok := e.Target.(KVReleaser); ok {
		r.ReleaseKV()
	}
	for _, src := range e.opened {
		if e.brokenErr(src) != nil {
			continue
		}
		if err := callRelease(src); err != nil {
			e.breakSource(src, err)
		}
	}
	e.opened = nil
	for _, r := range e.idle {
		_ = callIdle(r) // it is as if it had nothing to give
	}
	e.idle = nil
}

// keeps notes that r may hold memory until the next ReleaseKV.
func (e *Engine) keeps(r Releaser) {
	if r != nil && !slices.Contains(e.idle, r) {
		e.idle = append(e.idle, r)
	}
}

// remember notes that src may hold memory until the next ReleaseKV.
func (e *Engine) remember(src Source) {
	if _, ok := src.(KVReleaser); ok && !slices.Contains(e.opened, src) {
		e.opened = append(e.opened, src)
	}
}
