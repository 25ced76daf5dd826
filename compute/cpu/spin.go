//go:build !race

package cpu

import "time"

// spin is how long an idle worker keeps its core before it parks. It exceeds the gaps
// between the passes of a text: a parked worker takes tens of microseconds to return,
// during which the caller computes alone.
const spin = time.Millisecond

// looks is how often an idle worker polls before it yields its core, about 10 µs.
// Yielding costs as much as a hundred polls.
const looks = 8192

// joinSpins is how often the caller polls for its helpers before it sleeps, about
// 100 µs. After that the system has probably taken a helper's core away, perhaps to let
// the caller wait on it.
const joinSpins = 50_000
