package infer

import "slices"

// A KVReleaser is a Target or a Source whose pool of keys and values can give memory that nobody
// uses back to the system. Kept prefixes stay. ReleaseKV is called between passes.
type KVReleaser interface{ ReleaseKV() }

// ReleaseKV gives back the memory that the pools of the target and of the sources hold for later
// passes, as far as they are KVReleasers; the next pass takes it again. It is for a server that has nothing to do, and may be called whenever Cancel may.
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
}

// remember notes that src may hold memory until the next ReleaseKV.
func (e *Engine) remember(src Source) {
	if _, ok := src.(KVReleaser); ok && !slices.Contains(e.opened, src) {
		e.opened = append(e.opened, src)
	}
}
