package infer

import "slices"

// ReleaseKV gives back the memory that the pools of the target and of the sources hold for later passes, as
// far as they are KVReleasers; the next pass takes it again. It is for an idle server, and may be called
// whenever Cancel may.
func (e *Engine) ReleaseKV() {
	if r := e.Target.Abilities().Release; r != nil {
		r.ReleaseKV()
	}
	for _, x := range e.opened {
		if e.brokenErr(x.source) != nil {
			continue
		}
		if err := callRelease(x.pool); err != nil {
			e.breakSource(x.source, err)
		}
	}
	e.opened = nil
}

// An openedSource may hold memory.
type openedSource struct {
	source Source
	pool   KVReleaser
}

// remember notes that src may hold memory until the next ReleaseKV.
func (e *Engine) remember(src Source, pool KVReleaser) {
	if pool != nil && !slices.ContainsFunc(e.opened, func(x openedSource) bool { return x.source == src }) {
		e.opened = append(e.opened, openedSource{src, pool})
	}
}
